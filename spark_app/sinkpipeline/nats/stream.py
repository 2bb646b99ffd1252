"""A stream as the server has it, and whether rows and progress are safe in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import InDoubt
from sinkpipeline.nats.client import ApiError, Client, Message
from sinkpipeline.nats.codes import Meaning
from sinkpipeline.nats.settings import SinkSettings
from sinkpipeline.nats.subjects import cell_of, matches

API_LEVEL = 2
"""Of the first servers that have atomic batches: 2.12."""
_PAGE = 100_000
TTL, NEVER = "Nats-TTL", "never"
"""On a message: that it does not expire, in a stream that allows that."""


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
    def expires(self) -> bool:
        """Whether messages go that do not say so."""
        return int(self.config.get("max_age", 0)) > 0

    @property
    def window_ms(self) -> int:
        """For so long the server knows a message again by its id."""
        return int(self.config.get("duplicate_window", 0)) // 1_000_000

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


def check_atomic(client: Client, found: StreamInfo | None) -> None:
    """That several messages can be stored at once. Raises SinkPipelineError: SinkRefused, ..."""
    check_server(client)
    if found is not None and not found.config.get("allow_atomic"):
        raise SinkPipelineError(Reason.SINK_REFUSED, f"stream {found.name} {_NOT_ATOMIC}", _allow_atomic(found.name))


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
            "upgrade the servers to NATS 2.12 or newer, or choose deliveryGuarantee: AtLeastOnce",
        )


def check_stream(found: StreamInfo, settings: SinkSettings) -> None:
    """That rows and their progress get there in one step, and that no limit takes the progress away.

    Raises:
        SinkPipelineError: SinkRefused.
    """
    for fact, remedy in _unsuitable(found, settings):
        raise SinkPipelineError(Reason.SINK_REFUSED, f"stream {found.name} {fact}", remedy)


def _unsuitable(found: StreamInfo, settings: SinkSettings) -> Iterator[tuple[str, str]]:
    yield from _strange(found.config)
    yield from _forgetful(found)
    edit = f"nats stream edit {found.name}"
    if settings.exactly_once and not found.config.get("allow_atomic"):
        yield _NOT_ATOMIC, _allow_atomic(found.name)
    wanted = {"where the progress is kept": settings.own_subjects, "the subject of rows": settings.subject}
    for what, subject in wanted.items():
        if subject is not None and not found.takes(subject):
            yield f"does not take {subject}, {what}", f"{edit} --subjects '{','.join((*found.subjects, subject))}'"


_NOT_ATOMIC = "takes no atomic batches (allow_atomic is off)"


def _allow_atomic(name: str) -> str:
    return f"nats stream edit {name} --allow-batch"


_ANOTHER = "name another stream, or let it be created"


def _strange(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a stream is for all of its life."""
    strange = {
        "is a mirror, which takes no messages": config.get("mirror"),
        "is sealed: it takes no messages any more": config.get("sealed"),
        f"has retention {config.get('retention')}: consumers would take the progress away": config.get("retention")
        != "limits",
        "is kept in memory: a restart of the server takes what was acknowledged": config.get("storage") != "file",
        "has a subject transform: the progress would not be found again": config.get("subject_transform"),
        "is one of counters": config.get("allow_msg_counter"),
    }
    for fact, is_so in strange.items():
        if is_so:
            yield fact, _ANOTHER


def _forgetful(found: StreamInfo) -> Iterator[tuple[str, str]]:
    """Limits by which the progress of a partition goes that gets no new records."""
    config, edit = found.config, f"nats stream edit {found.name}"
    if found.expires and not found.keeps_cells:
        fact = "has max_age, and messages that don't expire are not allowed (allow_msg_ttl is off)"
        yield f"{fact}: the progress of a partition without new records would expire", f"{edit} --allow-msg-ttl"
    if config.get("discard") != "new" and any(int(config.get(each, -1)) > 0 for each in ("max_msgs", "max_bytes")):
        fact = "discards old messages where it is full (discard: old, with max_msgs or max_bytes)"
        remedy = f"{edit} --discard new, or limit it by --max-age alone"
        yield f"{fact}: the progress of a partition without new records would be discarded", remedy
    if config.get("discard_new_per_subject"):
        yield "discards new messages of a subject, and the progress is written to one again and again", _ANOTHER


def would_expire(client: Client, found: StreamInfo, settings: SinkSettings) -> bool:
    """Whether the progress is of a start before messages might say that they stay, and they expire by now.

    A start marks either all of its cells or none, and `meta` among them.

    Raises:
        SinkPipelineError: SinkUnreachable, ...
    """
    if not found.expires:
        return False
    with reading(client):
        meta = client.message(found.name, last_by_subj=cell_of(settings.progress_subject, settings.id.meta_key))
    return meta is not None and meta.headers.get(TTL) != NEVER


_NO_SEQUENCE = str(2**63 - 1)


def check_writes(client: Client, settings: SinkSettings) -> None:
    """That rows and cells may be published: by messages that expect a sequence which no subject has, so none stays.

    Raises:
        SinkPipelineError: SinkRefused, ...
    """
    for subject in (cell_of(settings.progress_subject, settings.id.meta_key), settings.subject):
        if subject is None:
            continue
        with reading(client):
            try:
                client.publish([Message(subject, b"", {"Nats-Expected-Last-Subject-Sequence": _NO_SEQUENCE})])
            except ApiError as error:
                if error.meaning is not Meaning.MOVED:
                    raise
