"""What a client of any server is given for TLS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Paths of PEM files; without authorities, those of the image."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
