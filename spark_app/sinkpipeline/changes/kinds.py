"""Which kinds of databases there are. Only who reads one pays for its client."""

from __future__ import annotations

import importlib

from sinkpipeline.changes.ports import Kind
from sinkpipeline.changes.settings import AnyDatabase


def of(database: AnyDatabase) -> Kind:
    """The kind of a database."""
    found: Kind = importlib.import_module(f"sinkpipeline.changes.{database.name}.kind")
    return found
