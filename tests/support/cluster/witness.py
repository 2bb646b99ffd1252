"""A second operator, which no test restarts: whether one outlives the tokens that it began with."""

from __future__ import annotations

from typing import Final

from support.cluster.installed import TOKEN_S, Installation, Pipeline
from support.waiting import wait_until

NAMESPACE: Final = "witness"
_RELEASE: Final = "witness"
_LABELS: Final = {"e2e": "witness"}


def install(installed: Installation) -> None:
    """A release of its own, which serves only pipelines with a label of its own, and starts none."""
    [(key, value)] = _LABELS.items()
    installed.type(
        f"helm uninstall {_RELEASE} --namespace {NAMESPACE} --ignore-not-found --wait\n"
        f"helm install {_RELEASE} charts/sinkpipeline-operator --namespace {NAMESPACE} --create-namespace"
        " --set image.repository=$REGISTRY/sinkpipeline-operator"
        " --set spark.image.repository=$REGISTRY/sinkpipeline-spark"
        f" --set kafkaAccess=false --set selector={key}={value}"
    )
    installed.shorten_tokens(TOKEN_S, f"{_RELEASE}-sinkpipeline-operator", NAMESPACE)


def works_on(installed: Installation, servers: str) -> None:
    """Alone, on a pipeline that is new, once its first token is void."""
    wait_until(lambda: installed.operator_age_s(NAMESPACE) > TOKEN_S, "its first token is void", TOKEN_S, poll_s=1.0)
    pipeline = Pipeline(installed, servers)
    pipeline.document["metadata"]["labels"] = _LABELS
    with installed.operator_away():
        pipeline.apply(suspend=True)
        pipeline.until(lambda: pipeline.status.get("phase") == "Suspended", "it is served")
        pipeline.delete("--timeout=60s")
    words = f"an operator whose tokens are good for {TOKEN_S} s works on"
    installed.report.tell("tokens", installed.operator_age_s(NAMESPACE), words)
