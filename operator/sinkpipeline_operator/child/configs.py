"""The ConfigMaps of run configurations: one for each hash, immutable, and what became of it in its annotations.

What a configuration led to stands beside it, so that an operator that starts anew knows which one ran last, and which
one a driver has refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sinkpipeline.core.foreign_json import parse_json
from sinkpipeline.core.manifest import ManifestError, SinkPipeline, parse_manifest
from sinkpipeline.core.status import timestamp
from sinkpipeline_operator.child.builder import HASH_LABEL, owned
from sinkpipeline_operator.child.runconfig import RunConfig
from sinkpipeline_operator.kube.client import CONFIG_MAP

FILE = "pipeline.json"
RAN_ANNOTATION = "sinkpipeline.io/ran"
"""Since when a driver of it was seen running."""
REFUSED_ANNOTATION = "sinkpipeline.io/refused"
"""What a driver said that refused it."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Exit code 2 of a driver."""

    reason: str
    message: str
    nonce: int | None
    """The `restartNonce` for which it was: another one tries again."""

    def to_json(self) -> str:
        return json.dumps({"reason": self.reason, "message": self.message, "nonce": self.nonce})


@dataclass(frozen=True, kw_only=True)
class Config:
    """One that is stored."""

    name: str
    uid: str
    hash: str
    ran: str | None
    refusal: Refusal | None
    text: str

    def pipeline(self, uid: str) -> SinkPipeline | None:
        """The manifest, as of the resource with that uid; None where this release can't read it any more."""
        try:
            document = parse_json(self.text)
            document["metadata"]["uid"] = uid
            return parse_manifest(document)
        except (ValueError, KeyError, TypeError, RecursionError, ManifestError):
            return None

    def is_of(self, run: RunConfig) -> bool:
        """Whether it holds the same document."""
        try:
            return bool(parse_json(self.text) == run.document)
        except ValueError:
            # Somebody has put another one in its place.
            return False

    def run(self) -> RunConfig:
        return RunConfig(document=parse_json(self.text), hash=self.hash)


def read(document: Mapping[str, Any]) -> Config | None:
    """None where it is none of these ConfigMaps."""
    meta = document["metadata"]
    found = (meta.get("labels") or {}).get(HASH_LABEL)
    text = (document.get("data") or {}).get(FILE)
    if found is None or text is None or "deletionTimestamp" in meta:
        return None
    annotations = meta.get("annotations") or {}
    return Config(
        name=meta["name"],
        uid=meta["uid"],
        hash=found,
        ran=annotations.get(RAN_ANNOTATION),
        refusal=_refusal(annotations.get(REFUSED_ANNOTATION)),
        text=text,
    )


def _refusal(text: str | None) -> Refusal | None:
    try:
        found = parse_json(text or "null")
        return None if found is None else Refusal(**{key: found[key] for key in ("reason", "message", "nonce")})
    except (ValueError, KeyError, TypeError):
        return None


def build(pipeline: SinkPipeline, run: RunConfig) -> dict[str, Any]:
    """The ConfigMap of a configuration."""
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": owned(pipeline, run.name(pipeline.metadata.name), {HASH_LABEL: run.hash}),
        "immutable": True,
        "data": {FILE: run.to_json()},
    }


def ran_patch(now_ms: int) -> dict[str, Any]:
    return {"metadata": {"annotations": {RAN_ANNOTATION: timestamp(now_ms), REFUSED_ANNOTATION: None}}}


def refused_patch(refusal: Refusal) -> dict[str, Any]:
    return {"metadata": {"annotations": {REFUSED_ANNOTATION: refusal.to_json()}}}


def last_that_ran(configs: Iterable[Config]) -> Config | None:
    ran = [each for each in configs if each.ran is not None and each.refusal is None]
    return max(ran, key=lambda each: (each.ran or "", each.hash), default=None)
