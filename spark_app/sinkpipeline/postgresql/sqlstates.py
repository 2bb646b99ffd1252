"""What an SQLSTATE means to us. One table; what is not in it may pass by itself.

Source: PostgreSQL's appendix A. A class is the first two characters; a code of its own goes before its class.
"""

from __future__ import annotations

import enum
import re


class Meaning(enum.Enum):
    RECORD = "record"
    """A row is refused for what it is."""
    AGAIN = "again"
    """The same may come through when it is tried again."""
    OUTAGE = "outage"
    """The server is down, or is none that takes writes now."""
    LOCKED = "locked"
    """By somebody who has held it for long."""
    FULL = "full"
    """It has no room: it may have when somebody has made some."""
    CREDENTIALS = "credentials"
    REFUSED = "refused"
    """For good, until somebody changes something."""
    UNKNOWN = "unknown"


_CODES = {
    "25006": Meaning.OUTAGE,  # read_only_sql_transaction: a standby by now
    "25P03": Meaning.AGAIN,  # idle_in_transaction_session_timeout
    "40002": Meaning.RECORD,  # transaction_integrity_constraint_violation
    "44000": Meaning.RECORD,  # with_check_option_violation
    "53300": Meaning.OUTAGE,  # too_many_connections
    "53400": Meaning.REFUSED,  # configuration_limit_exceeded
    "55P03": Meaning.LOCKED,  # lock_not_available
    "57014": Meaning.AGAIN,  # query_canceled, as by statement_timeout
    "57P04": Meaning.REFUSED,  # database_dropped
    "P0001": Meaning.RECORD,  # raise_exception: a trigger of the table says no
}
_CLASSES = {
    "08": Meaning.OUTAGE,
    "0A": Meaning.REFUSED,
    "22": Meaning.RECORD,
    "23": Meaning.RECORD,
    "28": Meaning.CREDENTIALS,
    # Such as a view on a table that is to be dropped.
    "2B": Meaning.REFUSED,
    "3D": Meaning.REFUSED,
    "3F": Meaning.REFUSED,
    "40": Meaning.AGAIN,
    "42": Meaning.REFUSED,
    "53": Meaning.FULL,
    # Such as a key that is too long for its index.
    "54": Meaning.RECORD,
    "55": Meaning.REFUSED,
    "57": Meaning.OUTAGE,
}


def meaning(sqlstate: str | None, *, of_rows: bool = True) -> Meaning:
    """What a refusal means.

    Args:
        sqlstate: None: the client, and not the server, says so; then there is no server to be reached.
        of_rows: whether there are rows that it may be about.
    """
    if sqlstate is None:
        return Meaning.OUTAGE
    found = _CODES.get(sqlstate, _CLASSES.get(sqlstate[:2], Meaning.UNKNOWN))
    if found is Meaning.RECORD and not of_rows:
        # Such as an event trigger that forbids a temporary table; or a server that gives no transaction a number any
        # more, which is over once it was vacuumed.
        return Meaning.FULL if sqlstate.startswith("54") else Meaning.REFUSED
    return found


_CREDENTIALS = re.compile(
    r"authentication failed|pg_hba|role .* (does not exist|is not permitted)|certificate|"
    r"server (does not support|refuse\w*) SSL|no password supplied|private key"
)
_NO_DATABASE = re.compile(r"database .* does not exist|permission denied for database")


def meaning_of_connecting(text: str) -> Meaning:
    """The client tells no SQLSTATE of a connection that it could not make: what the server says is read.

    In another language than English it is taken for an outage, which tells the server's own words all the same.
    """
    if _CREDENTIALS.search(text):
        return Meaning.CREDENTIALS
    return Meaning.REFUSED if _NO_DATABASE.search(text) else Meaning.OUTAGE


READ_ONLY = "session is read-only"
"""As the client says it."""
WAITS_FOR_STANDBY = "the commit waits for a synchronous standby"
_REACH = "check that the server runs and that servers names it as this machine reaches it"
_WRITES = (
    "promote the standby, or name in servers of the sink the server that takes writes; if it is no standby, "
    "default_transaction_read_only is on, by the server, the database or the role: turn it off"
)
_STANDBY = "bring back a standby of synchronous_standby_names of the server, or take it out: the sink goes on by itself"
_POOLED = "give the pooler pool_mode = transaction or session: a sink needs transactions"
_LOCKED = "end what holds the lock, which pg_stat_activity and pg_locks of the server tell: the sink goes on by itself"


def outage_remedy(sqlstate: str | None, text: str) -> str:
    """What a person does about a server that is not there for us. What the client and poolers say is in English."""
    if sqlstate == "25006" or (sqlstate is None and READ_ONLY in text):
        return _WRITES
    if WAITS_FOR_STANDBY in text:
        return _STANDBY
    return _POOLED if "statement pooling" in text else _REACH


def full_remedy(sqlstate: str | None) -> str:
    """Likewise, about one that has no room. Each partition that a statement may need takes a lock, and so memory."""
    if sqlstate == "53200":
        return (
            "if the table has very many partitions, raise max_locks_per_transaction and restart the server, otherwise "
            "give it memory: the sink goes on by itself"
        )
    if sqlstate is not None and sqlstate.startswith("54"):
        return "do what the server's log says, such as VACUUM of old transactions: the sink goes on by itself"
    return "make room: the sink goes on by itself"


def lock_remedy(*, of_standby: bool) -> str:
    """Likewise, about a lock that is not to be had."""
    return f"{WAITS_FOR_STANDBY} that is before us: {_STANDBY}" if of_standby else _LOCKED


_ATTEMPTS = "Multiple connection attempts failed. All failures were:"
_ATTEMPT = re.compile(r"- host: '(.*?)', port: '(\d*)', hostaddr: '.*?': (.*?)(?= - host: '|$)")
_CONNECTION = re.compile(r'^connection failed: connection to server at "[^"]*", port \d+ failed: ')


def of_each_attempt(text: str) -> str:
    """What the client says of a connection that it could not make, on one line; of each server once."""
    line = " ".join(text.split())
    attempts = _ATTEMPT.findall(line.partition(_ATTEMPTS)[2])
    return "; ".join(f"{host}:{port}: {_CONNECTION.sub('', fact)}" for host, port, fact in attempts) or line
