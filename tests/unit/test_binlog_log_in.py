"""A server that asks for a password as it is, which none of the tests' servers does by itself."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sinkpipeline.changes.binlog.wire import Wire
from sinkpipeline.changes.settings import BinlogConnection
from sinkpipeline.core.errors import Reason, SinkPipelineError

_GREETING = (
    b"\x0a8.4.0\0"
    + struct.pack("<I8sxHBHHB10x", 1, b"12345678", 0xFFFF & ~0x800, 45, 2, 0x00FF, 21)
    + b"123456789012\0mysql_native_password\0"
)
PASSWORD = "not to be read"


def _packet(number: int, data: bytes) -> bytes:
    return len(data).to_bytes(3, "little") + bytes([number]) + data


def _serve(listener: socket.socket, plugin: str) -> bytes:
    """What a client sends until it goes."""
    with closing(listener.accept()[0]) as stream, stream.makefile("rwb") as file:
        file.write(_packet(0, _GREETING))
        file.flush()
        head = file.read(4)
        told = file.read(int.from_bytes(head[:3], "little"))
        file.write(_packet(head[3] + 1, b"\xfe" + plugin.encode() + b"\0" + b"\x02Password: "))
        file.flush()
        return bytes(told + file.read())


@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog", "mysql_old_password", "parsec"])
def test_a_password_is_not_sent_as_it_is(plugin: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, ThreadPoolExecutor(1) as pool:
        told = pool.submit(_serve, listener, plugin)
        connection = BinlogConnection(
            server=f"127.0.0.1:{listener.getsockname()[1]}", user="cdc", password_file=str(tmp_path / "password")
        )
        with pytest.raises(SinkPipelineError, match="password") as raised:
            Wire(connection, "here")
        assert raised.value.reason is Reason.AUTHENTICATION_FAILED
        assert b"cdc" in told.result()
        assert PASSWORD.encode() not in told.result()
