"""What is wrong with a manifest: a fault as a rule finds it, a problem as a person reads it, and the error of them all.

A rule inside a model raises a `Fault` with `refuse`. It says what is wrong and what would be right; where it stands is
known only outside, so `translate` turns faults into problems with a path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pydantic_core import PydanticCustomError
from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError

FAULTS = "sinkpipeline_faults"
"""The pydantic error type that carries faults."""

_MOST_LISTED = 100
"""A message ends up in a condition, which the API server bounds; `ManifestError.problems` holds all of them."""


@dataclass(frozen=True)
class Fault:
    """A broken rule, seen from the value that a validator was given."""

    right: str
    """What would be right, as an imperative."""
    wrong: str | None = None
    """What is wrong, after "<path>: "; None shows the value itself where that may be shown."""
    at: tuple[str | int, ...] = ()
    """Where, below the validated value."""


def refuse(right: str, wrong: str | None = None, at: tuple[str | int, ...] = ()) -> NoReturn:
    """Ends a pydantic validator with one fault."""
    raise fault_error([Fault(right, wrong, at)])


def fault_error(faults: Sequence[Fault]) -> PydanticCustomError:
    """The error that a pydantic validator raises for several faults at once."""
    return PydanticCustomError(FAULTS, "the manifest breaks a rule", {"faults": tuple(faults)})


def refuse_repeated(names: Sequence[str], right: str, key: Callable[[str], str] = str) -> None:
    """Ends a pydantic validator of a list if two of it have the same name; `key`: by what names are compared."""
    keys = [key(name) for name in names]
    faults = [
        Fault(right, f'repeats "{name}"', (index, "name"))
        for index, name in enumerate(names)
        if keys[index] in keys[:index]
    ]
    if faults:
        raise fault_error(faults)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a manifest."""

    path: str
    """Such as `spec.sinks[0].kafka.topic.name`."""
    wrong: str
    right: str
    reason: Reason = Reason.MANIFEST_INVALID
    """MANIFEST_INVALID, or NOT_SERVED for what a later version will serve."""

    @override
    def __str__(self) -> str:
        return f"{self.path}: {self.wrong}; {self.right}"


class ManifestError(SinkPipelineError):
    """A manifest that is refused, with every problem that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        only_unserved = all(problem.reason is Reason.NOT_SERVED for problem in self.problems)
        lines = [str(problem) for problem in self.problems[:_MOST_LISTED]]
        if len(self.problems) > _MOST_LISTED:
            lines.append(f"and {len(self.problems) - _MOST_LISTED} more")
        super().__init__(
            Reason.NOT_SERVED if only_unserved else Reason.MANIFEST_INVALID,
            "\n".join(lines),
            "remove what this version does not serve"
            if only_unserved
            else "correct the manifest where it says so, and apply it again",
        )

    @override
    def __reduce__(self) -> tuple[type["ManifestError"], tuple[tuple[Problem, ...]]]:
        # An exception is rebuilt from its `args`, which are the base class's.
        return type(self), (self.problems,)
