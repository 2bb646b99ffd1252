"""The one way from a document to a `SinkPipeline`, and to any other kind."""

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sinkpipeline.core.manifest.model import SinkPipeline
from sinkpipeline.core.manifest.plain import to_plain
from sinkpipeline.core.manifest.problems import ManifestError
from sinkpipeline.core.manifest.translate import translate, unknown_nulls

K = TypeVar("K", bound=BaseModel)


def parse_manifest(document: object) -> SinkPipeline:
    """Parses what a YAML or JSON reader returned.

    Args:
        document: the loaded object; `status` is ignored.

    Raises:
        ManifestError: with every problem that was found. Rules between fields are looked at once the fields themselves
            are right.
    """
    return parse(document, SinkPipeline)


def parse(document: object, kind: type[K]) -> K:
    """As `parse_manifest`, of any kind.

    Raises:
        ManifestError
    """
    plain, nulls = to_plain(document)
    # The API server refuses an unknown field also where it is null.
    problems = unknown_nulls(nulls, kind)
    try:
        # As JSON: only there does strictness know that a list is the only tuple and text the only enum.
        parsed = kind.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        problems = (*translate(error, kind), *problems)
    else:
        if not problems:
            return parsed
    # Outside the handler, so that no cause carries the document's values into a log.
    raise ManifestError(problems)
