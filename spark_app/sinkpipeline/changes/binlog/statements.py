"""Statements that a stream meets as text: what they do to tables that are read, or may have done."""

from __future__ import annotations

from sinkpipeline.changes.binlog.tables import Tables
from sinkpipeline.core.changes.binlog_events import Query
from sinkpipeline.core.changes.binlog_statements import (
    Name,
    altered,
    bare,
    cascade,
    changes_rows,
    dropped,
    emptied,
    filled,
    is_of_a_table,
    made_temporary,
    others,
)
from sinkpipeline.core.changes.binlog_suitable import UNCASCADE, cascading
from sinkpipeline.core.changes.binlog_values import NotServed


class Statements:
    """Of one stream.

    A statement about a temporary table is logged in sessions whose binlog_format is not ROW, and then the table's
    creation was logged before, in the same session. The log marks it as one that depends on its session. It marks so,
    too, what comes in a procedure behind any other such thing, so that the mark alone does not tell.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._temporary: dict[int, set[Name]] = {}

    def forget_sessions(self) -> None:
        """The server was started."""
        self._temporary.clear()

    def read(self, query: Query) -> Query:
        """With its text as its session has written it."""
        decode = None if query.data.isascii() else self._tables.decode_of(query.collation)
        return query if decode is None else query._replace(text=decode(query.data))

    def emptied(self, query: Query) -> Name | None:
        """The table that it empties; none where that is a temporary one, whose rows nobody is told."""
        name = emptied(query)
        return None if name is None or name in self._temporary_of(query) else name

    def altered(self, query: Query) -> list[str]:
        """The tables of ours that may be others behind it."""
        if not is_of_a_table(query):
            # Each transaction has such a statement.
            return []
        names = others(query)
        return self._tables.all_mentioned(bare(query)) if names is None else self._tables.all_wanted(names)

    def check(self, query: Query, transaction: str) -> None:
        """That nothing is missing with it.

        Raises:
            NotServed
        """
        self._follow(query)
        temporary = self._temporary_of(query)
        name = None
        if changes_rows(query):
            name = self._tables.mentioned(query.text, but=temporary)
        elif (made := filled(query)) is not None:
            name = self._tables.wanted(*made)
        if name is not None:
            raise NotServed(
                f"transaction {transaction} has a statement that changes rows, perhaps of table {name}, and the log "
                f"has not these rows: {' '.join(bare(query).split()[:3])} ...",
                "run SET GLOBAL binlog_format = 'ROW', and end the session that has set it otherwise",
            )
        self._check_cascades(query)

    def pass_over(self, query: Query) -> None:
        """One that was told by another server's log: what it did to tables holds here, too."""
        self._follow(query)
        if is_of_a_table(query) and self._tables.mentioned(query.text) is not None:
            self._tables.forget()

    def _check_cascades(self, query: Query) -> None:
        action, name = cascade(query.text), altered(query)
        ours = None if name is None else self._tables.wanted(*name)
        if action is not None and ours is not None and not self._tables.logs_cascades:
            # Perhaps it is gone again: what it did until then is missing.
            raise NotServed(cascading(ours, action), UNCASCADE)
        mentioned = self._tables.mentioned(query.text) if is_of_a_table(query) else None
        if mentioned is not None:
            # The log does not say all of what a table is like: the server is asked anew.
            self._tables.forget()
        if action is not None or mentioned is not None:
            self._tables.check_cascades()

    def _follow(self, query: Query) -> None:
        made = made_temporary(query)
        if made is not None:
            self._temporary.setdefault(query.session, set()).add(made)
        if query.session in self._temporary:
            self._temporary[query.session].difference_update(dropped(query))

    def _temporary_of(self, query: Query) -> set[Name]:
        return self._temporary.get(query.session, set()) if query.is_of_session else set()
