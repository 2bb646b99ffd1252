"""Names of the exactly-once protocol: transactional ids and the keys of the progress topic.

Holding the transactional id of a source partition is the only right to write its rows and progress, so two pipelines,
sinks or partitions must never share one. `/` separates the parts, and no part but the fixed ones may hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

PROTOCOL_PREFIX = "sinkpipeline/v1"
SENTINEL_KEY = f"{PROTOCOL_PREFIX}/sentinel"
_PARTITION_KEY_PARTS = 7
"""sinkpipeline / v1 / identity / sink / p / topic / partition."""
_META_KEY_PARTS = 5


@dataclass(frozen=True, order=True)
class SourcePartition:
    """One partition of one source topic."""

    topic: str
    partition: int

    @override
    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class SinkId:
    """One sink of one pipeline identity; the owner of everything below its prefix.

    Raises:
        ValueError: a part is empty or holds `/`.
    """

    identity: str
    sink: str

    def __post_init__(self) -> None:
        for part in (self.identity, self.sink):
            if not part or "/" in part:
                raise ValueError(f"{part!r} can't be part of a transactional id: it is empty or holds '/'")

    @override
    def __str__(self) -> str:
        return f"{self.identity}/{self.sink}"

    @property
    def prefix(self) -> str:
        return f"{PROTOCOL_PREFIX}/{self.identity}/{self.sink}/"

    @property
    def control_id(self) -> str:
        """The transactional id of everything that the driver writes."""
        return f"{self.prefix}control"

    def partition_id(self, partition: SourcePartition) -> str:
        """The transactional id of one source partition's rows and progress."""
        return f"{self.prefix}{partition.topic}/{partition.partition}"

    @property
    def meta_key(self) -> str:
        return f"{self.prefix}meta"

    def partition_key(self, partition: SourcePartition) -> str:
        return f"{self.prefix}p/{partition.topic}/{partition.partition}"

    @property
    def letters_prefix(self) -> str:
        return f"{self.prefix}d/"

    def letter_key(self, partition: SourcePartition, offset: int, word: str) -> str:
        """Of a dead letter that counts, and is not settled; the word tells records of one offset from each other."""
        return f"{self.letters_prefix}{partition.topic}/{partition.partition}/{offset}/{word}"

    def parse_partition_key(self, key: str) -> SourcePartition | None:
        """The source partition that a progress key names, or None where the key isn't a partition key of this sink."""
        head = f"{self.prefix}p/"
        if not key.startswith(head):
            return None
        topic, separator, number = key[len(head) :].rpartition("/")
        if not separator or not topic or "/" in topic or not _is_canonical(number):
            return None
        return SourcePartition(topic, int(number))


def writer_of(key: str) -> str | None:
    """The transactional id by whose rows a progress key is written, or None where the key doesn't tell.

    The driver writes partition keys too, under its control id; but its transactions are short, and fenced at a start.
    """
    parts = key.split("/")
    if not key.startswith(f"{PROTOCOL_PREFIX}/"):
        return None
    if len(parts) == _PARTITION_KEY_PARTS and parts[4] == "p":
        return "/".join(parts[:4] + parts[5:])
    if is_meta_key(key):
        return "/".join([*parts[:4], "control"])
    return None


def is_meta_key(key: str) -> bool:
    """Whether a progress key is the one under which some sink's driver says what it is."""
    parts = key.split("/")
    return key.startswith(f"{PROTOCOL_PREFIX}/") and len(parts) == _META_KEY_PARTS and parts[4] == "meta"


def _is_canonical(number: str) -> bool:
    """Whether a partition is spelled as we spell it: 7 and 007 would be two keys of one partition."""
    return number.isascii() and number.isdigit() and str(int(number)) == number
