"""Files of Secrets, as PostgreSQL's client takes them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sinkpipeline.core.errors import Reason, SinkPipelineError


@contextlib.contextmanager
def private_copy(path: str) -> Iterator[str]:
    """Of a key, for as long as a connection is made: libpq takes none that others may read, as in a Secret's volume."""
    with tempfile.NamedTemporaryFile(prefix="sinkpipeline-") as copy:
        try:
            copy.write(Path(path).read_bytes())
        except OSError as error:
            raise SinkPipelineError(
                Reason.SECRET_NOT_FOUND, f"the key in {path} can't be read: {error}", "check certSecretRef"
            ) from error
        copy.flush()
        yield copy.name
