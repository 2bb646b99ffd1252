"""A stage by TLS and a password, as pods have their files: its stream, its rows, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from servers.local_kafka import LocalKafka
from servers.postgresql import LocalPostgresql
from sinkpipeline.core.errors import Reason
from sinkpipeline.core.tls import Tls
from support.changes.lab import LOGICAL, Lab

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.thorough("a server of its own; tests/postgresql/test_tls has the same settings in make test"),
]

PASSWORD = r"a 'b\\c\" é"
CA = trustme.CA()


@pytest.fixture
def lab(kafka: LocalKafka, tmp_path: Path) -> Iterator[Lab]:
    """Of a server that lets the role `asked` in by TLS and its password alone."""
    issued = CA.issue_cert("127.0.0.1")
    files = {
        "server.crt": b"".join(each.bytes() for each in issued.cert_chain_pems),
        "server.key": issued.private_key_pem.bytes(),
    }
    settings = {**LOGICAL, "ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
    hba = "hostssl all asked 127.0.0.1/32 scram-sha-256"
    with LocalPostgresql(settings=settings, hba=hba, files=files) as server:
        found = Lab(server, kafka.bootstrap_servers, tmp_path / "lab")
        quoted = PASSWORD.replace("'", "''")
        found.sql(
            f"CREATE ROLE asked LOGIN REPLICATION PASSWORD '{quoted}'",
            "CREATE TABLE orders (id bigint PRIMARY KEY)",
            "INSERT INTO orders SELECT generate_series(1, 100)",
            "GRANT SELECT ON orders TO asked",
            f"CREATE PUBLICATION {found.name} FOR TABLE orders",
        )
        yield found
        found.close()


def test_it_streams_and_reads_rows_by_tls_and_a_password(lab: Lab, tmp_path: Path) -> None:
    for name, content in {"ca": CA.cert_pem.bytes(), "password": PASSWORD.encode(), "wrong": b"wrong"}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "other").write_bytes(trustme.CA().cert_pem.bytes())
    trusted = replace(
        lab.settings().postgresql.connection,
        user="asked",
        password_file=str(tmp_path / "password"),
        tls=Tls(ca_file=str(tmp_path / "ca")),
    )

    def by(**changed: Any) -> dict[str, Any]:
        return {"snapshot": True, "connection": replace(trusted, **changed)}

    others = ({"password_file": str(tmp_path / "wrong")}, {"tls": None}, {"tls": Tls(ca_file=str(tmp_path / "other"))})
    for each in others:
        error = lab.refusal(database=by(**each))
        assert error.reason is Reason.AUTHENTICATION_FAILED
        assert PASSWORD not in str(error)
    lab.live(database=by())
    lab.watch()
    lab.sql("INSERT INTO orders SELECT generate_series(101, 120)", "DELETE FROM orders WHERE id = 5")
    lab.live(database=by())
    assert [each.told.op for each in lab.found()].count("r") == 100
    assert [each.told.op for each in lab.found()].count("c") == 20
    assert [each.told.op for each in lab.found()].count("d") == 1
