"""A NATS server that knows its users by JWTs alone, and the file of credentials of a user, as `nsc` writes it.

An operator signs accounts, and an account signs its users.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any, Final

import nkeys

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_PREFIXES: Final = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
_COUNTED: Final = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
_NO_LIMITS: Final = {**dict.fromkeys(_COUNTED, -1), "wildcards": True}
_JETSTREAM: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Key:
    """Of an operator, an account or a user."""

    def __init__(self, kind: str) -> None:
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), _PREFIXES[kind]))
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def signed(self, subject: str, name: str, nats: dict[str, Any], **claims: Any) -> str:
        """A JWT by this key, about another one or itself."""
        body = {"iat": int(time.time()), "iss": self.public, "sub": subject, "name": name, "nats": nats, **claims}
        digest = hashlib.sha256(json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        text = f"{_encoded(json.dumps(_HEADER).encode())}.{_encoded(json.dumps(body).encode())}"
        return f"{text}.{_encoded(self._pair.sign(text.encode()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass
class Trust:
    """An operator with one account, which may use JetStream."""

    operator: Key = field(default_factory=lambda: Key("operator"))
    account: Key = field(default_factory=lambda: Key("account"))
    system: Key = field(default_factory=lambda: Key("account"))
    """Of the server itself; nobody logs in there."""

    @property
    def settings(self) -> dict[str, Any]:
        """Of the server."""
        limits = {self.account.public: {**_NO_LIMITS, **_JETSTREAM}, self.system.public: _NO_LIMITS}
        accounts = {
            key: self.operator.signed(key, "orders", {"type": "account", "version": 2, "limits": each})
            for key, each in limits.items()
        }
        itself = self.operator.public
        return {
            "operator": self.operator.signed(itself, "test", {"type": "operator", "version": 2}),
            "system_account": self.system.public,
            "resolver": "MEMORY",
            "resolver_preload": accounts,
        }

    def credentials(self, *, publish: list[str] | None = None, **claims: Any) -> bytes:
        """The file of a new user; `publish`: where alone it may publish; `claims`: more of its JWT, such as `exp`."""
        user = Key("user")
        may = {} if publish is None else {"pub": {"allow": publish}}
        nats = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **may}
        token = self.account.signed(user.public, "sinkpipeline", nats, **claims)
        return credentials_of(token, user)


def credentials_of(token: str, user: Key) -> bytes:
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    ).encode()
