"""Protobuf: schemas compiled, what their messages have for columns, and values read; the only place that knows it.

text of a schema ─► compiler (protoc) ─► Message ─► columns (DDL) ─► reading (Arrow)
"""
