"""What every demo has: a broker, a pipeline on an API server, and what a person sees of it; and most have flights."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
import yaml

from demo import data
from demo.audit import Audit, Broker
from demo.data import Row
from demo.story import Story
from deployed.cluster import Kubernetes

PARTITIONS: Final = 4

# How long each step may take on a slow and busy machine.
START_S: Final = 120.0
DELIVERY_S: Final = 150.0
REACTION_S: Final = 60.0


class Stage(abc.ABC):
    """One pipeline, by an example's manifest."""

    def __init__(
        self, story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path, document: dict[str, Any]
    ) -> None:
        self._story = story
        self._broker = broker
        self._kubernetes = kubernetes
        self._document = document
        self.name: str = document["metadata"]["name"]
        self._manifest = directory / f"{self.name}.yaml"
        self._manifest.write_text(yaml.safe_dump(document, sort_keys=False))
        self._audits: dict[str, Audit] = {}

    @abc.abstractmethod
    def play(self) -> None: ...

    def apply(self) -> None:
        story, kubernetes = self._story, self._kubernetes
        story.step("The pipeline, as a person runs it")
        story.typed(f"kubectl apply -f {self._manifest.name}")
        story.show(kubernetes.kubectl("apply", "-f", str(self._manifest)))
        story.typed("kubectl get sinkpipelines --watch")
        with kubernetes.watching() as lines:
            shown = 0

            def is_ready() -> bool | None:
                nonlocal shown
                printed = lines()
                story.show("\n".join(printed[shown:]))
                shown = len(printed)
                return kubernetes.condition(self.name, "Ready").get("status") == "True" or None

            kubernetes.wait_for("the pipeline is Ready", START_S, is_ready)
            is_ready()
        story.say("it is Ready: Spark runs, and the sink delivers")

    def _get(self, *options: str) -> None:
        self._story.typed(" ".join(("kubectl get sinkpipelines", *options)))
        self._story.show(self._kubernetes.kubectl("get", "sinkpipelines", *options))

    def _events(self, reason: str) -> None:
        self._story.typed(f"kubectl get events --field-selector reason={reason}")
        found = self._kubernetes.kubectl("get", "events", f"--field-selector=reason={reason}")
        self._story.show(found)
        self._story.check(f"there is an event {reason}", holds=reason in found)

    def _sink(self) -> Mapping[str, Any]:
        sinks: list[dict[str, Any]] = self._kubernetes.status(self.name).get("sinks") or [{}]
        return sinks[0]

    def _is_ready(self) -> bool | None:
        return self._kubernetes.condition(self.name, "Ready").get("status") == "True" or None

    def _has_restarts(self) -> bool | None:
        return self._kubernetes.status(self.name).get("restarts", {}).get("total", 0) > 0 or None

    def _audited(self, title: str, audit: Audit) -> None:
        self._audits[title] = audit
        self._story.check(
            f"{audit.delivered:,} rows delivered, {audit.expected:,} expected: {audit.duplicates:,} duplicates, "
            f"{audit.missing:,} missing, {audit.wrong:,} wrong",
            holds=audit.exactly_once,
        )


class FlightsStage(Stage):
    """One whose source is a topic of flights."""

    def __init__(
        self, story: Story, broker: Broker, kubernetes: Kubernetes, directory: Path, document: dict[str, Any]
    ) -> None:
        kafka = document["spec"]["source"]["kafka"]
        kafka["bootstrapServers"] = broker.bootstrap_servers
        super().__init__(story, broker, kubernetes, directory, document)
        self._source: str = kafka["topics"][0]
        self._expected: dict[int, Row] = {}

    def load(self) -> pd.DataFrame:
        self._story.step(f"Loading flights into the topic {self._source}")
        flights = data.flights()
        self._broker.create(self._source, PARTITIONS)
        data.produce(flights, self._broker.bootstrap_servers, self._source)
        self._expected = data.expected_rows(flights)
        loaded = self._broker.records(self._source)
        self._story.check(
            f"{loaded:,} records in {PARTITIONS} partitions; by pandas, {len(self._expected):,} are late departures",
            holds=loaded == len(flights) and bool(self._expected),
        )
        return flights
