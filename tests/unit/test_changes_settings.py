from __future__ import annotations

from pathlib import Path

import pytest

from sinkpipeline.changes.settings import DatabaseSettings, Publication, Slot, StageSettings, read, to_json
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.naming import SinkId, SourcePartition
from sinkpipeline.core.progress import Owner
from sinkpipeline.core.progress_topic import progress_request
from sinkpipeline.core.tls import Tls
from sinkpipeline.core.topics import TopicRequest
from sinkpipeline.kafka.connection import Connection, MskIam, Oauthbearer, Sasl, SaslLogIn
from sinkpipeline.kafka.settings import DeadLetterSettings
from sinkpipeline.postgresql.settings import Connection as Database

LOG_INS: list[SaslLogIn | None] = [
    None,
    Sasl(mechanism="SCRAM-SHA-512", username="u", password_file="/p"),
    Oauthbearer(
        token_endpoint_url="https://i", client_id="c", client_secret_file="/c", extensions=(("logicalCluster", "x"),)
    ),
    MskIam(region="eu-west-1"),
]


def settings(log_in: SaslLogIn | None = None) -> StageSettings:
    return StageSettings(
        id=SinkId("shop", "changes"),
        owner=Owner(cluster="file", name="shop"),
        run="run-1",
        takes_over=True,
        kafka=Connection(bootstrap_servers="b:9092", tls=Tls(ca_file="/ca"), sasl=log_in),
        topic=TopicRequest(name="shop-changes", partitions=6, config={"retention.ms": "1"}),
        progress=progress_request("_progress", 3),
        database=DatabaseSettings(
            connection=Database(servers="pg:5432", database="shop", user="cdc", password_file="/p", tls=Tls()),
            publication=Publication(name="shop", tables=("public.orders",)),
            slot=Slot(name="sinkpipeline_shop"),
        ),
        dead_letter=DeadLetterSettings(topic=TopicRequest(name="shop-dead")),
        properties={"compression.type": "zstd"},
    )


@pytest.mark.parametrize("log_in", LOG_INS, ids=["none", "sasl", "oauthbearer", "msk"])
def test_settings_go_through_a_file(log_in: SaslLogIn | None, tmp_path: Path) -> None:
    path = tmp_path / "stage.json"
    path.write_bytes(to_json(settings(log_in)))

    assert read(path) == settings(log_in)
    assert read(path).database.partition == SourcePartition("postgresql", 0)


@pytest.mark.parametrize("text", ["", "{}", '{"id": 1}', "[]"])
def test_a_file_of_another_release_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "stage.json"
    path.write_text(text)

    with pytest.raises(SinkPipelineError, match=r"stage\.json are none of this release") as refused:
        read(path)
    assert refused.value.reason is Reason.USAGE_INVALID


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(SinkPipelineError, match="can't be read: No such file"):
        read(tmp_path / "none.json")
