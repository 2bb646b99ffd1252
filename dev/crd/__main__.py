from __future__ import annotations

from crd.definition import PATH, committed_revision, renewed

PATH.parent.mkdir(exist_ok=True)
PATH.write_text(renewed(PATH.read_text() if PATH.exists() else ""))
print(f"wrote {PATH.name}, revision {committed_revision()}, {PATH.stat().st_size} bytes")
