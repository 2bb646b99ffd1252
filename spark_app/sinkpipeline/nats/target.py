"""The stream, in which both rows and cells are, as a start finds or makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from sinkpipeline.cells.kind import LetteredTarget
from sinkpipeline.core.durability import Durability
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.limits import TopicLimits
from sinkpipeline.core.lost_topics import data_topic_lost
from sinkpipeline.core.ports import Creation, InDoubt, Letters, LetterTarget
from sinkpipeline.core.topics import Topic
from sinkpipeline.nats.client import ApiError, Client
from sinkpipeline.nats.codes import Meaning
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.nats.stream import (
    StreamInfo,
    check_server,
    check_stream,
    check_writes,
    counted,
    info,
    reading,
    would_expire,
)
from sinkpipeline.nats.subjects import matches

_ANY_BYTES = 1_000_000_000
STREAM_LIMITS = TopicLimits(partitions=1, message_bytes=_ANY_BYTES)
"""What a message may have is compared as it is made: the server's limit and the stream's, with its headers."""
_NAME_IN_USE = 10058
_OVERLAPS = 10065


@dataclass(frozen=True)
class NatsStream(LetteredTarget):
    """The stream of one sink: its target, and the place of its progress."""

    settings: SinkSettings
    client: Client
    letters: LetterTarget | None = None

    @property
    def name(self) -> str:
        return self.settings.stream.name

    def check_names(self) -> None:
        settings = self.settings
        if settings.subject is not None and matches(f"{settings.progress_subject}.>", settings.subject):
            raise SinkPipelineError(
                Reason.MANIFEST_INVALID,
                f"subject {settings.subject} is below {settings.progress_subject}, where the progress is kept",
                "name another subject, or another progressSubject",
            )
        if self.letters is not None:
            self.letters.check_names()

    def info(self) -> StreamInfo | None:
        """Raises SinkPipelineError: SinkUnreachable, ..."""
        with reading(self.client):
            return info(self.client, self.name)

    def describe(self, source: Mapping[str, str]) -> Topic | None:  # noqa: ARG002 - a stream is not what is read
        found = self.info()
        return None if found is None else self._topic(found)

    def _topic(self, found: StreamInfo) -> Topic:
        with reading(self.client):
            cells = counted(self.client, self.name, f"{self.settings.progress_subject}.>") if found.messages else {}
        return Topic(
            name=self.name,
            id=found.id,
            partitions=1,
            replication_factor=int(found.config.get("num_replicas", 1)),
            config=MappingProxyType(self._configuration(found)),
            holds_data=found.messages > sum(cells.values()),
            counted=self._counted(found),
        )

    def _configuration(self, found: StreamInfo) -> dict[str, str]:
        """What can differ from the manifest. Subjects are alike if all that are asked for are taken."""
        asked = self.settings.data.config
        wanted = (*self.settings.stream.subjects, self.settings.own_subjects)
        covered = all(map(found.takes, wanted))
        return {
            "subjects": asked["subjects"] if covered else ", ".join(found.subjects),
            "max_age": f"{found.config.get('max_age', 0)} ns",
            "max_bytes": str(found.config.get("max_bytes", -1)),
            "duplicate_window": f"{found.config.get('duplicate_window', 0)} ns",
        }

    def id(self) -> str | None:
        found = self.info()
        return None if found is None else found.id

    def create(self, there: Topic | None = None) -> Creation:  # noqa: ARG002 - it is one stream
        """Whoever is asked twice, and answers once, may have made it for somebody else.

        Raises:
            SinkPipelineError: SinkRefused, TopicCreationFailed, ...
        """
        if self.settings.exactly_once:
            check_server(self.client)
        created = None
        try:
            created = self.client.api(f"STREAM.CREATE.{self.name}", **self._asked())
        except ApiError as error:
            if error.code != _NAME_IN_USE and error.meaning is not Meaning.OUTAGE:
                raise self._not_created(error) from error
        except InDoubt as doubt:
            if doubt.aborted:
                raise (doubt.told or _again(str(doubt))) from doubt
        made = str(created["created"]) if created is not None and created.get("did_create") else None
        found = self.describe({})
        if found is None:
            raise _again("it is gone again")
        return Creation(topic=found, is_ours=found.id == made)

    def _asked(self) -> dict[str, Any]:
        stream, own = self.settings.stream, self.settings.own_subjects
        covered = any(matches(each, own) for each in stream.subjects)
        return {
            "name": stream.name,
            "subjects": [*stream.subjects, *([] if covered else [own])],
            "retention": "limits",
            "storage": "file",
            "num_replicas": stream.replicas or 1,
            "max_age": stream.max_age_ns or 0,
            "max_bytes": stream.max_bytes or -1,
            "discard": "new",
            # An older server takes it without a word, and has none.
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "duplicate_window": stream.duplicate_window_ns or 0,
        }

    def _not_created(self, error: ApiError) -> Exception:
        if error.code == _OVERLAPS:
            remedy = "name the stream that has these subjects, or other subjects"
        else:
            remedy = "create the stream yourself as docs/nats.md says, or correct nats.stream"
        if error.meaning is Meaning.FULL:
            return self.client.as_error(error)
        return SinkPipelineError(Reason.TOPIC_CREATION_FAILED, f"stream {self.name} was not created: {error}", remedy)

    def take(self, target: Topic, place: Topic, letters: Letters) -> None:  # noqa: ARG002 - they are one stream
        if self.letters is not None:
            self.letters.take(letters)
        self.check(target.id)

    def check(self, known: str | None = None) -> None:
        """That rows and progress are safe in it, and may be written; `known`: the id that it had.

        Raises:
            SinkPipelineError: SinkRefused, TopicsChanged, ...
        """
        if self.settings.exactly_once:
            check_server(self.client)
        found = self.info()
        if found is None or known not in (None, found.id):
            raise _again(f"stream {self.name} was deleted or re-created")
        check_stream(found, self.settings)
        check_writes(self.client, self.settings)

    def would_expire(self) -> bool:
        """Whether the progress that is there is not marked to stay, and messages expire by now."""
        found = self.info()
        return found is not None and would_expire(self.client, found, self.settings)

    def limits_of(self, target: Topic) -> TopicLimits:  # noqa: ARG002 - compared as a message is made
        return STREAM_LIMITS

    def limits(self) -> TopicLimits | None:
        return None if self.id() is None else STREAM_LIMITS

    def durability(self) -> Durability | None:
        """A server acknowledges before its disk has it, and nobody can ask how long that takes (sync_interval)."""
        return Durability.AS_HELD_BY_SINK if self.settings.exactly_once else Durability.SERVER_WINDOW

    @override
    def duplicate_window_ms(self) -> int | None:
        if self.settings.exactly_once:
            return None
        found = self.info()
        return None if found is None else found.window_ms

    @override
    def counted(self) -> int | None:
        found = self.info()
        return None if found is None else self._counted(found)

    def _counted(self, found: StreamInfo) -> int:
        """A server that was deposed, and does not know it, tells less than the cells that were written since."""
        return max([found.last_seq, *(int(each.seq) for each in self.client.known.values())])

    def lost(self, what: str) -> SinkPipelineError:
        return data_topic_lost(self.name, what, self.settings.data.called)

    def delete(self, target: str) -> None:
        found = self.info()
        if found is None:
            return
        if found.id != target:
            raise SinkPipelineError(
                Reason.TOPICS_CHANGED, f"stream {self.name} was deleted or re-created", "nothing; it is tried again"
            )
        with reading(self.client):
            try:
                self.client.api(f"STREAM.DELETE.{self.name}")
            except ApiError as error:
                if error.meaning is not Meaning.NO_STREAM:
                    raise


def _again(fact: str) -> SinkPipelineError:
    return SinkPipelineError(Reason.TOPICS_CHANGED, fact, "nothing; it is tried again")
