"""Protobuf values as producers write them."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format, message_factory

from sinkpipeline.protobuf.compiler import compiled
from sinkpipeline.protobuf.messages import message_of

ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  double amount = 3;
  Status status = 4;
  repeated Line lines = 5;
  map<string, int32> tags = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.StringValue nick = 8;
  oneof paid { string card = 9; bytes cash = 10; }
  uint64 large = 11;
  Line first = 12;
  repeated string words = 13;
  message Line { string sku = 1; uint32 n = 2; repeated bool flags = 3; }
  enum Status { NEW = 0; SENT = 1; }
}
message Refund { int64 id = 1; }
"""


def body(text: str, value: dict[str, Any], message: str | None = None) -> bytes:
    """A value without frame and path, from how Protobuf writes it as JSON."""
    kind = message_factory.GetMessageClass(message_of(compiled(text), message).descriptor)
    found: bytes = json_format.ParseDict(value, kind()).SerializeToString(deterministic=True)
    return found


def varint(number: int) -> bytes:
    """In zigzag, as steps of a path are written."""
    number, found = number << 1 if number >= 0 else (-number << 1) - 1, b""
    while number > 0x7F:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def path(*steps: int) -> bytes:
    """Of a message in its file, in Confluent's format."""
    return b"\0" if steps == (0,) else varint(len(steps)) + b"".join(map(varint, steps))
