"""Seeds of nkeys, and files of credentials as `nsc` writes them.

nats-py reads such files too, but not wrong ones: where there is no JWT it looks for one for ever.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import nkeys

from sinkpipeline.cells.secrets import secret
from sinkpipeline.core.errors import Reason, SinkPipelineError

_JWT = "BEGIN NATS USER JWT"
_SEED = "BEGIN USER NKEY SEED"


def seed_of(path: str) -> str:
    """The seed of an nkey, of a file that has nothing else.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    seed = secret(path, "seed", "nkeySecretRef").strip()
    _check(seed, path, "write the seed of a user's nkey into the key of nkeySecretRef: it begins with SU")
    return seed


def credentials_of(path: str) -> tuple[str, Callable[[str], bytes]]:
    """The JWT of a user, and what signs a server's nonce, in base64, by the user's seed.

    Raises:
        SinkPipelineError: SecretNotFound, SecretInvalid.
    """
    remedy = "write what `nsc generate creds` prints into the key of credsSecretRef, all of it"
    lines = secret(path, "credentials", "credsSecretRef").splitlines()
    jwt, seed = (_below(lines, head) for head in (_JWT, _SEED))
    for found, head in ((jwt, _JWT), (seed, _SEED)):
        if not found:
            raise SinkPipelineError(Reason.SECRET_INVALID, f"{path} has no line below {head}", remedy)
    _check(seed, path, remedy)

    def sign(nonce: str) -> bytes:
        return base64.b64encode(_pair(seed).sign(nonce.encode()))

    return jwt, sign


def _below(lines: list[str], head: str) -> str:
    """The line below the one with these words; empty where there is none."""
    at = next((number for number, line in enumerate(lines) if head in line), None)
    return "" if at is None else "".join(lines[at + 1 : at + 2]).strip()


def _check(seed: str, path: str, remedy: str) -> None:
    try:
        _pair(seed)
    except (nkeys.NkeysError, binascii.Error, ValueError) as error:
        told = f"{path} has a seed that is none: {error or type(error).__name__}"
        raise SinkPipelineError(Reason.SECRET_INVALID, told, remedy) from error


def _pair(seed: str) -> nkeys.KeyPair:
    return nkeys.from_seed(bytearray(seed.encode("ascii")))
