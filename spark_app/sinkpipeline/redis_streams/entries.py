"""A row as an entry of a stream: the field `value`, the field `key` where it has one, and a field for each header.

What the server would refuse in the middle of a commit is refused here: a script can't take back what it has written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from sinkpipeline.core.deadletter import ErrorClass, Verdict
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.records import Row

KEY, VALUE = "key", "value"
IDEMPOTENCY_KEY = "idempotency_key"
"""Of a row of `AtLeastOnce`."""
MOST_FIELDS = 1_000
"""A script can hand over some thousand words in one call."""
MOST_BYTES = 100_000_000
"""Of one field; servers take 512 MB where nobody has set less."""
NULL = b""
"""Of a header without a value: a field always has one."""

Words = list[str | bytes]


def words_of(row: Row, row_id: str | None = None) -> Words:
    """Fields and their values, in turn; `row_id`: what a row of `AtLeastOnce` is told by.

    Raises:
        ValueError: it can be no entry; why.
    """
    value, key, _, _, headers = row
    words: Words = []
    own = (KEY, VALUE) if row_id is None else (KEY, VALUE, IDEMPOTENCY_KEY)
    if key is not None:
        words += (KEY, key)
    if value is not None:
        words += (VALUE, value)
    for name, content in headers or ():
        if name in own:
            raise ValueError(f"a header is called {name}, as a field of ours is")
        words += (name, NULL if content is None else content)
    if not words:
        raise ValueError("it has neither a key, nor a value, nor headers, and an entry needs a field")
    if len(words) > 2 * MOST_FIELDS:
        raise ValueError(f"it has {len(words) // 2} fields, and at most {MOST_FIELDS} can be written")
    if any(len(each) > MOST_BYTES for each in words):
        raise ValueError(f"a field of it has more than {MOST_BYTES} bytes")
    return words if row_id is None else [IDEMPOTENCY_KEY, row_id, *words]


def arguments(rows: Iterable[Row], ids: Sequence[str | None] = ()) -> Words:
    """Of the script: for each row how many words it has, and those; `ids`: of each row, or of none.

    Raises:
        RecordRefused: `index` counts the rows.
    """
    found: Words = []
    for index, (row, row_id) in enumerate(zip(rows, ids or itertools.repeat(None), strict=False)):
        try:
            words = words_of(row, row_id)
        except ValueError as error:
            raise RecordRefused(Verdict(ErrorClass.RECORD_REFUSED, str(error)), index=index) from error
        found.append(str(len(words)))
        found += words
    return found
