"""The CustomResourceDefinition of SinkPipelineAction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crd.definition import GROUP, add_rules, definition, kind_schema
from crd.rules import NAME, Rule, stays
from crd.schema import spec_schema
from crd.status import CONDITION, count, mapping, named, one_of, text, time
from sinkpipeline.core.asked import DIGEST_LENGTH, MAX_RESOLVED, MAX_TEXT
from sinkpipeline.core.manifest.action import ACTION_KIND, ActionSpec

Schema = dict[str, Any]

ACTION_PLURAL = "sinkpipelineactions"
ACTION_PATH = Path(__file__).parents[2] / "crds" / f"{ACTION_PLURAL}.{GROUP}.yaml"

PHASES = ("Previewing", "AwaitingConfirmation", "Running", "Succeeded", "Failed")

_COLUMNS = (
    ("Pipeline", "string", ".spec.pipeline", 0),
    ("Sink", "string", ".spec.sink", 0),
    ("Action", "string", ".spec.action", 0),
    ("Phase", "string", ".status.phase", 0),
    ("Digest", "string", ".status.digest", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Message", "string", ".status.message", 1),
)

_CHANGES = frozenset({"confirm"})


def _immutable() -> Iterable[Rule]:
    """What was shown is what is carried out: only `confirm` may be set later."""
    for name, field in ActionSpec.model_fields.items():
        path = field.alias or name
        if path in _CHANGES:
            continue
        optional = not field.is_required() and field.default is None
        yield Rule(stays(path, optional=optional), f"{path} never changes: create another action", f".{path}")


_IS = "self.action == '{}'"
_RESET, _REDRIVE, _PURGE = (_IS.format(each) for each in ("Reset", "Redrive", "Purge"))

RULES: Mapping[str, tuple[Rule, ...]] = {
    "": (NAME,),
    "spec": (
        *_immutable(),
        Rule(f"!({_RESET}) || has(self.to)", "say where a Reset goes on: to", ".to"),
        Rule(
            f"!({_RESET}) || !has(self.to) || !(self.to in ['Data', 'Source'])",
            "a Reset goes on at earliest, latest or offsets",
            ".to",
        ),
        Rule(
            f"!({_REDRIVE}) || !has(self.to) || self.to in ['Data', 'Source']",
            "a Redrive goes to Data or Source",
            ".to",
        ),
        Rule(f"!({_PURGE}) || !has(self.to)", "a Purge has upTo, and no to", ".to"),
        Rule(f"{_REDRIVE} || !has(self.letters)", "only a Redrive has letters", ".letters"),
        Rule(f"{_REDRIVE} || !has(self.rate)", "only a Redrive has rate", ".rate"),
        Rule(f"({_PURGE}) == has(self.upTo)", "give upTo to a Purge, and to no other action", ".upTo"),
    ),
    "spec.upTo": (
        Rule(
            "(has(self.redriven) ? 1 : 0) + (has(self.until) ? 1 : 0) + "
            "(has(self.beforeOffsets) && size(self.beforeOffsets) > 0 ? 1 : 0) == 1",
            "give exactly one of redriven, until and beforeOffsets",
        ),
    ),
    "spec.upTo.redriven": (Rule("self", "use true, or leave it out"),),
}
"""By place."""

STATUS: Schema = mapping(
    "What became of the action; only the operator writes it.",
    observedGeneration=count("The generation of the spec that this status is about."),
    phase=one_of(
        "Nothing is changed before Running; AwaitingConfirmation waits for spec.confirm: the digest.", *PHASES
    ),
    message=text("The facts, for a person.", 1024),
    digest=text("The digest of the preview. To carry it out, set spec.confirm to it.", DIGEST_LENGTH),
    preview=text("What would be done.", MAX_TEXT),
    resolved=text("The preview as numbers, which are what is carried out; JSON.", MAX_RESOLVED),
    pipelineUid=text("The uid of the pipeline that it was shown for.", 63),
    attempt=mapping(
        "The preview, or the run, that is under way or was the last.",
        ("id", "startedTime"),
        id=text("Its name: the Job of it, where there is one, is called after it.", 16),
        number=count("How many previews were made."),
        startedTime=time("When it began."),
    ),
    completionTime=time("When it succeeded or failed."),
    error=mapping(
        "Why it failed.",
        ("reason", "message", "remedy"),
        reason=text("One CamelCase word; see docs/errors.md.", 1024),
        message=text("The facts.", 32_768),
        remedy=text("What to do about it.", 32_768),
    ),
    conditions=named("Previewed, Complete (it has succeeded) and Failed.", "type", 8, CONDITION),
)


def action_schema() -> Schema:
    """The openAPIV3Schema."""
    about = "What a person asks for once, of one sink: shown first, and carried out when it is confirmed."
    spec = {**spec_schema(ActionSpec), "description": "What is asked for; only confirm may change."}
    schema = kind_schema(ACTION_KIND, about, spec, STATUS)
    add_rules(schema, RULES)
    return schema


def action_definition() -> Schema:
    names = {
        "kind": ACTION_KIND,
        "listKind": f"{ACTION_KIND}List",
        "plural": ACTION_PLURAL,
        "singular": ACTION_KIND.lower(),
        "shortNames": ["skpa"],
        "categories": ["streaming"],
    }
    return definition(names, _COLUMNS, action_schema())
