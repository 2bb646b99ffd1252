"""What an error reply means to us, by its first word. One table; what is not in it may pass by itself."""

from __future__ import annotations

import enum


class Meaning(enum.Enum):
    OUTAGE = "outage"
    """The server is not ready, or is none that takes writes now."""
    FULL = "full"
    """It has no room: it may have when somebody has made some."""
    UNREPLICATED = "unreplicated"
    """It has too few replicas to take writes."""
    CREDENTIALS = "credentials"
    REFUSED = "refused"
    """For good, until somebody changes something."""
    UNKNOWN = "unknown"


_CODES = {
    "ASK": Meaning.OUTAGE,
    "BUSY": Meaning.OUTAGE,  # the script of somebody else
    "CLUSTERDOWN": Meaning.OUTAGE,
    "CROSSSLOT": Meaning.REFUSED,
    "LOADING": Meaning.OUTAGE,
    "MASTERDOWN": Meaning.OUTAGE,
    "MISCONF": Meaning.FULL,  # it could not write its snapshot
    "MOVED": Meaning.OUTAGE,  # to another server, which is asked for again
    "NOAUTH": Meaning.CREDENTIALS,
    "NOPERM": Meaning.REFUSED,
    "NOREPLICAS": Meaning.UNREPLICATED,
    "OOM": Meaning.FULL,
    "READONLY": Meaning.OUTAGE,  # a replica by now
    "TRYAGAIN": Meaning.OUTAGE,
    "UNKILLABLE": Meaning.OUTAGE,
    "WRONGPASS": Meaning.CREDENTIALS,
    "WRONGTYPE": Meaning.REFUSED,
}
_WORDS = {
    "ACL failure in script": Meaning.REFUSED,  # its code is lost on the way out of the script
    "unknown command": Meaning.REFUSED,
    "unknown subcommand": Meaning.REFUSED,
    "max number of clients": Meaning.OUTAGE,
    "invalid DB index": Meaning.REFUSED,
    "DB index is out of range": Meaning.REFUSED,
    "invalid bulk length": Meaning.OUTAGE,  # proto-max-bulk-len: the connection ends, and who sent it looks why
    "cluster support disabled": Meaning.REFUSED,
    "WAITAOF cannot be used": Meaning.REFUSED,  # without an append-only file
    "last possible ID": Meaning.REFUSED,
}
LEAVES = frozenset({"ASK", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "READONLY"})
"""After these there is a better server than the one that said so."""


def meaning(code: str, text: str) -> Meaning:
    found = _CODES.get(code)
    if found is not None:
        return found
    return next((each for words, each in _WORDS.items() if words in text), Meaning.UNKNOWN)
