"""From a server's events to changes, without a server; tests/binlog has a server's own."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

import pytest

from sinkpipeline.changes.binlog.stream import AnotherLog, NotServed, NotUnderstood, Stream
from sinkpipeline.changes.binlog.tables import Tables
from sinkpipeline.changes.ports import Begun, Ended, Event, Heard
from sinkpipeline.core.changes.binlog_kinds import MARIADB
from sinkpipeline.core.changes.binlog_values import decoder
from sinkpipeline.core.changes.positions import BinlogPosition, parse_binlog
from sinkpipeline.core.changes.values import Change, Writer

# What MariaDB 11.8.9 has sent: an insert; an update and a delete in one transaction; TRUNCATE. Within a transaction its
# events say 0 where others say where they end.
INSERT = (
    "f89e096ba2010000002a0000009b02000008000300000000000000000000000c10050000000069086e8d",
    (
        "f89e096b130100000041000000000000000000120000000000010001640001740002080f022003020101000203fc00090408026964046e6f7465"
        "0801006ff38910"
    ),
    "f89e096b17010000002d00000000000000000012000000000001000203fc010000000000000001006118f65245",
    "f89e096b10010000001f0000005b03000000000600000000000000effc1992",
)
BOTH = (
    "f89e096ba2010000002a0000008503000008000400000000000000000000000c1005000000007a3eb259",
    INSERT[1],
    "f89e096b18010000003a0000000000000000001200000000000100020303fc0100000000000000010061fc010000000000000001006235032587",
    INSERT[1],
    "f89e096b19010000002d00000000000000000012000000000001000203fc01000000000000000100621c743fb4",
    "f89e096b10010000001f000000dd04000000000800000000000000d14c5181",
)
TRUNCATE = (
    "f89e096ba2010000002a00000007050000080005000000000000000000000029100500000000a7eda49e",
    (
        "f89e096b02010000004a00000051050000000005000000000000000100001a00000000000101000020540000000006037374640400090009000964"
        "005452554e4341544520748278bec2"
    ),
)
START = parse_binlog("mariadb-bin.000001:625")


class Nobody:
    """A server that is asked nothing: no column may be of a type that the log does not tell."""

    def types(self, schema: str, table: str) -> Mapping[str, str]:
        raise AssertionError(f"{schema}.{table}")

    def cascade(self, table: str) -> str | None:
        raise AssertionError(table)


def stream(start: BinlogPosition = START) -> Stream:
    tables = Tables(("d.t",), {2304: decoder("utf-8")}, Nobody(), MARIADB)
    writer = Writer(tables.key_of, place_text=lambda commit: start.moved(commit).place)
    return Stream(tables, writer, start, has_checksums=True)


def read(found: Stream, *events: str | bytes) -> list[Event]:
    return [told for each in events for told in found.events(bytes.fromhex(each) if isinstance(each, str) else each)]


def changes(told: list[Event]) -> list[Change]:
    return [change for each in told if isinstance(each, list) for change in each]


def changed(event: str, *, end: int | None = None, size: int | None = None, gtid: int | None = None) -> bytes:
    """An event that says something else, with its checksum."""
    data = bytearray.fromhex(event)[:-4]
    if gtid is not None:
        struct.pack_into("<Q", data, 19, gtid)
    for at, value in ((13, end), (9, size)):
        if value is not None:
            struct.pack_into("<I", data, at, value)
    return bytes(data) + zlib.crc32(data).to_bytes(4, "little")


def made(kind: int, body: bytes, end: int = 0) -> bytes:
    """An event that a server tells beside its log."""
    data = struct.pack("<IBIIIH", 0, kind, 1, 23 + len(body), end, 0x20) + body
    return data + zlib.crc32(data).to_bytes(4, "little")


def heartbeat(end: int, before: bytes = b"") -> bytes:
    return made(27, before + b"mariadb-bin.000001", end)


def rotate(number: int) -> bytes:
    return made(4, struct.pack("<Q", 4) + b"mariadb-bin.%06d" % number)


def test_within_a_transaction_no_event_says_where_it_ends() -> None:
    told = read(stream(), *INSERT, *BOTH, *TRUNCATE)
    assert [(each.op, each.at.place, each.nth) for each in changes(told)] == [
        ("c", "mariadb-bin.000001:625", 2_000_000),
        ("u", "mariadb-bin.000001:859", 2_000_000),
        ("d", "mariadb-bin.000001:859", 4_000_000),
        ("t", "mariadb-bin.000001:1245", 1_000_000),
    ]
    assert [START.moved(each.end).place for each in told if isinstance(each, Ended)] == [
        "mariadb-bin.000001:859",
        "mariadb-bin.000001:1245",
        "mariadb-bin.000001:1361",
    ]


def test_before_11_4_each_event_says_it() -> None:
    assert read(stream(), *INSERT) == read(
        stream(), INSERT[0], changed(INSERT[1], end=732), changed(INSERT[2], end=777), INSERT[3]
    )


def test_beyond_4_gib_an_end_is_no_place() -> None:
    [begun, *_, ended] = read(stream(), INSERT[0], changed(INSERT[1], size=2**32 - 1), *INSERT[2:])
    assert isinstance(begun, Begun)
    assert ended == Ended(START.commit)


def test_a_transaction_beyond_4_gib_is_read_as_part_of_the_one_before() -> None:
    """Its place says what a place before says: whoever takes it for that passes over it."""
    giant = (INSERT[0], changed(INSERT[1], size=2**32 - 1000), INSERT[2], changed(INSERT[3], end=100))
    behind = (changed(INSERT[0], end=142, gtid=4), *INSERT[1:3], changed(INSERT[3], end=300))
    told = read(stream(), *giant, *behind)
    assert [(each.op, each.at.place, each.at.index) for each in changes(told)] == [
        ("c", "mariadb-bin.000001:625", 2_000_000),
        ("c", "mariadb-bin.000001:625", 6_000_000),
    ]
    assert [each for each in told if isinstance(each, Ended)] == [Ended(START.commit)] * 2
    notes = [each.note for each in told if isinstance(each, Begun)]
    assert notes == [notes[0]] * 2
    assert [each.before for each in told if isinstance(each, Begun)] == [0, None]
    # Who goes on there reads the same numbers, and has what is before.
    again = stream(START.moved(START.commit, 2_000_001, notes[0], 1))
    assert [each.at.index for each in changes(read(again, *giant, *behind))] == [6_000_000]
    assert again.skipped == 1


def test_behind_4_gib_the_next_file_has_places_again() -> None:
    found = stream()
    told = read(found, INSERT[0], changed(INSERT[1], size=2**32 - 1000), INSERT[2], changed(INSERT[3], end=100))
    assert found.heard == START.commit
    # As MariaDB and as MySQL say that nothing comes.
    assert read(found, heartbeat(0, struct.pack("<Q", 2**32 + 100)), heartbeat(5000)) == [None, None]
    assert found.heard == START.commit
    told = read(found, rotate(2), changed(INSERT[0], end=400))
    assert [each.note for each in told if isinstance(each, Begun)] != []
    assert found.heard == parse_binlog("mariadb-bin.000002:4").commit


def test_beyond_4_gib_nobody_can_begin() -> None:
    start = parse_binlog(f"mariadb-bin.000001:{2**32 - 10}")
    with pytest.raises(NotServed, match="beyond 4 GiB"):
        read(stream(start), changed(INSERT[0], end=100))


@pytest.mark.parametrize("behind", ["file", "transaction"])
def test_a_transaction_that_does_not_end_is_told(behind: str) -> None:
    """As a server leaves it that is killed as it writes it, or whose disk is full."""
    with pytest.raises(NotServed, match="has not ended"):
        read(stream(), *INSERT[:3], rotate(2) if behind == "file" else BOTH[0])
    # Nothing of ours is in it.
    read(stream(), INSERT[0], rotate(2), changed(INSERT[0], end=400))


@pytest.mark.parametrize("event", [INSERT[1], INSERT[2], INSERT[3]])
def test_rows_outside_of_a_transaction_are_not_passed_over(event: str) -> None:
    with pytest.raises(AnotherLog, match="one goes on"):
        read(stream(), event)


@pytest.mark.parametrize("event", [heartbeat(700), rotate(2)])
def test_a_place_inside_a_transaction_is_not_passed_over_without_it(event: bytes) -> None:
    within = START.moved(START.commit, 2_000_001, "0-1-3", 1)
    told = read(stream(within), heartbeat(625), INSERT[0])
    assert [type(each) for each in told] == [Heard, Begun]
    with pytest.raises(AnotherLog, match="no transaction begins"):
        read(stream(within), heartbeat(625), event)


def test_a_transaction_says_where_it_begins() -> None:
    with pytest.raises(NotUnderstood, match="where it begins"):
        read(stream(), changed(INSERT[0], end=0))
