"""Sinks that are streams of Redis in manifests: allowed and wrong."""

from __future__ import annotations

from typing import Any

_SINK = ("spec", "sinks", 0)
_AT = "spec.sinks[0].redis"
_SECRET = {"name": "s", "key": "k"}


def stream(
    name: str = "copy", key: str = "orders", *, select: dict[str, Any] | None = None, **redis: Any
) -> dict[str, Any]:
    """`redis` are fields of it, `maxlen` one of its stream."""
    maxlen = {} if "maxlen" not in redis else {"maxlen": redis.pop("maxlen")}
    return {
        "name": name,
        **({} if select is None else {"transform": {"select": select}}),
        "redis": {"servers": "redis:6379", "stream": {"key": key, **maxlen}, **redis},
    }


_SENTINEL: dict[str, Any] = {"mode": "Sentinel", "servers": "a:1,b:2,c:3", "sentinel": {"masterName": "my-shop.1"}}


def asked_as(auth: dict[str, Any]) -> dict[str, Any]:
    """Of the sentinels."""
    return {**_SENTINEL, "sentinel": {"masterName": "m", "auth": auth}}


ALLOWED: list[tuple[Any, Any]] = [
    (_SINK, stream()),
    (_SINK, stream(key="{shop}:orders", maxlen=1_000_000, database=3)),
    (_SINK, stream(select={"key": "key", "value": "value", "headers": "headers"})),
    (_SINK, stream(acknowledge={"replicas": 2, "fsync": True})),
    (_SINK, {**stream(), "deliveryGuarantee": "AtLeastOnce"}),
    (_SINK, stream(auth={"username": "u", "passwordSecretRef": _SECRET, "tls": {"caSecretRef": _SECRET}})),
    (_SINK, stream(auth={"passwordSecretRef": _SECRET})),
    (_SINK, stream(**_SENTINEL)),
    (_SINK, stream(**asked_as({"username": "u", "passwordSecretRef": _SECRET}))),
    (_SINK, stream(mode="Cluster", servers="a:1,b:2", database=0)),
    (_SINK, stream(mode="Standalone")),
    (("spec", "sinks"), [stream("a", **_SENTINEL), stream("b", **{**_SENTINEL, "sentinel": {"masterName": "other"}})]),
    (("spec", "sinks"), [stream("a"), stream("b", key="refunds"), stream("c", database=1)]),
]
WRONG: list[tuple[Any, Any, str, str]] = [
    *(
        (_SINK, stream(select={each: "value"}), f"spec.sinks[0].transform.select.{each}", "no meaning for a redis sink")
        for each in ("subject", "timestamp", "partition")
    ),
    *(
        (_SINK, stream(key=each), f"{_AT}.stream.key", "hash tag")
        for each in ("a b", "{a", "a}", "{}a", "{a}{b}", "a}{b", "{a{b}}")
    ),
    (_SINK, stream(maxlen=0), f"{_AT}.stream.maxlen", "1"),
    (_SINK, stream(database=-1), f"{_AT}.database", "0"),
    (_SINK, stream(servers="a:1,b:2"), f"{_AT}.servers", "the one server"),
    (_SINK, stream(mode="Sentinel"), f"{_AT}.sentinel", "masterName"),
    (_SINK, stream(mode="Cluster", sentinel={"masterName": "m"}), f"{_AT}.sentinel", "mode: Sentinel"),
    (_SINK, stream(sentinel={"masterName": "m"}), f"{_AT}.sentinel", "mode: Sentinel"),
    (_SINK, stream(mode="Sentinel", sentinel={"masterName": "a b"}), f"{_AT}.sentinel.masterName", "name of a master"),
    (_SINK, stream(mode="Sentinel", sentinel={}), f"{_AT}.sentinel.masterName", ""),
    (_SINK, stream(**asked_as({"username": "u"})), f"{_AT}.sentinel.auth.passwordSecretRef", ""),
    (_SINK, stream(mode="Cluster", database=1), f"{_AT}.database", "database 0"),
    (_SINK, stream(mode="Other"), f"{_AT}.mode", "Standalone"),
    (
        ("spec", "sinks"),
        [stream("a", **_SENTINEL), stream("b", **_SENTINEL)],
        "spec.sinks[1].redis.stream.key",
        'the stream of sink "a" too',
    ),
    (_SINK, stream(servers="a"), f"{_AT}.servers", ":"),
    (_SINK, stream(acknowledge={"replicas": 17}), f"{_AT}.acknowledge.replicas", "16"),
    (_SINK, stream(auth={"username": "u"}), f"{_AT}.auth.username", "passwordSecretRef"),
    (("spec", "sinks"), [stream("a"), stream("b")], "spec.sinks[1].redis.stream.key", 'the stream of sink "a" too'),
]
