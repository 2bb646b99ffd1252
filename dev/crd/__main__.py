from __future__ import annotations

from crd import reference
from crd.action import ACTION_PATH, action_definition
from crd.definition import PATH, committed_revision, custom_resource_definition, renewed

PATH.parent.mkdir(exist_ok=True)
for path, definition in ((PATH, custom_resource_definition()), (ACTION_PATH, action_definition())):
    path.write_text(renewed(path.read_text() if path.exists() else "", definition))
    print(f"wrote {path.name}, revision {committed_revision(path)}, {path.stat().st_size} bytes")
reference.REFERENCE.write_text(reference.text())
print(f"wrote {reference.REFERENCE.name}")
