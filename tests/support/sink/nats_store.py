"""What a server of NATS has on its disk, cut as a machine leaves it that failed before its disk had all."""

from __future__ import annotations

from pathlib import Path

from servers.nats import LocalNats


def block_of(server: LocalNats, stream: str) -> Path:
    [block] = server.store.glob(f"*/streams/{stream}/msgs/*.blk")
    return block


def cut(server: LocalNats, stream: str, size: int) -> None:
    """The last bytes of its only block, and what is an index of them."""
    server.kill()
    block = block_of(server, stream)
    for index in block.parent.glob("*.db"):
        index.unlink()
    with block.open("r+b") as file:
        file.truncate(size)
    server.start()
