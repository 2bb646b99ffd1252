"""Which transactions the topic has, by their GTIDs: by these another server's log can take this one's place."""

from __future__ import annotations

from sinkpipeline.core.changes.binlog_values import NotServed
from sinkpipeline.core.changes.gtids import MOST_TEXT, Gtids
from sinkpipeline.core.changes.positions import noted


class Executed:
    """Of one stream."""

    def __init__(self, executed: Gtids | None, ahead: Gtids | None) -> None:
        """`executed`: all that was committed before; None: unknown. `ahead`: what of that comes once more."""
        self._executed, self._ahead = executed, ahead

    def noted(self, gtids: str, number: int, born: int | None) -> str:
        """What is noted of a place: with what `positions.noted` says of it."""
        ahead = "" if self._ahead is None or self._ahead.is_empty else str(self._ahead)
        executed = "" if self._executed is None else str(self._executed)
        if len(executed) > MOST_TEXT and not ahead:
            # It is not spelled again for each transaction.
            self._executed, executed = None, ""
        return noted(gtids, number, born, executed, ahead)

    def passes(self, gtid: str | None) -> bool:
        """Whether a transaction is in the topic, as another server had it before.

        Raises:
            NotServed
        """
        if self._ahead is None or self._ahead.is_empty:
            return False
        if gtid is None:
            raise NotServed(
                f"a transaction without a GTID stands before {self._ahead}: nothing tells whether it is in the topic, "
                "as that was read from another server",
                "name the former server if it is still there; else begin anew under another spec.identity",
            )
        return self._ahead.meet(gtid)

    def counts(self, gtid: str | None) -> None:
        """Behind this transaction it is one that was executed."""
        if self._executed is None:
            return
        if gtid is None:
            # No other server can tell whether it has it.
            self._executed = None
        else:
            self._executed.add(gtid)
