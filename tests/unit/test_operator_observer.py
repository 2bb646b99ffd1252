"""What the operator makes of a resource before it looks at anything else."""

from __future__ import annotations

from typing import Any

from sinkpipeline.core.errors import Reason
from sinkpipeline_operator.observe.observer import parsed
from support.resource.manifests import changed, of_database, smallest


def resource(*changes: tuple[tuple[str, ...], Any]) -> dict[str, Any]:
    return changed(smallest(), (("metadata", "namespace"), "shop"), *changes)


def test_what_it_can_read_and_what_not() -> None:
    for change in ((), ((("spec", "source"), of_database()),)):
        pipeline, problems = parsed(resource(*change))
        assert pipeline is not None
        assert problems == ()
    pipeline, [problem] = parsed(resource((("spec", "source"), {})))
    assert pipeline is None
    assert (problem.path, problem.reason) == ("spec.source.kafka", Reason.MANIFEST_INVALID)
