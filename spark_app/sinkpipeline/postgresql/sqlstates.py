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
    "55P03": Meaning.AGAIN,  # lock_not_available
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


def meaning(sqlstate: str | None) -> Meaning:
    """None: the client, and not the server, says so; then there is no server to be reached."""
    if sqlstate is None:
        return Meaning.OUTAGE
    return _CODES.get(sqlstate, _CLASSES.get(sqlstate[:2], Meaning.UNKNOWN))


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
