"""A client that asks for tokens in a thread of its own, and is found by the garbage collector in that thread."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

LOSES_IT_IN_ITS_OWN_CALLBACK = dedent(
    """
    import gc, sys, time
    import psutil
    from types import ModuleType

    LIFE_S = 1.0  # a client renews a token when four fifths are over
    asked = []

    def generate_auth_token(region):
        asked.append(region)
        if len(asked) > 1:
            gc.collect()
        return "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", int((time.time() + LIFE_S) * 1000)

    parts = {
        "aws_msk_iam_sasl_signer": {},
        "aws_msk_iam_sasl_signer.MSKAuthTokenProvider": {"generate_auth_token": generate_auth_token},
        "botocore": {},
        "botocore.exceptions": {"HTTPClientError": OSError},
    }
    for name, contents in parts.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(contents)

    from sinkpipeline.kafka.admin import Admin
    from sinkpipeline.kafka.connection import Connection, MskIam
    from sinkpipeline.kafka.consumers import make_consumer
    from sinkpipeline.kafka import ending
    from sinkpipeline.kafka.producers import PlainProducer

    class Interrupted(ending.SimpleQueue):
        def put(self, client):
            super().put(client)
            time.sleep(0.1)  # The other thread goes on before the collector, which has not let go yet.

    ending._ended = Interrupted()
    connection = Connection(bootstrap_servers="127.0.0.1:1", sasl=MskIam(region="eu-central-1"))
    gc.disable()
    ending.make_sure_of_the_thread()
    threads = psutil.Process().num_threads()
    make = {"Admin": Admin, "Consumer": lambda each: make_consumer(each, "group"), "Producer": PlainProducer}
    cycle = [make[sys.argv[1]](connection)]
    cycle.append(cycle)
    del cycle
    deadline = time.monotonic() + 60
    while (len(asked) <= 1 or psutil.Process().num_threads() > threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    print(len(asked) > 1, psutil.Process().num_threads() - threads)
    """
)


@pytest.mark.parametrize("kind", ["Admin", "Consumer", "Producer"])
def test_a_client_is_not_destroyed_in_its_own_thread(kind: str) -> None:
    """There librdkafka ends the process."""
    ran = subprocess.run(
        [sys.executable, "-c", LOSES_IT_IN_ITS_OWN_CALLBACK, kind], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.split()) == (0, ["True", "0"]), ran.stderr
