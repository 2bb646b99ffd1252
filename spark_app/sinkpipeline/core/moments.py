"""Points in time that a manifest or a command names, with a zone, to the millisecond; and any timestamp as a time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

POINT = (
    r"(19[7-9][0-9]|2[0-9]{3})-((0[13578]|1[02])-31|(0[13-9]|1[0-2])-(29|30)|(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|02-29)"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"([.][0-9]{3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
"""As Python, Go and CEL read it alike; which years have a 29 February it doesn't know."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""Of the years 1 and 9999."""


def moment_ms(text: str) -> int:
    """Unix milliseconds.

    Raises:
        ValueError: there is no such day.
    """
    return max(0, int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000))


def calendar_time(unix_ms: int) -> datetime:
    """The second that it is in; the first or the last one of the calendar where it has none.

    The timestamp of a record is any number.
    """
    return _EPOCH + timedelta(seconds=max(_FIRST_S, min(unix_ms // 1000, _LAST_S)))
