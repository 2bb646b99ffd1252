"""A stream as the server has it, and whether rows and progress are safe in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.nats.client import ApiError, Client
from sinkpipeline.nats.codes import Meaning
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.nats.subjects import matches

API_LEVEL = 2
"""Of the first servers that have atomic batches: 2.12."""
_PAGE = 100_000


@dataclass(frozen=True)
class StreamInfo:
    """What `STREAM.INFO` says."""

    name: str
    id: str
    """When it was created: a stream of the same name that was created later is another one."""
    config: Mapping[str, Any]
    state: Mapping[str, Any]

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(map(str, self.config.get("subjects") or ()))

    @property
    def messages(self) -> int:
        return int(self.state["messages"])

    @property
    def last_seq(self) -> int:
        return int(self.state["last_seq"])

    @property
    def keeps_cells(self) -> bool:
        """Whether a message may say that it does not expire."""
        return bool(self.config.get("allow_msg_ttl"))

    @property
    def most_bytes(self) -> int | None:
        """Of one message with its headers; None for any."""
        found = int(self.config.get("max_msg_size", -1))
        return found if found > 0 else None

    def takes(self, subject: str) -> bool:
        return any(matches(each, subject) for each in self.subjects)


@contextlib.contextmanager
def reading(client: Client) -> Iterator[None]:
    """Of what reads, or can be done again: nothing is in doubt.

    Raises:
        SinkPipelineError: SinkUnreachable, ...
    """
    try:
        try:
            yield
        except ApiError as error:
            raise client.as_error(error) from error
    except InDoubt as doubt:
        raise doubt.told or SinkPipelineError(
            Reason.TRANSACTION_FAILED, str(doubt), "look at the server's log"
        ) from doubt


def info(client: Client, name: str) -> StreamInfo | None:
    """None where there is none.

    Raises:
        InDoubt, SinkPipelineError.
    """
    try:
        found = client.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.meaning is Meaning.NO_STREAM:
            return None
        raise client.as_error(error) from error
    return StreamInfo(name, str(found["created"]), found["config"], found["state"])


def counted(client: Client, name: str, pattern: str) -> dict[str, int]:
    """The subjects that match, with how many messages each has."""
    subjects: dict[str, int] = {}
    while True:
        try:
            found = client.api(f"STREAM.INFO.{name}", subjects_filter=pattern, offset=len(subjects))
        except ApiError as error:
            raise client.as_error(error) from error
        page = found["state"].get("subjects") or {}
        subjects.update(page)
        if len(page) < _PAGE or len(subjects) >= int(found.get("total", 0)):
            return subjects


def check_server(client: Client) -> None:
    """That it has atomic batches. An older one takes their headers without a word, and stores row by row.

    Raises:
        SinkPipelineError: SinkRefused, ...
    """
    with reading(client):
        found = client.api("INFO")
    level = int(found.get("api", {}).get("level", 0))
    if level < API_LEVEL:
        raise SinkPipelineError(
            Reason.SINK_REFUSED,
            f"{client.where}: the server has API level {level} of JetStream: it is older than 2.12, and has no atomic "
            "batches",
            "upgrade the servers to NATS 2.12 or newer",
        )


def check_stream(found: StreamInfo, settings: SinkSettings) -> None:
    """That rows and their progress get there in one step, and that no limit takes the progress away.

    Raises:
        SinkPipelineError: SinkRefused.
    """
    for fact, remedy in _unsuitable(found, settings):
        raise SinkPipelineError(Reason.SINK_REFUSED, f"stream {found.name} {fact}", remedy)


def _unsuitable(found: StreamInfo, settings: SinkSettings) -> Iterator[tuple[str, str]]:
    config, edit = found.config, f"nats stream edit {found.name}"
    another = "name another stream, or let it be created"
    if config.get("mirror"):
        yield "is a mirror, which takes no messages", "name the stream that it mirrors"
    if config.get("sealed"):
        yield "is sealed: it takes no messages any more", another
    if config.get("retention") != "limits":
        yield f"has retention {config.get('retention')}: consumers would take the progress away", another
    if config.get("storage") != "file":
        yield "is kept in memory: a restart of the server takes what was acknowledged", another
    if config.get("subject_transform"):
        yield "has a subject transform: the progress would not be found again", another
    if config.get("allow_msg_counter"):
        yield "is one of counters", another
    if not config.get("allow_atomic"):
        yield "takes no atomic batches (allow_atomic is off)", f"{edit} --allow-batch"
    if int(config.get("max_age", 0)) > 0 and not found.keeps_cells:
        yield (
            "has max_age, and messages that don't expire are not allowed (allow_msg_ttl is off): the progress of a "
            "partition without new records would expire",
            f"{edit} --allow-msg-ttl",
        )
    if config.get("discard") != "new" and any(int(config.get(each, -1)) > 0 for each in ("max_msgs", "max_bytes")):
        yield (
            "discards old messages where it is full (discard: old, with max_msgs or max_bytes): the progress of a "
            "partition without new records would be discarded",
            f"{edit} --discard new, or limit it by --max-age alone",
        )
    if config.get("discard_new_per_subject"):
        yield "discards new messages of a subject, and a cell of the progress is written again and again", another
    if not found.takes(settings.own_subjects):
        yield (
            f"does not take {settings.own_subjects}, where the progress is kept",
            f"{edit} --subjects '{','.join((*found.subjects, settings.own_subjects))}'",
        )
    if settings.subject is not None and not found.takes(settings.subject):
        yield (
            f"does not take {settings.subject}, the subject of rows",
            f"{edit} --subjects '{','.join((*found.subjects, settings.subject))}'",
        )
