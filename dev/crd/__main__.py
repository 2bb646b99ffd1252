from __future__ import annotations

from crd.definition import PATH, text

PATH.parent.mkdir(exist_ok=True)
PATH.write_text(text())
print(f"wrote {PATH.name}, {PATH.stat().st_size} bytes")
