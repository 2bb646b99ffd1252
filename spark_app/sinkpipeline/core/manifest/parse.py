"""The one way from a document to a `SinkPipeline`."""

import json

from pydantic import ValidationError

from sinkpipeline.core.manifest.model import SinkPipeline
from sinkpipeline.core.manifest.plain import to_plain
from sinkpipeline.core.manifest.problems import ManifestError
from sinkpipeline.core.manifest.translate import translate


def parse_manifest(document: object) -> SinkPipeline:
    """Parses what a YAML or JSON reader returned.

    Args:
        document: the loaded object; `status` is ignored.

    Raises:
        ManifestError: with every problem that was found. Rules between fields are looked at once the fields themselves
            are right.
    """
    plain = to_plain(document)
    try:
        # As JSON: only there does strictness know that a list is the only tuple and text the only enum.
        return SinkPipeline.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        problems = translate(error, SinkPipeline)
    # Outside the handler, so that no cause carries the document's values into a log.
    raise ManifestError(problems)
