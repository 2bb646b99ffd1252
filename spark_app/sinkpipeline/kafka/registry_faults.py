"""What a registry, or TLS on the way to it, has against us."""

from __future__ import annotations

import re
import ssl
from http import HTTPStatus

from confluent_kafka.schema_registry.error import SchemaRegistryError

from sinkpipeline.core.deadletter import reason_of
from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.tls import Tls

_OURS = re.compile(".*ALERT.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED).*")
"""The alerts of a server that wants another certificate of its client, or any."""


_NOTHING = "Unknown Schema Registry Error: b''"
"""What the client makes of an answer without a body, as Apicurio gives it to who may not."""


def words(error: SchemaRegistryError) -> str:
    """What it says, for a person."""
    told = str(error.error_message)
    if told == _NOTHING and error.http_status_code in set(HTTPStatus):
        told = HTTPStatus(error.http_status_code).phrase
    return reason_of(told)


def refusal(error: BaseException, what: str, path: str, tls: Tls | None) -> SinkPipelineError | None:
    """None where it is something else that failed.

    `what` was asked for; `path` is that of the registry in the manifest.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        told = cause.verify_message.rstrip(".")
        fact = f"the schema registry shows a certificate that can't be trusted, when asked for {what}: {told}"
        remedy = f"give {path}.auth.tls.caSecretRef the authority that signed it; or renew it; or correct {path}.url"
    elif _OURS.fullmatch(cause.reason or ""):
        alert = reason_of((cause.reason or "").lower().replace("_", " "))
        if tls is None or tls.certificate_file is None:
            fact = f"the schema registry asks for a client's certificate, when asked for {what} ({alert})"
            remedy = f"give {path}.auth.tls.certSecretRef"
        else:
            fact = f"the schema registry refused our certificate, when asked for {what} ({alert})"
            remedy = f"give {path}.auth.tls.certSecretRef a certificate that it trusts and that has not expired"
    else:
        return None
    return SinkPipelineError(Reason.AUTHENTICATION_FAILED, fact, remedy)
