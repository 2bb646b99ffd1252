"""The generator of the CustomResourceDefinitions: `PYTHONPATH=dev python -m crd` writes them."""

from crd.action import ACTION_PATH, ACTION_PLURAL, action_definition
from crd.definition import (
    GROUP,
    PATH,
    PLURAL,
    REVISION,
    VERSION,
    committed_revision,
    custom_resource_definition,
    renewed,
    resource_schema,
    revision_of,
    text,
)

PATHS = (PATH, ACTION_PATH)

__all__ = [
    "ACTION_PATH",
    "ACTION_PLURAL",
    "GROUP",
    "PATH",
    "PATHS",
    "PLURAL",
    "REVISION",
    "VERSION",
    "action_definition",
    "committed_revision",
    "custom_resource_definition",
    "renewed",
    "resource_schema",
    "revision_of",
    "text",
]
