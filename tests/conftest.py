from __future__ import annotations

import os
from typing import TYPE_CHECKING

# A verdict on topics is confirmed soon, also by commands and drivers: read where the product is imported.
os.environ.setdefault("SINKPIPELINE_LOOK_AGAIN_S", "0.2")

import pytest
from hypothesis import settings

from servers.local_kafka import LocalKafka
from servers.nats import LocalNats
from servers.postgresql import LocalPostgresql, bin_directory
from servers.redis import LocalRedis, program
from servers.schema_registry import LocalRegistry
from support.runs.costs import Measuring, Telling
from support.runs.ending import Counting, Until
from support.runs.failing import AtOnce
from support.runs.keeper import KEEPER, Ending
from support.runs.sharing import Sharing
from support.runs.stages import STAGES, Choosing

if TYPE_CHECKING:
    from support.worlds.secure import SecureKafka

# How long an example takes says more about the machine than about the code.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FILE", help="keep what each test cost as JSON")
    parser.addoption("--minutes", type=float, metavar="N", help="begin no test later than N minutes after the start")
    parser.addoption("--stage", choices=STAGES, help="those of one stage (tests/support/runs/stages.py); default: all")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Measuring(config))
    config.pluginmanager.register(Ending())
    config.pluginmanager.register(Choosing(config.getoption("stage")))
    if (minutes := config.getoption("minutes")) is not None:
        config.pluginmanager.register(Until(minutes))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Telling(config))
        config.pluginmanager.register(AtOnce(config))
        config.pluginmanager.register(Counting())
        config.pluginmanager.register(Sharing())


@pytest.fixture(scope="module")
def kafka() -> LocalKafka:
    """One broker that all tests in a row share: they keep apart by the names of their topics and groups."""
    return KEEPER.get("kafka", LocalKafka)


@pytest.fixture(scope="module")
def nats() -> LocalNats:
    """One server that all tests in a row share: they keep apart by their streams."""
    return KEEPER.get("nats", LocalNats)


@pytest.fixture(scope="module")
def postgresql() -> LocalPostgresql:
    """One server that all tests in a row share: they keep apart by their schemas and tables."""
    if bin_directory() is None:
        pytest.skip("no PostgreSQL server: make postgresql")
    return KEEPER.get("postgresql", LocalPostgresql)


@pytest.fixture(scope="module")
def valkey() -> LocalRedis:
    """One server that all tests in a row share: they keep apart by their streams."""
    if program() is None:
        pytest.skip("no Valkey server: make install")
    return KEEPER.get("valkey", LocalRedis)


@pytest.fixture(scope="module")
def registry() -> LocalRegistry:
    """One schema registry, shared likewise: tests keep apart by the names of their subjects and records."""
    return KEEPER.get("registry", LocalRegistry)


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> SecureKafka:
    """One broker that asks who we are and what we may do, shared likewise; with users of each test's own."""
    from support.worlds.secure import SecureKafka  # noqa: PLC0415 - what makes certificates loads slowly

    return KEEPER.get("secure_kafka", lambda: SecureKafka(tmp_path_factory.mktemp("secure")))
