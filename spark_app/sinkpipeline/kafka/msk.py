"""Log-in to Amazon MSK by IAM: tokens that AWS' own signer makes of the credentials that the environment has.

The only module that imports it. It isn't installed by default, and can't be beside Kubernetes' client:
they ask for different versions of dateutil.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from sinkpipeline.core.errors import Reason, SinkPipelineError

_LOG = logging.getLogger("sinkpipeline.kafka")

_SIGNER = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
_INSTALL = (
    "install it: pip install 'aws-msk-iam-sasl-signer-python>=1.0.2,<2'; for an image see docs/install.md#amazon-msk"
)
_CREDENTIALS = (
    "give driver and executors credentials of AWS: a role for their service account (IRSA, or EKS Pod Identity), or "
    "the variables of the AWS SDKs"
)

Token = tuple[str, float]
"""With when it ends, in seconds since 1970, as confluent-kafka has it."""


def signed_token(region: str) -> Token:
    """A token for the clusters of a region.

    Raises:
        SinkPipelineError: NotServed, AuthenticationFailed, BrokerUnreachable.
    """
    try:
        signer: Any = import_module(_SIGNER)
        exceptions: Any = import_module("botocore.exceptions")
    except ImportError as error:
        fact = "auth.sasl.mechanism AWS_MSK_IAM needs aws-msk-iam-sasl-signer-python, which is not installed here"
        raise SinkPipelineError(Reason.NOT_SERVED, fact, _INSTALL) from error
    try:
        token, ends_ms = signer.generate_auth_token(region)
    except exceptions.HTTPClientError as error:
        fact = f"no answer from where AWS gives credentials ({type(error).__name__})"
        raise SinkPipelineError(Reason.BROKER_UNREACHABLE, fact, "check the way to AWS' endpoints") from error
    except Exception as error:
        # It finds no credentials (which it tells by an AttributeError), or AWS gives none. Its text may name roles.
        fact = f"there are no credentials of AWS to sign a token for the brokers with ({type(error).__name__})"
        raise SinkPipelineError(Reason.AUTHENTICATION_FAILED, fact, _CREDENTIALS) from error
    return str(token), ends_ms / 1000


def token_callback(region: str) -> Callable[[str], Token]:
    """What a client asks for its tokens, in a thread of its own, also while nobody polls it.

    The first one is made now: who makes a client is told why it can't log in, and waits for nothing.

    Raises:
        SinkPipelineError: as `signed_token`.
    """
    first = [signed_token(region)]

    def next_token(_: str) -> Token:
        if first:
            return first.pop()
        try:
            return signed_token(region)
        except SinkPipelineError as error:
            # The client asks again after ten seconds, and what is connected goes on until its token ends.
            _LOG.warning("no new token: %s", error)
            raise

    return next_token
