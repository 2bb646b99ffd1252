from __future__ import annotations

from unittest.mock import Mock

import psycopg
import pytest

from sinkpipeline.core.ports import InDoubt, RecordRefused
from sinkpipeline.postgresql.client import Client
from sinkpipeline.postgresql.lines import row, text
from sinkpipeline.postgresql.settings import Connection
from sinkpipeline.postgresql.sqlstates import (
    Meaning,
    meaning,
    meaning_of_connecting,
    of_each_attempt,
    outage_remedy,
)


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("22P02", Meaning.RECORD),
        ("23505", Meaning.RECORD),
        ("40001", Meaning.AGAIN),
        ("40P01", Meaning.AGAIN),
        ("40002", Meaning.RECORD),
        ("25P03", Meaning.AGAIN),
        ("25006", Meaning.OUTAGE),
        ("57P01", Meaning.OUTAGE),
        ("57014", Meaning.AGAIN),
        ("53100", Meaning.FULL),
        ("55P03", Meaning.LOCKED),
        ("53300", Meaning.OUTAGE),
        ("42501", Meaning.REFUSED),
        ("28P01", Meaning.CREDENTIALS),
        ("2BP01", Meaning.REFUSED),
        ("P0001", Meaning.RECORD),
        ("XX000", Meaning.UNKNOWN),
        (None, Meaning.OUTAGE),
    ],
)
def test_a_code_goes_before_its_class(sqlstate: str | None, expected: Meaning) -> None:
    assert meaning(sqlstate) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('FATAL:  password authentication failed for user "x"', Meaning.CREDENTIALS),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1"', Meaning.CREDENTIALS),
        ("SSL error: certificate verify failed", Meaning.CREDENTIALS),
        ('FATAL:  database "shop" does not exist', Meaning.REFUSED),
        ("Connection refused", Meaning.OUTAGE),
        ("FATAL:  the database system is starting up", Meaning.OUTAGE),
    ],
)
def test_what_is_said_of_a_connection_that_was_not_made(said: str, expected: Meaning) -> None:
    assert meaning_of_connecting(said) is expected


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [("P0001", Meaning.REFUSED), ("22023", Meaning.REFUSED), ("54000", Meaning.FULL), ("57P01", Meaning.OUTAGE)],
)
def test_what_is_said_where_there_are_no_rows_is_about_none(sqlstate: str, expected: Meaning) -> None:
    assert meaning(sqlstate, of_rows=False) is expected


def test_of_several_servers_each_is_told_once() -> None:
    """As the client says it of two that it has tried."""
    of = 'connection failed: connection to server at "127.0.0.1", port {port} failed: {fact}'
    down, standby = (
        of.format(port=1, fact="Connection refused\n\tIs it running?"),
        of.format(port=2, fact="session is read-only"),
    )
    said = f"{standby}\nMultiple connection attempts failed. All failures were:\n"
    said += f"- host: 'a', port: '1', hostaddr: '127.0.0.1': {down}\n"
    said += f"- host: 'b', port: '2', hostaddr: '127.0.0.1': {standby}"
    assert of_each_attempt(said) == "a:1: Connection refused Is it running?; b:2: session is read-only"
    assert of_each_attempt(standby) == standby
    assert "promote the standby" in outage_remedy(None, said)


@pytest.mark.parametrize(
    ("sqlstate", "said", "remedy"),
    [
        ("25006", "cannot execute INSERT in a read-only transaction", "promote the standby"),
        (None, "localhost: the commit waits for a synchronous standby", "synchronous_standby_names"),
        ("08P01", "transaction blocks not allowed in statement pooling mode", "pool_mode = transaction"),
        (None, "Connection refused", "check that the server runs"),
    ],
)
def test_what_a_person_does_about_a_server_that_is_not_there_for_us(
    sqlstate: str | None, said: str, remedy: str
) -> None:
    assert remedy in outage_remedy(sqlstate, said)


def test_a_line_is_one_line_whatever_stands_in_it() -> None:
    rows = [row(["a\tb\nc\r\\.", None]), row([b"\\N", ""])]
    assert text(rows, numbered=False) == b"a\\tb\\nc\\r\\\\.\t\\N\n\\\\N\t\n"
    assert text(rows, numbered=True).startswith(b"0\ta\\t")


@pytest.mark.parametrize(
    ("sqlstate", "counts_for_nothing"), [("23505", True), ("40001", True), ("08006", False), ("XX000", False)]
)
def test_an_answer_to_a_commit_ends_the_doubt_only_if_it_is_the_servers_own(
    sqlstate: str, counts_for_nothing: bool
) -> None:
    """A pooler that has lost the server keeps our connection, and says so in the server's place."""
    client = Client(Connection(servers="localhost:1", database="d", user="u"))
    client._session = Mock(broken=False, closed=False)
    error = psycopg.errors.lookup(sqlstate)("it said so")
    told = client._told(error, committing=True, of_rows=True)
    assert (told.aborted if isinstance(told, InDoubt) else isinstance(told, RecordRefused)) is counts_for_nothing
