"""Points in time that a manifest or a command names: with a zone, to the millisecond."""

from __future__ import annotations

from datetime import datetime

POINT = (
    r"(19[7-9][0-9]|2[0-9]{3})-((0[13578]|1[02])-31|(0[13-9]|1[0-2])-(29|30)|(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|02-29)"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"([.][0-9]{3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
"""As Python, Go and CEL read it alike; which years have a 29 February it doesn't know."""


def moment_ms(text: str) -> int:
    """Unix milliseconds.

    Raises:
        ValueError: there is no such day.
    """
    return max(0, int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000))
