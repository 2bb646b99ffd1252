"""Texts of schemas to descriptors, by protoc, which `grpcio-tools` has as a module: in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from google.protobuf import descriptor_pb2

from sinkpipeline.core.deadletter import reason_of

_MAIN = "sinkpipeline.value.proto"
_TIMEOUT_S = 60.0
_AT = re.compile(r"^[^:]*sinkpipeline\.value\.proto:")
"""Where in our file; people know it as their schema."""
_ERROR = re.compile(r"^line [0-9]+:|\.proto")
_WARNING = re.compile(r"^[IW][0-9]{4} |: warning: ")


class NotProtobuf(Exception):
    """A text is no schema of Protobuf, or imports what isn't there; says why, in one line."""


def compiled(text: str, references: Mapping[str, str] | None = None) -> bytes:
    """A FileDescriptorSet of the schema and of all that it imports; the schema itself is the last file.

    What Google's well-known types need not be given.

    Args:
        text: a `.proto` file.
        references: the files that it imports, directly or not, by the names by which they are imported.

    Raises:
        NotProtobuf
    """
    return _compiled(text, tuple(sorted((references or {}).items())))


@lru_cache(maxsize=256)
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sinkpipeline-protobuf-") as name:
        # The names below `imports` are a registry's. Python looks for modules where it runs, so it runs beside them.
        imports, found, empty = (Path(name) / each for each in ("imports", "found", "empty"))
        empty.mkdir()
        for path, content in ((_MAIN, text), *references):
            _write(imports, path, content)
        # Only what lies in this directory can be imported, and what protoc itself brings.
        argv = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(imports), "--include_imports"]
        try:
            ended = subprocess.run(  # noqa: S603 - no shell; the names are ours
                [*argv, f"--descriptor_set_out={found}", _MAIN],
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                cwd=empty,
            )
        except subprocess.TimeoutExpired as late:
            raise NotProtobuf(f"protoc was not through with it after {_TIMEOUT_S:.0f} s") from late
        if ended.returncode or not found.exists():
            raise NotProtobuf(_first_words(ended.stderr.decode(errors="replace")))
        return found.read_bytes()


def _write(directory: Path, name: str, content: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".proto" or "\0" in name:
        raise NotProtobuf(f"{name!r} is no name of a file that can be imported")
    target = directory / path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # None may stand in place of another one, nor of the schema.
        with target.open("x", encoding="utf-8") as file:
            file.write(content)
    except (OSError, UnicodeEncodeError) as error:
        raise NotProtobuf(f"{name!r} is no file that can be imported") from error


def _first_words(told: str) -> str:
    lines = [_AT.sub("line ", line.strip()) for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line) and not _WARNING.search(line)]
    return reason_of((errors or lines or ["protoc gave no reason"])[0])


def files_of(described: bytes) -> list[descriptor_pb2.FileDescriptorProto]:
    """The files of a FileDescriptorSet, the schema itself last."""
    return list(descriptor_pb2.FileDescriptorSet.FromString(described).file)
