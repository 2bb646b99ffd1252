"""What a user of MySQL may do, by what SHOW GRANTS says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_GRANT: Final = re.compile(r"GRANT (.+?) ON (\*|`(?:[^`]|``)*`)\.\* TO ", re.DOTALL)
_LOCKS: Final = re.compile(r"(?:^|, )(?:LOCK TABLES|ALL PRIVILEGES)(?:,|$)")


def may_lock(grants: Iterable[str], table: str) -> bool:
    """Whether a user may lock a table.

    Args:
        grants: with those of its roles, such as: GRANT SELECT, LOCK TABLES ON `shop`.* TO `cdc`@`%`.
        table: `database.table`.
    """
    database = table.split(".", 1)[0]
    for grant in grants:
        found = _GRANT.match(grant)
        if found is not None and _LOCKS.search(found[1]):
            name = found[2].replace("``", "`")
            if name == "*" or re.fullmatch(_pattern(name[1:-1]), database, re.IGNORECASE | re.DOTALL):
                return True
    return False


def _pattern(name: str) -> str:
    """Of a database in a grant: % and _ stand for other letters, and for themselves behind a backslash."""
    parts: list[str] = re.findall(r"\\.|.", name, re.DOTALL)
    others = {"%": ".*", "_": "."}
    return "".join(others.get(each) or re.escape(each[-1]) for each in parts)
