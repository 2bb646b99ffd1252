"""What a redrive of a sink of cells writes: rows into its store, from letters in a topic of the source's cluster.

    rows of letters that count ─┐
    cells of these letters ─────┼─► one commit of the store ─► redrive record in the dead-letter topic
    cell of the redrive ────────┘

A kill in between leaves the redrive's cell, and whoever redrives next writes the record of it first. Letters that fail
again are acknowledged before the commit, as those of a batch are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from sinkpipeline.cells.lettered import Counting, Fates, LetteredRecords
from sinkpipeline.cells.letters import Count
from sinkpipeline.cells.redriving import RedriveSession, Settled, settled_by_another, take
from sinkpipeline.cells.sending import RowIds, numbered
from sinkpipeline.cells.session import passing_outages
from sinkpipeline.cells.store import Cells, Puts, Version
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.order import is_before
from sinkpipeline.core.ports import RecordRefused
from sinkpipeline.core.redrive import Letter, Outcome, RedriveRecord, Span, spans_of
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.producers import TransactionalProducer
from sinkpipeline.kafka.redrive_writer import UNCOUNTED, Doubt, RedriveWriter
from sinkpipeline.sinks.failpoints import failpoint
from sinkpipeline.sinks.letters import LettersElsewhere


class CellRedriveWriter(RedriveWriter):
    """Its own session is one of the store; a producer beside it holds the partition of the letters."""

    def __init__(
        self,
        *args: Any,
        cells: Cells,
        records: LetteredRecords,
        target_id: Callable[[], str | None],
        **more: Any,
    ) -> None:
        """`records`: every letter that was read, or is noted. Else as of a `RedriveWriter`."""
        self._cells = cells
        self._lettered = records
        self._id_of_target = target_id
        self._producer: TransactionalProducer | None = None
        self._counting: dict[int, Counting] = {}
        """Of each letter of the chunk that counts, the cell that says so."""
        self._repeated: frozenset[int] = frozenset()
        super().__init__(*args, **more)

    @override
    def sift(self, chunk: Sequence[Letter]) -> tuple[Sequence[Letter], Sequence[Letter]]:
        found: list[Fates] = []

        def look() -> None:
            with passing_outages():
                found.append(self._lettered.fates(self._cells, [each.id for each in chunk]))

        self._guard(look)
        fates = found[-1]
        self._counting = {each.offset: cell for each, cell in fates.counting.items()}
        self._repeated = frozenset(each.offset for each in fates.repeated)
        self.tally[UNCOUNTED] += len(fates.uncounted)
        return (
            [each for each in chunk if each.id not in fates.uncounted],
            [each for each in chunk if each.id in fates.counting],
        )

    @override
    def _claim(self) -> None:
        super()._claim()
        self._look_at_cells_again()

    def _look_at_cells_again(self) -> None:
        """Of what is left of the chunk, once the partition is ours again.

        A version that was read on another connection may mean nothing: with it no commit would ever come through.

        Raises:
            SinkPipelineError: Superseded.
        """
        rest = (each.id for each in self._chunk if not is_before(each.id.offset, self._state.next))
        left = [each for each in rest if each.offset in self._counting]
        if not left:
            return
        with passing_outages():
            counting = self._lettered.fates(self._cells, left).counting
        gone = [each for each in left if each not in counting]
        if gone:
            raise settled_by_another(str(gone[0]))
        self._counting.update((each.offset, cell) for each, cell in counting.items())

    @override
    def _outcomes(self, offsets: Sequence[int]) -> dict[int, Outcome]:
        found = super()._outcomes(offsets)
        return {at: Outcome.REPEATED if at in self._repeated else outcome for at, outcome in found.items()}

    @override
    def _commit(self, doubt: Doubt) -> None:
        self._begin()
        session = self._owned()
        if not isinstance(session, RedriveSession):
            raise TypeError("a redrive into a store of cells holds a cell of it")
        settled = spans_of(doubt.outcomes)
        failpoint("redrive-before-commit")
        self._doubt = doubt
        session.settle(self._mine(settled), self._cells_of(doubt.outcomes))
        failpoint("redrive-before-record")
        self._record(settled)
        failpoint("redrive-after-commit")

    def _cells_of(self, outcomes: Mapping[int, Outcome]) -> Puts:
        """What becomes of the cells of letters: of one that failed again the newer letter counts."""
        found: dict[str, tuple[bytes | None, Version]] = {}
        for offset in outcomes.keys() & self._counting.keys():
            cell = self._counting[offset]
            again = outcomes[offset] is Outcome.DEAD_LETTERED
            redrives = self.letter_at(offset).letter.redrives + 1
            found[cell.key] = (Count(redrives, cell.epoch).encode() if again else None), cell.version
        return found

    def _ids_of(self, offsets: Sequence[int]) -> Iterator[str | None]:
        """Those that the rows would have had if their records had been no letters.

        Of a letter that an earlier release has counted nobody knows the epoch: another record may have that id.
        """
        for offset, number in numbered(offsets):
            record, epoch = self.letter_at(offset).letter.record, self._counting[offset].epoch
            yield None if epoch is None else RowIds(self._sink, record.partition, epoch).one(record.offset, number)

    def _record(self, outcomes: Mapping[str, Iterable[Span]]) -> None:
        """Says in the topic what the store has committed.

        Raises:
            SinkPipelineError: DeadLetterFailed. No row is at fault, and none is tried again.
        """
        if self._producer is None:
            raise ValueError("a writer is not used after it was closed")
        self._producer.begin()
        try:
            self._producer.produce_rows(self._topic.name, self._saying(outcomes))
            self._producer.commit()
        except RecordRefused as refusal:
            raise SinkPipelineError(
                Reason.DEAD_LETTER_FAILED,
                f"{self._topic.name} refused what is to be written down of letters that were redriven: {refusal.text}",
                "correct its configuration, and redrive again, which first writes it down: nothing is delivered twice",
            ) from refusal
        settled = {outcome: tuple(each) for outcome, each in outcomes.items()}
        self._ledger.apply(RedriveRecord(sink=self._sink, topic_id=self._topic.id, run=self._plan.run, settled=settled))

    def _mine(self, outcomes: Mapping[str, tuple[Span, ...]]) -> Settled:
        return Settled(run=self._plan.run, topic=self._topic.id, outcomes=outcomes)

    @override
    def _properties(self) -> dict[str, str]:
        return {"message.max.bytes": str(self._plan.letter_limits.message_bytes)}

    @override
    def _hold_id(self, producer: TransactionalProducer) -> None:
        self._producer = producer

    @override
    def _claim_target(self) -> None:
        """What was committed, and is not in the topic yet, is written there first: our own commits replace it."""
        elsewhere = self._plan.kind
        if not isinstance(elsewhere, LettersElsewhere):
            raise TypeError("a store of cells holds no dead letters")
        letters = elsewhere.letters_of(self._plan, self._partition, self._worker)
        session = take(self._cells, self._sink, self._partition, self._mine({}), letters)
        if not self._plan.settings.exactly_once:
            # Its readers, or the server, tell rows that come twice by their ids: so also one that a run delivers too.
            session.ids_of = self._ids_of
        self._session = session
        found = session.found
        if found is None or found.topic != self._topic.id:
            return
        with passing_outages():
            left = self._lettered.not_told(self._cells, self._number, self._ledger, found.outcomes)
        if left:
            self._record(left)

    @override
    def _came_through(self, doubt: Doubt) -> bool:
        """All of it or nothing, unless a server has lost its end: then some of the letters' cells may be left."""
        pending = [at for at in doubt.outcomes if self._ledger.outcome(self._sink, at) is None]
        if 0 < len(pending) < len(doubt.outcomes):
            raise SinkPipelineError(
                Reason.TRANSACTION_FAILED,
                f"{self._partition}: {len(pending)} of {len(doubt.outcomes)} letters are pending again, as the server "
                "has lost the end of the commit that redrove them",
                self._again,
            )
        return not pending

    @override
    def _target_id(self, data: TopicRequest) -> str | None:
        return self._id_of_target()

    @override
    def _abort(self) -> None:
        """A sentinel may be refused before the store was taken."""
        if self._session is not None:
            super()._abort()

    @override
    def _go_on(self) -> None:
        """Nothing was committed, and both claims are ours still."""
        self._doubt = None
        self._start_over()

    @override
    def _give_up(self) -> None:
        super()._give_up()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
