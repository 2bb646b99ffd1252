"""The generator of the CustomResourceDefinitions: `PYTHONPATH=dev python -m crd` writes them."""

from crd.action import ACTION_PATH, ACTION_PLURAL, action_definition
from crd.definition import GROUP, PATH, PLURAL, VERSION, custom_resource_definition, resource_schema, text

PATHS = (PATH, ACTION_PATH)

__all__ = [
    "ACTION_PATH",
    "ACTION_PLURAL",
    "GROUP",
    "PATH",
    "PATHS",
    "PLURAL",
    "VERSION",
    "action_definition",
    "custom_resource_definition",
    "resource_schema",
    "text",
]
