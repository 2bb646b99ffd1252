"""Keys of Secrets, from the files that they are mounted as."""

from __future__ import annotations

from pathlib import Path

from sinkpipeline.core.errors import Reason, SinkPipelineError


def secret(path: str, what: str = "password", ref: str = "passwordSecretRef") -> str:
    """Its text, without the newline that an editor puts behind it.

    Raises:
        SinkPipelineError: SecretNotFound.
    """
    try:
        return Path(path).read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SinkPipelineError(
            Reason.SECRET_NOT_FOUND, f"the {what} in {path} can't be read: {error}", f"check {ref}"
        ) from error
