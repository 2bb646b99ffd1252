"""The certificate authorities that this machine trusts, for clients that bring a list of another distribution."""

from __future__ import annotations

import os
import ssl
from pathlib import Path


def system_authorities() -> str | None:
    """The path of the machine's own bundle, PEM; None where there is none that we know."""
    known = (
        os.environ.get("SSL_CERT_FILE"),
        ssl.get_default_verify_paths().cafile,
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/cert.pem",
    )
    return next((path for path in known if path and Path(path).is_file()), None)
