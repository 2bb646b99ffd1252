"""How a place in a manifest is written: `spec.sinks[0].kafka.topic.name`."""

import re
from typing import TypeAlias

Location: TypeAlias = "tuple[str | int, ...]"

_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,80}")


def path_of(location: Location) -> str:
    """The path as a person reads it; a key that looks like neither a field nor an option is not shown."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _FIELD.fullmatch(step):
            path += f".{step}"
        else:
            path += f'["{step}"]' if _KEY.fullmatch(step) else '["…"]'
    return path.removeprefix(".") or "manifest"


def shape_of(location: Location) -> str:
    """The path with every index left out: what a place is, not which one."""
    return ".".join("[]" if isinstance(step, int) else step for step in location).replace(".[]", "[]")
