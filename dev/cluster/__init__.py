"""A name of its own: without this file `tests/cluster` would be found first."""
