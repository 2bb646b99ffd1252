"""Why nobody can talk to a broker, asked of the broker itself.

A log-in that is refused, a certificate that has expired and a port that speaks another protocol all reach the caller of
a request as a time-out, or as "broken certificate". Here one connection is opened by hand, which says which of them it
is. It only asks which ways of logging in there are: no secret is sent.

That is for a person who waits for the answer, or for whoever only tells what was seen. No driver that runs comes here
(`lint-imports`): while a cluster is down anything may answer at its address, and a refusal is final.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from dataclasses import dataclass

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.core.tls import Tls
from sinkpipeline.kafka.admin import Admin, Cluster
from sinkpipeline.kafka.connection import Connection

_TIMEOUT_S = 2.0
_REFUSED_S = 1.5
"""For so long addresses are given time that refuse connections or have no host: a person hears of them within five
seconds, of which the command takes some to start."""
_SERVERS = 3
_SASL_HANDSHAKE = 17
_UNSUPPORTED_MECHANISM, _NO_LOG_IN_HERE = 33, 34
_MAX_ANSWER = 4096
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_ABOUT_OUR_CERTIFICATE = re.compile(".*ALERT.*(CERTIFICATE|UNKNOWN_CA).*")


def connect(admin: Admin, timeout_s: float) -> Cluster:
    """Which cluster this is; where it does not answer, why.

    Raises:
        SinkPipelineError: AuthenticationFailed, BrokerUnreachable.
    """
    connection = admin.connection
    patience = [part for part in (min(timeout_s, _REFUSED_S), timeout_s - _REFUSED_S) if part > 0]
    while True:
        part_s, *patience = patience
        try:
            return admin.cluster(part_s, why=lambda: diagnose(connection))
        except SinkPipelineError as error:
            if error.reason is not Reason.BROKER_UNREACHABLE:
                raise
            if (told := unreachable(connection)) is not None:
                raise told from error
            if not patience:
                raise


def diagnose(connection: Connection) -> SinkPipelineError | None:
    """What keeps us from talking to the brokers; None where nothing speaks for our settings being wrong."""
    found = None
    for server in connection.bootstrap_servers.split(",")[:_SERVERS]:
        host, _, port = server.rpartition(":")
        try:
            found = _Broker(connection, host.strip("[]"), int(port)).fault()
        except OSError:
            continue
        if found is None:
            return None
    return found


def unreachable(connection: Connection) -> SinkPipelineError | None:
    """What is wrong with the addresses of brokers that can't be connected to; None where one can, or may be slow."""
    facts, unknown = [], True
    for server in connection.bootstrap_servers.split(",")[:_SERVERS]:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_S).close()
        except socket.gaierror:
            facts.append(f"the host name {host} does not resolve")
        except ConnectionRefusedError:
            facts.append(f"{server} refuses connections")
            unknown = False
        except OSError:
            return None
        else:
            return None
    remedy = "correct bootstrapServers" if unknown else "check that the brokers run there, or correct bootstrapServers"
    return SinkPipelineError(Reason.BROKER_UNREACHABLE, ", and ".join(facts), remedy)


@dataclass(frozen=True)
class _Answer:
    error: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True)
class _Broker:
    connection: Connection
    host: str
    port: int

    def fault(self) -> SinkPipelineError | None:
        tls = self.connection.tls
        return self._plain_fault() if tls is None else self._tls_fault(tls)

    def _plain_fault(self) -> SinkPipelineError | None:
        answer = self._ask(None)
        if answer is None and self._speaks_tls():
            return self._refusal("speaks TLS, and the manifest has no auth.tls", "give auth.tls with the brokers' CA")
        return self._log_in_fault(answer)

    def _tls_fault(self, tls: Tls) -> SinkPipelineError | None:
        try:
            return self._log_in_fault(self._ask(_context(tls)))
        except ssl.SSLCertVerificationError as error:
            return self._untrusted(error)
        except (ssl.SSLError, ConnectionError) as error:
            alert = getattr(error, "reason", None) or ""
            if _ABOUT_OUR_CERTIFICATE.fullmatch(alert):
                return self._refused_client(tls, alert)
            return self._speaks_no_tls()

    def _log_in_fault(self, answer: _Answer | None) -> SinkPipelineError | None:
        """Which log-in the broker wants; whether it likes the password, only the client finds out."""
        sasl = self.connection.sasl
        if answer is None:
            return None
        offered = " or ".join(sorted(answer.mechanisms))
        if sasl is None and answer.error != _NO_LOG_IN_HERE:
            return self._refusal(
                "asks for a log-in, and the manifest has no auth.sasl", f"give auth.sasl with a mechanism of {offered}"
            )
        if sasl is not None and answer.error == _NO_LOG_IN_HERE:
            return self._refusal(
                "knows no log-in, and the manifest has auth.sasl",
                "leave auth.sasl out, or name in bootstrapServers the port that asks for one",
            )
        if sasl is not None and answer.error == _UNSUPPORTED_MECHANISM:
            return self._refusal(f"doesn't offer {sasl.mechanism}", f"set auth.sasl.mechanism to {offered}")
        return None

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> SinkPipelineError:
        what = f"shows a certificate that can't be trusted: {error.verify_message.rstrip('.')}"
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            return self._refusal(what, "renew the brokers' certificate; or is this machine's clock wrong?")
        if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
            return self._refusal(what, "name the brokers in bootstrapServers as their certificate does, or reissue it")
        return self._refusal(what, "give auth.tls.caSecretRef the certificate of the authority that signed it")

    def _refused_client(self, tls: Tls, alert: str) -> SinkPipelineError:
        alert = alert.lower().replace("_", " ")
        if tls.certificate_file is None:
            return self._refusal(f"asks for a client's certificate ({alert})", "give auth.tls.certSecretRef")
        return self._refusal(
            f"refused our certificate ({alert})",
            "give auth.tls.certSecretRef a certificate that the brokers trust and that has not expired",
        )

    def _speaks_no_tls(self) -> SinkPipelineError | None:
        if self._ask(None) is None:
            return None
        return self._refusal(
            "speaks no TLS, and the manifest has auth.tls",
            "name in bootstrapServers the port that speaks TLS, or leave auth.tls out",
        )

    def _refusal(self, what: str, remedy: str) -> SinkPipelineError:
        return SinkPipelineError(Reason.AUTHENTICATION_FAILED, f"{self.host}:{self.port} {what}", remedy)

    def _connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), _TIMEOUT_S)

    def _ask(self, context: ssl.SSLContext | None) -> _Answer | None:
        """Asks for a way to log in; None where no Kafka answers."""
        mechanism = "PLAIN" if self.connection.sasl is None else self.connection.sasl.mechanism
        request = struct.pack(">hhihh", _SASL_HANDSHAKE, 1, 0, -1, len(mechanism)) + mechanism.encode()
        with self._connect() as raw:
            stream = raw if context is None else context.wrap_socket(raw, server_hostname=self.host)
            with stream:
                stream.sendall(struct.pack(">i", len(request)) + request)
                try:
                    return _parse(stream.recv(_MAX_ANSWER))
                except (TimeoutError, struct.error, ValueError):
                    return None
                except ConnectionError:
                    if context is not None:
                        raise
                    return None

    def _speaks_tls(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with self._connect() as raw, context.wrap_socket(raw, server_hostname=self.host):
                return True
        except ssl.SSLError as error:
            return bool(_ABOUT_OUR_CERTIFICATE.fullmatch(error.reason or ""))
        except OSError:
            return False


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    # The client does not insist on all that newer Pythons do.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    return context


def _parse(answer: bytes) -> _Answer:
    size, correlation, error, count = struct.unpack_from(">iihi", answer)
    if size != len(answer) - 4 or correlation != 0:
        raise ValueError("not an answer of Kafka")
    mechanisms, position = [], struct.calcsize(">iihi")
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, position)
        mechanisms.append(answer[position + 2 : position + 2 + length].decode("ascii"))
        position += 2 + length
    return _Answer(error, tuple(mechanisms))
