"""An OpenID Connect provider as far as Kafka's clients and brokers need one: a token endpoint and its keys, over TLS.

It knows the grant of client credentials, and refuses in the words of RFC 6749.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from typing_extensions import override

from servers.local_process import HOST, free_ports

KEY_ID: Final = "first"


@dataclass(frozen=True)
class Issued:
    """A token that was given."""

    client: str
    scope: str
    at: float
    """By `time.monotonic`."""


class TokenEndpoint:
    """`certificate` is a PEM file of a private key and its chain. `secrets` are those of the clients, by their id."""

    audience = "kafka"

    def __init__(self, certificate: Path, *, host: str = HOST) -> None:
        self.secrets: dict[str, str] = {}
        self.groups: dict[str, tuple[str, ...]] = {}
        """What a client's tokens say of it, by its id."""
        self.scopes: frozenset[str] = frozenset()
        """Of what may be asked for; empty lets everything pass."""
        self.lifetime_s = 3600.0
        self.down: tuple[int, bytes] | None = None
        """What it answers instead: a status and a page."""
        self.issued: list[Issued] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._host = host
        [self._port] = free_ports(1, host)
        self._certificate = certificate
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"https://{self._host}:{self._port}/realms/shop/token"

    @property
    def issuer(self) -> str:
        return f"https://{self._host}:{self._port}/realms/shop"

    @property
    def keys_url(self) -> str:
        return f"https://{self._host}:{self._port}/realms/shop/keys"

    def start(self) -> None:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                self._answer(200, json.dumps({"keys": [endpoint.public_key()]}).encode())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(*(endpoint.down or endpoint.answer(self.headers.get("Authorization", ""), form)))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *args: Any) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            @override
            def get_request(self) -> tuple[Any, Any]:
                # The handshake is the handler's: one who never ends it holds up nobody.
                stream, address = super().get_request()
                wrapped = context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False)
                return wrapped, address

            @override
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Of clients that don't trust us, or go away: what they say is theirs to tell."""

        self._server = Server((self._host, self._port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="tokens", daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        """Status and body."""
        kind, _, encoded = authorization.partition(" ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":") if kind == "Basic" else ("", "", "")
        if not authorization:
            # The other way of RFC 6749, 2.3.1.
            client, secret = (form.get(name, [""])[0] for name in ("client_id", "client_secret"))
        scope = form.get("scope", [""])[0]
        if client not in self.secrets or self.secrets[client] != secret:
            return 401, b'{"error": "invalid_client", "error_description": "Invalid client or client credentials"}'
        if form.get("grant_type") != ["client_credentials"]:
            return 400, b'{"error": "unsupported_grant_type"}'
        if self.scopes and not set(scope.split()) <= self.scopes:
            return 400, b'{"error": "invalid_scope", "error_description": "unknown scope"}'
        self.issued.append(Issued(client, scope, time.monotonic()))
        told = {"access_token": self.token(client, scope), "token_type": "Bearer", "expires_in": self.lifetime_s}
        return 200, json.dumps(told).encode()

    def public_key(self) -> dict[str, str]:
        """As a JSON Web Key."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (_base64(n.to_bytes((n.bit_length() + 7) // 8, "big")) for n in (numbers.n, numbers.e))
        return {"kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256", "n": modulus, "e": exponent}

    def token(self, client: str, scope: str = "", life_s: float | None = None) -> str:
        """Signed; it lives as long as all others do, unless that is said."""
        now = time.time()
        claims = {
            "sub": client,
            "aud": self.audience,
            "iss": self.issuer,
            "iat": int(now),
            "exp": int(now + (self.lifetime_s if life_s is None else life_s)),
            "scope": scope,
            "groups": list(self.groups.get(client, ())),
        }
        header = {"alg": "RS256", "kid": KEY_ID, "typ": "JWT"}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256()))}"


def _base64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")
