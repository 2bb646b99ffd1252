"""What a manifest keeps elsewhere: schemas and tables in ConfigMaps and files, read once, when something starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.lookups import MAX_TABLE_BYTES, GivenRefused
from sinkpipeline.core.manifest import ConfigMapRef, Decode, Lookup, SinkPipeline, TableSource, parse_manifest

OPTION = "--config-maps-dir"


def read_given(pipeline: SinkPipeline, config_maps_dir: Path | None) -> SinkPipeline:
    """The manifest with what it refers to beside the references: `config_maps_dir/<name>/<key>`, and files.

    Whoever holds the result has what a whole run goes by: nothing of it is read again.

    Raises:
        GivenRefused: ConfigMapNotFound, LookupInvalid.
        ManifestError: what is in the place of a schema is none.
    """
    decode = _decode(pipeline, config_maps_dir)
    transform = pipeline.spec.transform
    if transform.lookups is not None:
        lookups = _lookups(transform.lookups, "spec.transform", config_maps_dir)
        transform = transform.model_copy(update={"lookups": lookups})
    sinks = []
    for index, sink in enumerate(pipeline.spec.sinks):
        own = sink.transform
        if own is not None and own.lookups is not None:
            lookups = _lookups(own.lookups, f"spec.sinks[{index}].transform", config_maps_dir)
            sink = sink.model_copy(update={"transform": own.model_copy(update={"lookups": lookups})})  # noqa: PLW2901
        sinks.append(sink)
    spec = pipeline.spec.model_copy(update={"decode": decode, "transform": transform, "sinks": tuple(sinks)})
    return pipeline.model_copy(update={"spec": spec})


def _decode(pipeline: SinkPipeline, config_maps_dir: Path | None) -> Decode:
    """With the schema in its place: parsed again, as it keeps the rules of one that stands there."""
    ref = pipeline.spec.decode.schema_config_map_ref
    if ref is None:
        return pipeline.spec.decode
    at = "spec.decode.schemaConfigMapRef"
    content = _content(at, _path(at, ref, config_maps_dir))
    document = pipeline.to_document()
    del document["spec"]["decode"]["schemaConfigMapRef"]
    document["spec"]["decode"]["schema"] = _text(at, content)
    return parse_manifest(document).spec.decode


def _lookups(lookups: Sequence[Lookup], transform: str, config_maps_dir: Path | None) -> tuple[Lookup, ...]:
    return tuple(
        each.model_copy(update={"from_": _source(each.from_, f"{transform}.lookups[{index}].from", config_maps_dir)})
        for index, each in enumerate(lookups)
    )


def _source(source: TableSource, at: str, config_maps_dir: Path | None) -> TableSource:
    """With the lines beside where they are: longer ones than a manifest may hold itself."""
    if source.config_map_ref is not None:
        path = _path(f"{at}.configMapRef", source.config_map_ref, config_maps_dir)
        return source.model_copy(update={"inline": _text(f"{at}.configMapRef", _content(f"{at}.configMapRef", path))})
    if source.file is not None:
        return source.model_copy(update={"inline": _text(f"{at}.file", _content(f"{at}.file", Path(source.file)))})
    return source


def _path(at: str, ref: ConfigMapRef, config_maps_dir: Path | None) -> Path:
    if config_maps_dir is None:
        raise GivenRefused(
            Reason.CONFIG_MAP_NOT_FOUND,
            at,
            f"it is key {ref.key} of ConfigMap {ref.name}, and no directory of ConfigMaps was given",
            f"give {OPTION} DIR, where DIR/{ref.name}/{ref.key} holds it",
        )
    return config_maps_dir / ref.name / ref.key


def _content(at: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
    except OSError as error:
        raise GivenRefused(
            Reason.CONFIG_MAP_NOT_FOUND,
            at,
            f"{path} can't be read: {error.strerror}",
            "create the ConfigMap with that key, or the file; then start again",
        ) from error
    if len(content) > MAX_TABLE_BYTES:
        raise GivenRefused(
            Reason.LOOKUP_INVALID,
            at,
            f"{path} is larger than {MAX_TABLE_BYTES} bytes (1 MiB)",
            "make it smaller: leave out columns that no expression uses, or rows that nothing looks for",
        )
    return content


def _text(at: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise GivenRefused(
            Reason.LOOKUP_INVALID, at, f"line {line} is not valid UTF-8", "write it as UTF-8; then start again"
        ) from error
