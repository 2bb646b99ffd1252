"""What schemas of a registry mean for records of Protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkpipeline.core.schemas import Writer
from sinkpipeline.protobuf import messages
from sinkpipeline.protobuf.compiler import NotProtobuf, compiled
from sinkpipeline.protobuf.messages import Message, message_of, paths_of
from sinkpipeline.spark.protobuf import paths_text, require_protobuf
from sinkpipeline.spark.schemas import no_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinkpipeline.kafka.registry import Found


class ProtobufSchemas:
    """A value names its writer's schema, and its message there; it is read by the reader's message of that name.

    A writer's `schema`, as a plan has it, is where that message stands in it.
    """

    def __init__(self, spark: SparkSession, message: str | None) -> None:
        """Raises: NotServed."""
        require_protobuf(spark)
        self._message = message

    def given(self, text: str) -> str:
        raise NotImplementedError("the manifest's types let no schema of Protobuf through that a reader gives itself")

    def reader(self, found: Found) -> str:
        if found.kind != "PROTOBUF":
            raise no_columns(f"it is {found.kind}, and not Protobuf")
        try:
            message = message_of(compiled(found.text, found.files), self._message)
            messages.columns_of(message)
        except NotProtobuf as error:
            raise no_columns(str(error)) from error
        return message.to_text()

    def writer(self, frame: bytes, found: Found, reader: str) -> Writer:
        if found.kind != "PROTOBUF":
            return Writer(frame, "", f"it is {found.kind}, and not Protobuf")
        message = Message.from_text(reader)
        try:
            files = compiled(found.text, found.files)
            paths = paths_of(files).get(message.name)
            wrong = None if paths is None else messages.misfit(message, Message(files, message.name))
        except NotProtobuf as error:
            return Writer(frame, "", str(error))
        if paths is None:
            wrong = f"it has no message {message.name}"
        elif not paths:
            wrong = f"the path of message {message.name} in it means another one to other serializers"
        return Writer(frame, "" if wrong else paths_text(paths or frozenset()), wrong)
