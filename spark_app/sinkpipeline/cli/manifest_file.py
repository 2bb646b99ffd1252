"""Reading a manifest file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import SinkPipeline, parse_manifest


class NotYaml(SinkPipelineError):
    """A file whose syntax is wrong."""

    def __init__(self, path: Path, error: yaml.YAMLError) -> None:
        problem, mark = str(error), None
        if isinstance(error, yaml.MarkedYAMLError):
            mark = error.problem_mark or error.context_mark
            problem = ", ".join(filter(None, (error.problem, error.context)))
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        super().__init__(
            Reason.MANIFEST_INVALID, f"{path} is not YAML{place}: {problem}", "correct the syntax at that place"
        )
        self.snippet = (mark.get_snippet() if mark is not None else None) or ""
        """The line, and below it a mark at the place."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is there twice, where YAML's own loaders silently take the last."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value} is there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_manifest(path: Path) -> SinkPipeline:
    """The one SinkPipeline of a YAML or JSON file.

    Raises:
        SinkPipelineError: ManifestInvalid or NotServed.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        loaded = yaml.load_all(text, _StrictLoader)
        documents = [document for document in loaded if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID, f"{path} can't be read: {error}", "name a readable YAML or JSON file"
        ) from error
    except yaml.YAMLError as error:
        raise NotYaml(path, error) from error
    if len(documents) != 1:
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID, f"{path} holds {len(documents)} documents", "give one SinkPipeline in a file"
        )
    return parse_manifest(documents[0])
