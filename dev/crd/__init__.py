"""The generator of the CustomResourceDefinition: `PYTHONPATH=dev python -m crd` writes it."""

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

__all__ = [
    "GROUP",
    "PATH",
    "PLURAL",
    "REVISION",
    "VERSION",
    "committed_revision",
    "custom_resource_definition",
    "renewed",
    "resource_schema",
    "revision_of",
    "text",
]
