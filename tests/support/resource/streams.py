"""Sinks that are streams of NATS in manifests: allowed, wrong, and changed."""

from __future__ import annotations

from typing import Any

_SINK = ("spec", "sinks", 0)
_AT = "spec.sinks[0].nats"
_SECRET = {"name": "s", "key": "k"}


def stream(name: str = "copy", *, select: dict[str, Any] | None = None, **nats: Any) -> dict[str, Any]:
    """`nats` are fields of it, `of_stream` those of its stream; None leaves one out."""
    of_stream = {"name": "ORDERS", **nats.pop("of_stream", {})}
    found = {"servers": "nats:4222", "stream": of_stream, "subject": "orders.all", **nats}
    return {
        "name": name,
        **({} if select is None else {"transform": {"select": select}}),
        "nats": {field: value for field, value in found.items() if value is not None},
    }


ALLOWED: list[tuple[Any, Any]] = [
    (_SINK, stream()),
    (_SINK, stream(select={"value": "value", "headers": "headers", "subject": "CAST(key AS STRING)"})),
    (
        _SINK,
        stream(select={"subject": "CAST(key AS STRING)"}, subject=None, of_stream={"subjects": ["orders.>", "a.*"]}),
    ),
    (_SINK, stream(of_stream={"replicas": 3, "maxAge": "168h", "maxBytes": 1}, progressSubject="p.q")),
    (_SINK, {**stream(of_stream={"duplicateWindow": "10m"}), "deliveryGuarantee": "AtLeastOnce"}),
    (_SINK, stream(auth={"username": "u", "passwordSecretRef": _SECRET, "tls": {"caSecretRef": _SECRET}})),
    *((_SINK, stream(auth={f"{each}SecretRef": _SECRET})) for each in ("token", "nkey", "creds")),
    (("spec", "sinks"), [stream("a"), stream("b", of_stream={"name": "OTHER"}), stream("c", servers="other:4222")]),
]
WRONG: list[tuple[Any, Any, str, str]] = [
    (
        _SINK,
        stream(of_stream={"maxAge": "1m", "duplicateWindow": "2m"}),
        f"{_AT}.stream.duplicateWindow",
        "longer than messages are kept",
    ),
    *(
        (_SINK, stream(select={each: "value"}), f"spec.sinks[0].transform.select.{each}", "no meaning for a nats sink")
        for each in ("key", "timestamp", "partition")
    ),
    (_SINK, stream(subject=None, of_stream={"subjects": ["a.>"]}), f"{_AT}.subject", "transform.select.subject"),
    (_SINK, stream(subject=None, select={"subject": "'a'"}), f"{_AT}.subject", "give subject, or stream.subjects"),
    *(
        (_SINK, stream(subject=each), f"{_AT}.subject", "without wildcards")
        for each in ("orders.*", "orders.>", "a b", "a..b", ".a", "a.")
    ),
    (_SINK, stream(subject="_sinkpipeline.v1"), f"{_AT}.subject", "one of the progress"),
    (_SINK, stream(of_stream={"name": "a.b"}), f"{_AT}.stream.name", "as the name of a stream"),
    (_SINK, stream(of_stream={"subjects": ["a.>.b"]}), f"{_AT}.stream.subjects[0]", "may have wildcards"),
    (_SINK, stream(of_stream={"replicas": 6}), f"{_AT}.stream.replicas", "5"),
    (_SINK, stream(of_stream={"maxAge": "0s"}), f"{_AT}.stream.maxAge", "longer than 0s"),
    (_SINK, stream(auth={"username": "u"}), f"{_AT}.auth.username", "together"),
    (
        _SINK,
        stream(auth={"tokenSecretRef": _SECRET, "nkeySecretRef": _SECRET}),
        f"{_AT}.auth.nkeySecretRef",
        "give one of them",
    ),
    (("spec", "sinks"), [stream("a"), stream("b")], "spec.sinks[1].nats.stream.name", 'the stream of sink "a" too'),
]
