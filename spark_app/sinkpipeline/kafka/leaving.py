"""How a producer is destroyed: not while it has requests on their way.

The client (librdkafka 2.16) is not made for an answer that comes while it is destroyed. It ends the process then: by
"double free or corruption", where the answer says that the transaction was fenced (`rd_kafka_txns_term` has freed what
the answer's handler frees again), or by an assertion, where it is just adding a partition to the transaction
(`txn_req_cnt`). So what is queued is dropped, what is on its way is waited for, and where that takes long, the producer
is kept until each of its requests has timed out.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from collections import deque

from confluent_kafka import KafkaException, Producer

from sinkpipeline.kafka.connection import SOCKET_TIMEOUT_MS
from sinkpipeline.kafka.errors import error_of

_QUIET_S = 0.5
"""How long it is waited for. A broker that answers at all does so within milliseconds."""

_STEP_S = 0.005
_KEPT_S = SOCKET_TIMEOUT_MS / 1000 + 10.0
"""Longer than a request may go without an answer."""

_lock = threading.Lock()
_kept: deque[tuple[float, Producer]] = deque()
"""Producers with requests on their way, and when each may be destroyed."""


def leave(producer: Producer, *, in_transaction: bool) -> None:
    """Gives a producer up, soon. The caller drops it too, without which it lives on.

    Args:
        producer: is not used any more.
        in_transaction: whether a transaction may be open. It is aborted if that can be done soon.
    """
    try:
        is_quiet = not in_transaction or _aborts(producer)
        # Not what is on its way: of that the client would forget the rows, and then nobody sees when it is answered.
        producer.purge(in_queue=True, in_flight=False, blocking=True)
        is_quiet = _is_empty(producer) and is_quiet
    except (KafkaException, SystemError):
        # A producer that has failed for good says so wherever it calls back, perhaps in the middle of something.
        is_quiet = False
    now = time.monotonic()
    done = []
    if not is_quiet:
        # Its rows are not sent again. The answers to those that were sent still come, and find it alive.
        # confluent-kafka takes `blocking` the wrong way round, and holds the interpreter while it waits for the threads
        # of all brokers, of which one may be asking a name server.
        producer.purge(in_queue=True, in_flight=True, blocking=True)
    with _lock:
        if not is_quiet:
            _kept.append((now + _KEPT_S, producer))
        while _kept and _kept[0][0] < now:
            done.append(_kept.popleft())
    # Here they are destroyed, which takes a moment.
    done.clear()


@atexit.register
def _outlive_the_interpreter() -> None:
    """What is kept as the interpreter ends would be destroyed with this module, its requests still on their way."""
    with _lock:
        for _, producer in _kept:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(producer))


def _aborts(producer: Producer) -> bool:
    """Whether no request of a transaction is on its way, nor will be."""
    try:
        producer.abort_transaction(_QUIET_S)
    except KafkaException as exception:
        # Any other error: there is nothing to abort, or it failed for good. Then it asks for nothing more.
        return not error_of(exception).retriable()
    return True


def _is_empty(producer: Producer) -> bool:
    deadline = time.monotonic() + _QUIET_S
    while len(producer) and time.monotonic() < deadline:
        producer.poll(_STEP_S)
    return not len(producer)
