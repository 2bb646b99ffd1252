"""One life of a stage: it takes its source, goes on behind what counts, and leaves at the first trouble.

    Kafka's id ──► progress ──► look at the server ──► slot ──► changes, dead letters, progress: one transaction
                                    │ ▲                  ▲                                          │
                                    ▼ │                  └─────────── confirm, only then ◄──────────┘
                              a snapshot, if asked for

Nothing is ever undone at the database, and no outcome is guessed: whoever lives next fences, and reads the truth.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing

from sinkpipeline.changes import kinds
from sinkpipeline.changes.claim import Claim
from sinkpipeline.changes.incremental import IncrementalLife
from sinkpipeline.changes.life import Life
from sinkpipeline.changes.ports import Kind, Parts, at
from sinkpipeline.changes.receipts import Receipts
from sinkpipeline.changes.settings import StageSettings
from sinkpipeline.changes.snapshot import Snapshot
from sinkpipeline.core.changes import incremental
from sinkpipeline.core.deadletter import ErrorClass
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.ports import Fenced, InDoubt, RecordRefused
from sinkpipeline.core.progress import PartitionProgress
from sinkpipeline.sinks.failpoints import failpoint


class Stage:
    """Of one thread. `run` is one life."""

    def __init__(self, settings: StageSettings, say: Receipts, stop: threading.Event) -> None:
        self._settings = settings
        self._say = say
        self._stop = stop

    def run(self) -> None:
        """Lives until `stop` is set.

        Raises:
            SinkPipelineError: whatever ends it.
        """
        claim = Claim(self._settings)
        try:
            self._live(claim)
        except Fenced as fence:
            # A newer driver, or the broker, as we were slow: `meta` tells which.
            claim.check_ours()
            raise SinkPipelineError(
                Reason.TRANSACTION_FAILED,
                f"{self._settings.id}: another stage of this driver, or the broker's time-out, took {fence}",
                "nothing if it happens only once; otherwise look for a second user of this transactional id",
            ) from fence
        except InDoubt as doubt:
            raise doubt.told or SinkPipelineError(
                Reason.TRANSACTION_FAILED, f"{self._settings.id}: {doubt}", "look at the broker's log"
            ) from doubt
        except RecordRefused as refusal:
            raise self._refused(refusal) from refusal

    def _live(self, claim: Claim) -> None:
        began = time.monotonic()
        kind = kinds.of(self._settings.database)
        with closing(claim.take()) as claimed, closing(kind.connect(self._settings.database)) as reader:
            started = kind.begin(self._settings, claim, claimed, reader)

            def has_claimed(state: PartitionProgress) -> None:
                self._say(
                    "claimed",
                    run=self._settings.run,
                    position=at(state).to_record()[:2],
                    next=state.next,
                    rows=state.rows,
                    dead=state.dead,
                    dropped=state.dropped,
                    timeline=started.timeline,
                    seconds=round(time.monotonic() - began, 3),
                    snapshot=None if state.snapshot is None else {"epoch": state.epoch},
                    incrementalSnapshot=incremental.told(state.incremental),
                )

            parts = Parts(self._settings, claim, claimed, reader, self._say)
            state = started.streams
            is_streaming = state is not None
            if state is None:
                state = Snapshot(kind, parts, started, has_claimed).run(self._stop)
                if state is None:
                    return
            reader.hold()
            kind.check(reader, started, state)
            if is_streaming:
                has_claimed(state)
            failpoint("stage-after-slot")
            with closing(self._life(kind, parts, state)) as life:
                life.go_on(self._stop, lambda: claim.check_topics(claimed))

    def _life(self, kind: Kind, parts: Parts, state: PartitionProgress) -> Life:
        if state.incremental is not None:
            return IncrementalLife(kind, parts, state)
        return Life(self._settings, parts.claimed, parts.reader, state, self._say)

    def _refused(self, refusal: RecordRefused) -> SinkPipelineError:
        fact = f"{self._settings.id}: {refusal.topic or 'Kafka'} refuses a record: {refusal.text}"
        if refusal.verdict.error_class is ErrorClass.RECORD_TOO_LARGE:
            # Somebody lowered the limit: the next life knows it, and finds the change.
            return SinkPipelineError(
                Reason.TRANSACTION_FAILED, fact, "nothing; the stage reads the topic's limits anew"
            )
        return SinkPipelineError(Reason.RECORD_REFUSED, fact, "look at the topic's configuration, and the brokers' log")
