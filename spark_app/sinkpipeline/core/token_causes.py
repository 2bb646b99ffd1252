"""What it means that a client got no token to log in with, by what the token endpoint or the client says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from sinkpipeline.core.causes import NO_TOKEN, Cause
from sinkpipeline.core.errors import Reason

REFUSED_TOKEN = (
    '"invalid_token"',
    "Request not valid in current SASL state",
    "Unexpected handshake request with client mechanism OAUTHBEARER",
)
"""What brokers say of a token that they refuse, as both clients repeat it (RFC 7628); and of one that is shown again
within a second, as by clients whose token is about to expire: in librdkafka's words, and in Java's."""

NO_SIGNED_TOKEN = Cause(
    reason=Reason.BROKER_UNREACHABLE,
    remedy="look into the log for why there is no new token; the credentials of AWS are those of the pod",
)
"""Amazon MSK: no further token was signed. Who starts anew is told why."""

_CLIENT_REFUSED = "check auth.sasl.oauthbearer.clientId, and the Secret of clientSecretRef"
_GRANT_REFUSED = "allow the client the grant of client credentials at the provider"
_BY_TOKEN_ERROR: Mapping[str, str | None] = MappingProxyType(
    {
        "invalid_client": _CLIENT_REFUSED,
        "unauthorized_client": _CLIENT_REFUSED,
        "access_denied": _CLIENT_REFUSED,
        "invalid_scope": "correct auth.sasl.oauthbearer.scope",
        "unsupported_grant_type": _GRANT_REFUSED,
        "invalid_grant": _GRANT_REFUSED,
        "invalid_request": _GRANT_REFUSED,
        "server_error": None,
        "temporarily_unavailable": None,
    }
)
"""The error codes of RFC 6749, and what helps against a refusal; None: it is none, and passes."""

_OWN_AUTHORITIES = (
    (
        re.compile(r"error (adding trust anchors|setting certificate)"),
        (
            "give auth.sasl.oauthbearer.caSecretRef the certificate of the authority that signed the endpoint's: this "
            "machine has no authorities where the client looks; SSL_CERT_FILE can name a file of them"
        ),
    ),
    (
        re.compile(r"(?i)\bcertificate\b"),
        (
            "give auth.sasl.oauthbearer.caSecretRef the certificate of the authority that signed the endpoint's, and "
            "name the endpoint in tokenEndpointUrl as its certificate does"
        ),
    ),
)
"""What curl says where the endpoint can't be trusted."""

_NO_TOKEN = re.compile(
    r"Failed to acquire SASL OAUTHBEARER token: (.*)"
    r"|The response code ([0-9]+) and error response (.*?) was encountered reading the token endpoint",
    re.DOTALL,
)
_TOKEN_ERROR = re.compile(rf'"({"|".join(_BY_TOKEN_ERROR)})"')
_OF_THE_CLIENT = re.compile(
    # Of curl.
    r"(Failed to connect to|Could not (connect|resolve)|Resolving timed out|Connection tim|Operation timed out"
    r"|(Open)?SSL[ :]|TLS |Recv failure|Send failure|Empty reply from server|Maximum \(|URL rejected"
    r"|error (adding trust anchors|setting certificate)"
    # Of librdkafka.
    r"|Server did not provide an error string|Failed to parse JSON|Expected )"
    r".{0,200}"
)
"""The clients' own words. They hand an answer on in the same place, as it is."""


def of_token(text: str) -> tuple[Cause, str] | None:
    """What it means that a client got no token, and what may be told; None where the text is of something else.

    An answer itself is never told: the endpoint is an address that the manifest's author chooses, and who asks it, such
    as the operator, may reach what the author can't.
    """
    found = _NO_TOKEN.search(text)
    if found is None:
        return None
    told = (found[1] or found[3] or "").strip()
    if told == "OAuth callback raised exception":
        return NO_SIGNED_TOKEN, told
    status = f"HTTP {found[2]}, " if found[2] else ""
    if found[1] and _OF_THE_CLIENT.fullmatch(told):
        remedies = (remedy for pattern, remedy in _OWN_AUTHORITIES if pattern.search(told))
        return _no_token(next(remedies, None)), told
    code = _TOKEN_ERROR.search(told)
    if code is None:
        return NO_TOKEN, f"{status}an answer that is no error of RFC 6749"
    return _no_token(_BY_TOKEN_ERROR[code[1]]), f"{status}error {code[1]}"


def _no_token(remedy: str | None) -> Cause:
    return NO_TOKEN if remedy is None else Cause(reason=Reason.AUTHENTICATION_FAILED, remedy=remedy)
