"""Apicurio's registry with its own TLS and its own log-in, by passwords and by tokens; and a door for certificates.

Who may do what it reads in tokens: those that are shown to it, and those that it gets itself for a user and a password.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from typing_extensions import Self, override

from servers.java import java_executable
from servers.local_process import HOST, free_ports
from servers.schema_registry import LocalRegistry
from servers.token_endpoint import TokenEndpoint
from support.worlds.secure import Certificates

READS, WRITES = ("sr-readonly",), ("sr-developer",)
"""Apicurio's roles."""
_ADMIN, _STORE_PASSWORD = "admin", "changeit"
_MOST = 65536


class GuardedRegistry(LocalRegistry):
    """A user without a role may do nothing."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.certificates = Certificates(directory / "certificates", HOST)
        self.tokens = TokenEndpoint(self.certificates.token_endpoint)
        [self._tls_port] = free_ports(1)
        self.user(_ADMIN, "its password", ("sr-admin",))

    @property
    @override
    def url(self) -> str:
        return f"https://{HOST}:{self._tls_port}/apis/ccompat/v7"

    def user(self, name: str, password: str, roles: tuple[str, ...]) -> None:
        """Somebody who may log in."""
        self.tokens.secrets[name], self.tokens.groups[name] = password, roles

    @override
    def __enter__(self) -> Self:
        self.tokens.start()
        self._headers = {"Authorization": f"Bearer {self.tokens.token(_ADMIN)}"}
        self._context = ssl.create_default_context(cafile=str(self.certificates.ca))
        try:
            super().__enter__()
        except BaseException:
            self.tokens.stop()
            raise
        return self

    @override
    def __exit__(self, *error: object) -> None:
        self._end()
        self.tokens.stop()

    @override
    def _settings(self) -> dict[str, str]:
        certificate, key = self._pair()
        return {
            "quarkus.http.ssl-port": str(self._tls_port),
            "quarkus.http.insecure-requests": "disabled",
            "quarkus.http.ssl.certificate.files": str(certificate),
            "quarkus.http.ssl.certificate.key-files": str(key),
            "quarkus.oidc.tenant-enabled": "true",
            "quarkus.oidc.auth-server-url": self.tokens.issuer,
            "quarkus.oidc.discovery-enabled": "false",
            "quarkus.oidc.jwks-path": self.tokens.keys_url,
            "quarkus.oidc.token-path": self.tokens.url,
            "quarkus.oidc.token.issuer": self.tokens.issuer,
            "quarkus.oidc.tls.verification": "none",
            "apicurio.authn.basic-client-credentials.enabled": "true",
            "apicurio.auth.role-based-authorization": "true",
            "javax.net.ssl.trustStore": str(self._store()),
            "javax.net.ssl.trustStorePassword": _STORE_PASSWORD,
        }

    def _pair(self) -> tuple[Path, Path]:
        """Quarkus wants them apart."""
        key, begin, chain = self.certificates.broker.read_text().partition("-----BEGIN CERTIFICATE-----")
        files = self._directory / "registry.crt", self._directory / "registry.key"
        for path, content in zip(files, (begin + chain, key), strict=True):
            path.write_text(content)
        return files

    def _store(self) -> Path:
        """The authority as Java reads it."""
        store = self._directory / "trusted.p12"
        keytool = str(Path(java_executable()).with_name("keytool")) if "/" in java_executable() else "keytool"
        file, options = str(self.certificates.ca), ["-noprompt", "-storetype", "PKCS12", "-storepass", _STORE_PASSWORD]
        argv = [keytool, "-importcert", "-alias", "ca", "-file", file, "-keystore", str(store), *options]
        subprocess.run(argv, check=True, capture_output=True)
        return store


@contextlib.contextmanager
def behind_certificates(registry: LocalRegistry, certificates: Certificates) -> Iterator[str]:
    """A URL of the registry where only who shows a certificate comes in; it looks at nothing that passes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker)
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    behind = urlsplit(registry.url)
    own = ssl.create_default_context(cafile=str(certificates.ca)) if behind.scheme == "https" else None

    def serve(stream: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as ends:
            ends.callback(stream.close)
            client = ends.enter_context(context.wrap_socket(stream, server_side=True))
            raw = socket.create_connection((behind.hostname or HOST, behind.port or 0), 10)
            # That was for the connection: a registry of a busy machine answers late.
            raw.settimeout(None)
            server = ends.enter_context(raw if own is None else own.wrap_socket(raw, server_hostname=HOST))
            back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
            back.start()
            _pass_on(client, server)
            back.join(10)

    with socket.create_server((HOST, 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, serve), name="certificates", daemon=True)
        accepting.start()
        yield f"https://{HOST}:{listener.getsockname()[1]}{behind.path}"
        # Its accept is waked up, and fails.
        listener.shutdown(socket.SHUT_RDWR)
    accepting.join(10)


def _accept(listener: socket.socket, serve: object) -> None:
    with contextlib.suppress(OSError):
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(stream,), daemon=True).start()  # type: ignore[arg-type]


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(_MOST):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
