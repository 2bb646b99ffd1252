"""What an error code of JetStream means to us. One table; what is not in it may pass by itself.

Source: nats-server's errors.json.
"""

from __future__ import annotations

import enum


class Meaning(enum.Enum):
    NO_MESSAGE = "no message"
    NO_STREAM = "no stream"
    MOVED = "moved"
    """Somebody else may have written; or a batch of ours was still on its way."""
    AGAIN = "again"
    """The same may come through when it is tried again."""
    INCOMPLETE = "incomplete"
    """A message of a batch was refused, or got lost on its way: the server does not say which."""
    REPEATED = "repeated"
    """Of a message of a batch the server knows the id: the server does not say which."""
    OUTAGE = "outage"
    FULL = "full"
    """It has no room: it may have when somebody has made some."""
    REFUSED = "refused"
    """For good, until somebody changes something."""
    UNKNOWN = "unknown"


TOO_LARGE = 10054

_CODES = {
    10037: Meaning.NO_MESSAGE,
    10059: Meaning.NO_STREAM,
    10060: Meaning.NO_STREAM,  # the subject is of another stream by now
    10071: Meaning.MOVED,  # wrong last sequence: N
    10164: Meaning.MOVED,  # wrong last sequence
    10176: Meaning.INCOMPLETE,
    10201: Meaning.REPEATED,  # also where two of the batch have one
    10175: Meaning.AGAIN,  # a sequence of the batch is missing
    10199: Meaning.AGAIN,  # with fewer messages: the batch is larger than the server takes
    10210: Meaning.AGAIN,  # too many batches are open
    10211: Meaning.AGAIN,
    10008: Meaning.OUTAGE,  # JetStream is temporarily unavailable
    10009: Meaning.OUTAGE,  # the cluster has no leader
    10004: Meaning.OUTAGE,
    10118: Meaning.OUTAGE,  # the stream is offline
    10167: Meaning.OUTAGE,  # too many requests
    10023: Meaning.FULL,  # insufficient resources
    10047: Meaning.FULL,
    10077: Meaning.FULL,  # the store failed: maximum bytes, messages
    10002: Meaning.FULL,  # the account's resources are exceeded
    10028: Meaning.FULL,
    TOO_LARGE: Meaning.REFUSED,  # the message is larger than the stream takes
    10074: Meaning.REFUSED,  # replicas without a cluster
    10097: Meaning.REFUSED,  # more headers than a message may have
    10035: Meaning.REFUSED,  # the account has no JetStream
    10039: Meaning.REFUSED,
    10076: Meaning.REFUSED,  # JetStream is not enabled
    10109: Meaning.REFUSED,  # the stream is sealed
    10057: Meaning.REFUSED,  # deleting is not permitted
    10110: Meaning.REFUSED,  # nor purging
    10174: Meaning.REFUSED,  # the stream takes no atomic batches
    10166: Meaning.REFUSED,  # no TTL of messages
}


def meaning(code: int) -> Meaning:
    return _CODES.get(code, Meaning.UNKNOWN)
