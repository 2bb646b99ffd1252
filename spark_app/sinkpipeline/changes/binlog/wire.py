"""Connections to a server whose binary log is read, and what their errors mean: the one place for PyMySQL.

PyMySQL has no call for a dump of the log, so the command is sent by what its cursors send theirs by.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from sinkpipeline.authorities import system_authorities
from sinkpipeline.cells.secrets import secret
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.changes.binlog_kinds import BinlogKind
from sinkpipeline.core.errors import Reason, SinkPipelineError

CONNECT_S: Final = 10
SILENCE_S: Final = 30
"""A server that says nothing for so long, although it was asked, is taken for gone."""
LONG_S: Final = 3600
"""Likewise, where it may have to look for rows, or to sort them."""
HEARTBEAT_MS: Final = 100
"""How often it says that nothing has come."""
_SESSION: Final = (
    # What a text means is not for the server's configuration to say.
    "SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, wait_timeout = 28800,"
    # Nor how many rows a table has, or which columns.
    " sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_quote_show_create = 1"
    "/*!80000 , max_execution_time = 0 *//*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
    "/*M! , max_statement_time = 0 */"
)
_DUMP: Final = (
    # Without the first one MariaDB tells GTIDs as old replicas know them: as a BEGIN. Each server reads its own names.
    "SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@global.binlog_checksum, "
    "@source_binlog_checksum = @@global.binlog_checksum, "
    f"@master_heartbeat_period = {HEARTBEAT_MS * 1_000_000}, @source_heartbeat_period = {HEARTBEAT_MS * 1_000_000}"
)
_COM_BINLOG_DUMP: Final = 0x12
_REQUEST = struct.Struct("<IHI")
_ENDED: Final = 0xFE
_NON_BLOCK: Final = 1

_LOGIN: Final = frozenset({1045, 1698, 1251, 1275, 1820, 1862, 2061, 3118, 3159, 3955, 4151})
_NO_LOGIN: Final = 1045
_NO_PLUGIN: Final = 2059
_OF_TLS: Final = ("CERTIFICATE_VERIFY_FAILED", "SSL is required", "CERTIFICATE_REQUIRED", "UNKNOWN_CA")
"""What stands in an error where one side does not trust the other."""
_NO_TABLE: Final = 1146
_NO_RIGHT_ON_TABLE: Final = 1142
_NO_RIGHT: Final = frozenset({1044, _NO_RIGHT_ON_TABLE, 1143, 1227, 1370, 1410})
_NO_DUMP: Final = 1236
_NO_LOG: Final = 1381
_GONE: Final = frozenset(
    {1040, 1053, 1077, 1080, 1129, 1152, 1153, 1158, 1159, 1160, 1161, 1203, 1927, 3032, 3169, 4031}
)
"""The server ends, is full, or has ended the connection."""
_OF_THE_CLIENT: Final = range(2000, 2100)


class OutOfEvents(SinkPipelineError):
    """The server has ended the stream: with its log, where that was asked for."""


class SqlFault(Exception):
    """A statement of ours was refused: its number tells why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @property
    def is_of_the_log(self) -> bool:
        """Whether the server can't hand out its log from there."""
        return self.code == _NO_DUMP and not self.is_of_a_rival

    @property
    def is_of_a_half(self) -> bool:
        """Whether a file of its log ends in the middle of an event."""
        return self.is_of_the_log and "truncated in the middle of event" in self.text

    @property
    def is_of_a_rival(self) -> bool:
        """Whether another reader of the same number has come."""
        return "same server_uuid/server_id" in self.text

    @property
    def is_of_no_table(self) -> bool:
        return self.code == _NO_TABLE

    @property
    def is_of_no_right(self) -> bool:
        """Whether the user may not do that with a table, of which it is not told whether it is there."""
        return self.code == _NO_RIGHT_ON_TABLE


class _Refused:
    """In place of a plugin that sends a password, which a server asks for before it has shown who it is."""

    def __init__(self, _: object) -> None:
        """As PyMySQL makes it, of a connection."""

    def authenticate(self, _: object) -> None:
        """Raises what PyMySQL raises where it has no such plugin."""
        raise pymysql.OperationalError(_NO_PLUGIN, "the server asks for a password that can be read on the way")


_READABLE: Final[dict[str, Callable[[Any], Any]]] = dict.fromkeys(
    ("mysql_clear_password", "dialog", "mysql_old_password"), _Refused
)


class Wire:
    """One connection; of one thread."""

    def __init__(self, connection: BinlogConnection, where: str) -> None:
        """Connects.

        Raises:
            SinkPipelineError: SourceUnreachable, AuthenticationFailed, SourceUnsuitable, SecretNotFound.
        """
        self._where = where
        self._user = connection.user
        host, port = connection.server.rsplit(":", 1)
        password = "" if connection.password_file is None else secret(connection.password_file)
        tls = None if connection.tls is None else _context(connection)
        try:
            self._session = pymysql.connect(
                host=host.strip("[]"),
                port=int(port),
                user=connection.user,
                # As text it would be of ISO 8859-1.
                password=password.encode(),
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=CONNECT_S,
                read_timeout=SILENCE_S,
                write_timeout=SILENCE_S,
                init_command=_SESSION,
                # Each value as the server spells it: text, or bytes.
                conv={kind: encode for kind, encode in encoders.items()},  # noqa: C416 - of another type
                ssl=tls,
                ssl_disabled=tls is None,
                auth_plugin_map=_READABLE if tls is None else None,
                client_flag=CLIENT.FOUND_ROWS,
                program_name="sinkpipeline",
            )
        except (pymysql.Error, OSError) as error:
            raise self._not_connected(error) from error
        except RuntimeError as error:
            # PyMySQL, where a password is to be encrypted, and there is no package to do it with.
            raise self._not_connected(pymysql.OperationalError(_NO_LOGIN, str(error))) from error

    def close(self) -> None:
        with contextlib.suppress(pymysql.Error, OSError):
            self._session.close()

    def wait_long(self) -> None:
        """From here on it asks for what a server may have to look for, or to sort."""
        self._session._read_timeout = LONG_S  # type: ignore[attr-defined]  # noqa: SLF001

    def cancel(self) -> None:
        """Ends what is waited for, whatever that is; for any thread."""
        self._session._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]  # noqa: SLF001

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a statement answers: each value as text, or as bytes where it has no character set.

        Raises:
            SqlFault
            SinkPipelineError: SourceUnreachable.
        """
        try:
            with self._session.cursor() as cursor:
                cursor.execute(statement, tuple(parameters) or None)
                return list(cursor.fetchall())
        except (pymysql.Error, OSError) as error:
            raise self._fault(error) from error

    def read(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Likewise, without having all of it at once; until that ends the connection can't be used for anything else.

        Raises:
            SqlFault
            SinkPipelineError: SourceUnreachable.
        """
        cursor = self._session.cursor(SSCursor)
        try:
            cursor.execute(statement)
            while (row := cursor.fetchone()) is not None:
                yield row
        except (pymysql.Error, OSError) as error:
            raise self._fault(error) from error
        except UnicodeDecodeError as error:
            raise SinkPipelineError(
                Reason.SOURCE_UNSUITABLE,
                f"{self._where} has a text that is none: {error}",
                "look for half a surrogate (U+D800 to U+DFFF) in columns of text, and correct it",
            ) from error
        finally:
            self._let_go(cursor)

    def _let_go(self, cursor: Any) -> None:
        """PyMySQL would receive what is left of the rows, also where nobody wants them, or nothing comes any more."""
        result, cursor.connection = cursor._result, None  # noqa: SLF001
        if result is not None and result.unbuffered_active:
            result.unbuffered_active, result.connection = False, None
            self._session._force_close()  # type: ignore[attr-defined]  # noqa: SLF001

    def literal(self, text: str) -> str:
        """As a statement has it."""
        return str(self._session.escape(text))

    def dump(self, file: str, offset: int, server_id: int = 0) -> None:
        """Begins to read the log there. From then on only `receive` may be used.

        Args:
            file: of the log.
            offset: where a transaction begins or ends in it.
            server_id: who reads it as this one is ended. 0: nobody is, and the stream ends with the log.

        Raises:
            SqlFault
            SinkPipelineError: SourceUnreachable.
        """
        self.rows(_DUMP)
        try:
            request = _REQUEST.pack(offset, 0 if server_id else _NON_BLOCK, server_id) + file.encode()
            self._session._execute_command(_COM_BINLOG_DUMP, request)  # type: ignore[attr-defined]  # noqa: SLF001
        except (pymysql.Error, OSError) as error:
            raise self._fault(error) from error

    def receive(self) -> bytes:
        """The next event.

        Raises:
            SqlFault: also where the server has not what was asked for.
            OutOfEvents
            SinkPipelineError: SourceUnreachable.
        """
        try:
            packet = self._session._read_packet()  # type: ignore[no-untyped-call]  # noqa: SLF001
        except (pymysql.Error, OSError) as error:
            raise self._fault(error) from error
        data: bytes = packet.get_all_data()
        if data[0] == _ENDED:
            raise self._unreachable("the server has ended the stream", OutOfEvents)
        return data[1:]

    def _fault(self, error: Exception) -> Exception:
        code, text = _told(error)
        if code is None or code == 0 or code in _OF_THE_CLIENT or code in _GONE or not self._session.open:
            return self._unreachable(text)
        return SqlFault(code, f"{text} (error {code})")

    def _unreachable(self, text: str, kind: type[SinkPipelineError] = SinkPipelineError) -> SinkPipelineError:
        return kind(
            Reason.SOURCE_UNREACHABLE,
            f"{self._where}: {text}",
            "nothing if the server restarts, or another stage took over; else check that it runs and that server names "
            "it as this machine reaches it",
        )

    def _not_connected(self, error: Exception) -> SinkPipelineError:
        code, text = _told(error)
        if any(each in text for each in _OF_TLS):
            remedy = "check auth.tls: the authority that has signed the server's certificate, and the name in server"
            return SinkPipelineError(Reason.AUTHENTICATION_FAILED, f"{self._where}: {text}", remedy)
        if code == _NO_PLUGIN:
            remedy = (
                "write auth.tls if the user's plugin wants the password as it is, as PAM and LDAP do; else give the "
                "user a password by caching_sha2_password, sha256_password or mysql_native_password"
            )
            return SinkPipelineError(Reason.AUTHENTICATION_FAILED, f"{self._where}: {text}", remedy)
        if code in _LOGIN:
            remedy = (
                "check auth of the source and its Secrets; and at the server that the user may come from this host, is "
                "neither locked nor expired, and whether it asks for TLS (auth.tls)"
            )
            return SinkPipelineError(Reason.AUTHENTICATION_FAILED, f"{self._where}: {text}", remedy)
        return self._unreachable(text)


def refused(fault: SqlFault, where: str, user: str, kind: BinlogKind) -> SinkPipelineError:
    """What a refusal means; `user`: with its host, as the server has it."""
    fact = f"{where}: {fault.text}"
    if fault.code in _NO_RIGHT:
        return SinkPipelineError(Reason.SOURCE_UNSUITABLE, fact, kind.rights_for(user))
    if fault.is_of_a_rival:
        return SinkPipelineError(
            Reason.SOURCE_UNREACHABLE,
            fact,
            f"nothing if another stage took over; else give this one a number of its own: source.{kind.name}.serverId",
        )
    if fault.code == _NO_LOG:
        return SinkPipelineError(
            Reason.SOURCE_DATA_LOST,
            f"{fact}: it was begun with one, and goes on without, so that what is changed now is logged nowhere",
            "look into the server's log why it could not write; start the server anew; look what the topic lacks, and "
            "go on under another spec.identity",
        )
    return SinkPipelineError(Reason.SOURCE_UNREACHABLE, fact, "look at the server's log")


def _told(error: Exception) -> tuple[int | None, str]:
    """The number, and what it says, on one line."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if isinstance(error, OSError):
        code, text = None, str(error)
    return code, " ".join(text.split()) or type(error).__name__


def _context(connection: BinlogConnection) -> ssl.SSLContext:
    tls = connection.tls
    if tls is None:
        raise ValueError("a connection without TLS has no context")
    context = ssl.create_default_context(cafile=tls.ca_file or system_authorities())
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    return context
