from __future__ import annotations

from crd.definition import PATH, committed_revision, text

PATH.parent.mkdir(exist_ok=True)
revision = committed_revision()
if not PATH.exists() or PATH.read_text() != text(revision):
    # Anything else than what is there is newer: an operator replaces what has a lower number.
    revision += 1
PATH.write_text(text(revision))
print(f"wrote {PATH.name}, revision {revision}, {PATH.stat().st_size} bytes")
