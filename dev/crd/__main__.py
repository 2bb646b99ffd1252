from __future__ import annotations

from crd.action import ACTION_PATH, action_definition
from crd.definition import PATH, text

PATH.parent.mkdir(exist_ok=True)
for path, content in ((PATH, text()), (ACTION_PATH, text(action_definition()))):
    path.write_text(content)
    print(f"wrote {path.name}, {path.stat().st_size} bytes")
