"""Debian's Redis, 7.0 in Debian 12: the oldest that is served keeps to what every kind of sink does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance import test_every_kind as suite
from servers.redis import LocalRedis, program
from servers.sql_proxy import SqlProxy
from sinkpipeline.core.errors import Reason
from sinkpipeline.redis_streams.settings import Acknowledge, Connection
from support.conformance.kind import World
from support.conformance.of_redis import RedisWorld
from support.runs.keeper import KEEPER
from support.sink.redis_sink import RedisSink
from support.sink.starts import refusal

PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
pytestmark = [
    pytest.mark.skipif(program("debian") is None, reason="no old Redis server: make redis-old"),
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.thorough("the oldest server that is served"),
]


@pytest.fixture(scope="module")
def debian() -> LocalRedis:
    return KEEPER.get("debian", lambda: LocalRedis("debian"))


@pytest.fixture
def world(debian: LocalRedis, request: pytest.FixtureRequest) -> Iterator[World]:
    """That server, behind a proxy."""
    with ExitStack() as stack:
        proxy = stack.enter_context(SqlProxy(debian.port))
        yield RedisWorld(debian, proxy, lambda: request.getfixturevalue("kafka"), stack)


CASES: dict[str, Callable[[World, Path], None]] = {
    **{
        f"killed at {point}": lambda world, path, point=point: suite.test_a_kill_at_each_point(world, path, point)
        for point in ("redis-before-commit", "redis-after-commit")
    },
    "two writers": lambda world, _: suite.test_two_writers_that_take_the_sink_from_each_other(world),
    "a late writer": lambda world, _: suite.test_a_late_writer_of_an_older_driver_writes_nothing_more(world),
    "a lost answer": lambda world, _: suite.test_a_commit_that_is_lost_or_its_answer(world, True),
    "a lost request": lambda world, _: suite.test_a_commit_that_is_lost_or_its_answer(world, False),
    "a killed server": lambda world, _: suite.test_the_server_is_killed_and_comes_back(world),
    "a deleted stream": lambda world, _: suite.test_a_target_that_is_deleted(world, False),
    "a stream that is made again": lambda world, _: suite.test_a_target_that_is_deleted(world, True),
    "an emptied stream": lambda world, _: suite.test_a_target_that_is_emptied_is_its_owner_s_own(world),
    "a full server": lambda world, _: suite.test_a_target_that_is_full_is_waited_for(world, None),
    "refused rows": lambda world, _: suite.test_rows_that_the_server_refuses_are_dead_letters_and_the_others_arrive(
        world, {4}
    ),
    "a reset": lambda world, _: suite.test_a_reset_under_a_running_driver(world),
    "many partitions": lambda world, _: suite.test_none_one_and_many_partitions(world, 1_500),
}


@pytest.mark.parametrize("case", CASES)
def test_what_every_kind_keeps_to(world: World, tmp_path: Path, case: str) -> None:
    CASES[case](world, tmp_path)


def test_what_only_newer_servers_can_is_refused(debian: LocalRedis) -> None:
    sink = RedisSink(debian.address)
    if sink.run("INFO", "server")["redis_version"] >= "7.2":
        pytest.skip("this Debian has a newer one")
    sink.changes = {"connection": Connection(server=debian.address, acknowledge=Acknowledge(fsync=True))}
    assert "without WAITAOF" in str(refusal(sink.driver, Reason.SINK_REFUSED))
    sink.close()


def test_a_user_that_may_do_what_the_page_says(debian: LocalRedis, tmp_path: Path) -> None:
    """But for what it does not know."""
    [rule] = re.findall(r"^ACL SETUSER sinkpipeline (.*)$", PAGE.read_text(), re.MULTILINE)
    sink = RedisSink(debian.address)
    words = rule.replace("PASSWORD", "secret").replace("orders", sink.name).replace(" +waitaof", "").split()
    sink.run("ACL", "SETUSER", sink.name, *words)
    (tmp_path / "password").write_text("secret")
    connection = Connection(server=debian.address, user=sink.name, password_file=str(tmp_path / "password"))
    sink.changes = {"connection": connection}
    sink.driver().drain()
    assert sink.delivered() == sink.once
    sink.close()
