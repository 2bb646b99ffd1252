"""The CustomResourceDefinition of SinkPipeline, and the file that `PYTHONPATH=dev python -m crd` writes.

The manifest's types own the shape of `spec`; here stand only what Kubernetes adds to it. A test compares the file with
what this module makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from crd.rules import RULES, Rule
from crd.schema import spec_schema
from crd.status import STATUS
from sinkpipeline.core.manifest import API_VERSION, KIND

Schema = dict[str, Any]

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "sinkpipelines"
PATH = Path(__file__).parents[2] / "crds" / f"{PLURAL}.{GROUP}.yaml"

_HEADER = "# Made by dev/crd from the types in spark_app/sinkpipeline/core/manifest; not edited by hand.\n"

REVISION = "sinkpipeline.io/revision"
"""The annotation by which an operator knows whether the CRD in its cluster is older than its own."""

_LIST_TYPES: dict[str, Schema] = {
    "spec.source.kafka.topics": {"x-kubernetes-list-type": "set"},
    "spec.decode.change.tables": {"x-kubernetes-list-type": "set"},
    "spec.source.postgresql.publication.tables": {"x-kubernetes-list-type": "set"},
    "spec.source.mariadb.tables": {"x-kubernetes-list-type": "set"},
    "spec.source.mysql.tables": {"x-kubernetes-list-type": "set"},
    "spec.sinks[].nats.stream.subjects": {"x-kubernetes-list-type": "set"},
    "spec.sinks[].postgresql.table.primaryKey": {"x-kubernetes-list-type": "set"},
    **{
        f"{transform}.lookups": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        for transform in ("spec.transform", "spec.sinks[].transform")
    },
    "spec.sinks[].kafka.topics": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    "spec.sinks": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    "spec.spark.functions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
}

_COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Phase", "string", ".status.phase", 0),
    ("Sinks", "string", ".status.totals.sinksReady", 0),
    ("Lag", "integer", ".status.totals.lag", 0),
    ("DLQ", "integer", ".status.totals.deadLettered", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Delivered", "integer", ".status.totals.rowsDelivered", 1),
    ("Dropped", "integer", ".status.totals.dropped", 1),
    ("Restarts", "integer", ".status.restarts.total", 1),
    ("Spark", "string", ".status.sparkApplication.state", 1),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 1),
    ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', 1),
)


def resource_schema() -> Schema:
    """The openAPIV3Schema."""
    about = "Where records come from, what happens to them, which sinks they go to, exactly once."
    spec = {**spec_schema(), "description": "What is asked for."}
    schema = kind_schema(KIND, about, spec, STATUS)
    for place, extension in _LIST_TYPES.items():
        at(schema, place).update(extension)
    add_rules(schema, RULES)
    return schema


def kind_schema(kind: str, description: str, spec: Schema, status: Schema) -> Schema:
    """The openAPIV3Schema of a kind of this group, still without rules."""
    return {
        "description": description,
        "type": "object",
        "properties": {
            "apiVersion": {"description": f"{API_VERSION}.", "type": "string"},
            "kind": {"description": f"{kind}.", "type": "string"},
            # The API server has its own schema of it, and takes no description beside that one.
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "required": ["spec"],
    }


def add_rules(schema: Schema, rules: Mapping[str, Iterable[Rule]]) -> None:
    """Each where it belongs, by its place."""
    for place, each in rules.items():
        at(schema, place)["x-kubernetes-validations"] = [rule.to_dict() for rule in each]


def at(schema: Schema, place: str) -> Schema:
    """The schema of a place such as `spec.sinks[].name`; a KeyError where there is none."""
    for step in place.replace("[]", ".[]").split(".") if place else ():
        schema = schema["items"] if step == "[]" else schema["properties"][step]
    return schema


def custom_resource_definition() -> Schema:
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["skp", "sinkpipe"],
        "categories": ["streaming"],
    }
    return definition(names, _COLUMNS, resource_schema())


def definition(names: Schema, columns: Iterable[tuple[str, str, str, int]], schema: Schema) -> Schema:
    """Of one kind.

    Args:
        names: as Kubernetes has them.
        columns: name, type, path and priority of what `kubectl get` prints.
        schema: the openAPIV3Schema.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {
                            "name": name,
                            "type": kind,
                            "jsonPath": path,
                            "description": f"Reads {path}.",
                            **({"priority": priority} if priority else {}),
                        }
                        for name, kind, path, priority in columns
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Without aliases: `kubectl` reads them, people don't."""

    @override
    def ignore_aliases(self, data: object) -> bool:
        return True


def text(definition: Schema, revision: int) -> str:
    """The file."""
    meta = {**definition["metadata"], "annotations": {REVISION: str(revision)}}
    document = {**definition, "metadata": meta}
    return _HEADER + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def committed_revision(path: Path = PATH) -> int:
    """Of the file that is there; 0 where there is none."""
    return revision_of(path.read_text()) if path.exists() else 0


def revision_of(committed: str) -> int:
    """0 where it has none."""
    found = re.search(rf'^    {REVISION}: ["\'](\d+)', committed, re.MULTILINE)
    return 0 if found is None else int(found[1])


def renewed(committed: str, definition: Schema) -> str:
    """The file as it is to be: with the next revision where anything else has changed."""
    revision = revision_of(committed)
    return committed if committed == text(definition, revision) else text(definition, revision + 1)
