"""Reading a manifest file."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.manifest import SinkPipeline, parse_manifest


def read_manifest(path: Path) -> SinkPipeline:
    """The one SinkPipeline of a YAML or JSON file.

    Raises:
        SinkPipelineError: ManifestInvalid or NotServed.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID, f"{path} can't be read: {error}", "name a readable YAML or JSON file"
        ) from error
    except yaml.YAMLError as error:
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID, f"{path} is not YAML: {error}", "correct the syntax at that place"
        ) from error
    if len(documents) != 1:
        raise SinkPipelineError(
            Reason.MANIFEST_INVALID, f"{path} holds {len(documents)} documents", "give one SinkPipeline in a file"
        )
    return parse_manifest(documents[0])
