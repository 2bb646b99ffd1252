"""What MariaDB has compressed: an event, or the value of a column. A head, of how long it is, and zlib's bytes.

Source: MariaDB's documentation, "Compressing Events to Reduce Size of the Binary Log" and "Storage-Engine Independent
Column Compression", and what servers have sent.
"""

from __future__ import annotations

import zlib
from typing import Final

from sinkpipeline.core.changes.pgoutput import NotUnderstood

_COMPRESSED: Final = 0x80
_BARE: Final = 0x08
"""Without what zlib itself writes before and behind its bytes."""


def uncompressed(data: bytes) -> bytes:
    """Raises NotUnderstood, IndexError, zlib.error."""
    first = data[0]
    if not first & _COMPRESSED or first & 0x70:
        raise NotUnderstood(f"bytes that are compressed in a way that is not known: {first}")
    size = first & 0x07
    plain = zlib.decompress(data[1 + size :], -zlib.MAX_WBITS if first & _BARE else zlib.MAX_WBITS)
    if len(plain) != int.from_bytes(data[1 : 1 + size], "big"):
        raise NotUnderstood("bytes that are longer or shorter than their head says")
    return plain
