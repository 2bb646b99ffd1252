"""What the operator makes of a resource before it looks at anything else."""

from __future__ import annotations

from typing import Any

from sinkpipeline.core.errors import Reason
from sinkpipeline_operator.observe.observer import parsed
from support.resource.manifests import changed, of_database, smallest


def resource(*changes: tuple[tuple[str, ...], Any]) -> dict[str, Any]:
    return changed(smallest(), (("metadata", "namespace"), "shop"), *changes)


def test_a_database_as_the_source_is_refused_in_plain_words() -> None:
    pipeline, problems = parsed(resource((("spec", "source"), of_database())))
    assert pipeline is None
    [problem] = problems
    assert (problem.path, problem.reason) == ("spec.source.postgresql", Reason.NOT_SERVED)
    assert "not served by the operator yet" in problem.wrong
    assert "sinkpipeline run" in problem.right
    pipeline, problems = parsed(resource())
    assert pipeline is not None
    assert problems == ()
