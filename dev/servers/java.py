"""The Java programs of this machine's servers: who runs them, and which version `dev/maven` pins."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

# A server is ready in less than half the time that the JVM's full compiler needs. Benchmarks pass () instead.
FAST_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def java_executable() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def pinned(project: str, name: str) -> str:
    """A property of a project below `dev/maven`, such as `kafka.version`.

    Raises:
        LookupError: there is none.
    """
    pom = Path(__file__).parents[1] / "maven" / project / "pom.xml"
    found = re.search(rf"<{re.escape(name)}>(.+)</{re.escape(name)}>", pom.read_text())
    if found is None:
        raise LookupError(f"{pom} names no {name}")
    return found[1]
