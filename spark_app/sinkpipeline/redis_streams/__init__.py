"""Streams of Redis and Valkey as a kind of sink: rows and progress in one script."""
