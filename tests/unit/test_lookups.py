"""What a manifest keeps elsewhere: read once, within its limits; and whether lines can be a table."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sinkpipeline.core.errors import Reason
from sinkpipeline.core.lookups import (
    GivenRefused,
    Line,
    ParsedLine,
    TableText,
    check_lines,
    fingerprint_of,
    lines_of,
    without_header,
)
from sinkpipeline.core.manifest import ManifestError, SinkPipeline, parse_manifest
from sinkpipeline.core.rowplan import row_plan, rows_of
from sinkpipeline.kinds.given import read_given
from support.resource.manifests import SINK, changed, lookup, smallest

TABLE = TableText(format="csv", schema="id INT", key="id", origin="key t of ConfigMap c", content=b"1\n2")
REF = {"configMapRef": {"name": "tables", "key": "t.csv"}}
LIMIT = 1024 * 1024


def refusal(call: Any) -> GivenRefused:
    with pytest.raises(GivenRefused) as caught:
        call()
    assert caught.value.message.startswith(caught.value.path + ": ")
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.path) == (str(caught.value), caught.value.path)
    return caught.value


def of(source: dict[str, Any], **spec: Any) -> SinkPipeline:
    document = changed(smallest(), (("spec", "transform"), {"lookups": [lookup(source=source)]}))
    document["spec"] |= spec
    return parse_manifest(document)


def write(directory: Path, content: bytes, key: str = "t.csv") -> Path:
    (directory / "tables").mkdir(exist_ok=True)
    (directory / "tables" / key).write_bytes(content)
    return directory


# --- lines ---


def test_lines_keep_their_numbers() -> None:
    assert lines_of(b"\xef\xbb\xbfa,b\r\n\n  \nc\n") == [Line(1, b"a,b"), Line(4, b"c")]
    assert lines_of(b"") == []


def test_a_header_names_the_columns() -> None:
    lines = lines_of(b'"ID", name\n1,a')
    assert without_header(lines, "at", TABLE, ["id"]) == lines, "there is none"
    headed = replace(TABLE, header=True)
    assert without_header(lines, "at", headed, ["id", "Name"]) == [Line(2, b"1,a")]
    for columns in (["name", "id"], ["id"], ["id", "name", "more"]):
        assert refusal(lambda columns=columns: without_header(lines, "at", headed, columns)).reason is (
            Reason.LOOKUP_INVALID
        )
    assert "does not name the columns id" in refusal(lambda: without_header([], "at", headed, ["id"])).message


def test_every_line_is_a_row_with_a_key_of_its_own() -> None:
    check_lines("at", TABLE, [ParsedLine(1, 1, None), ParsedLine(2, 2, None)])
    wrong = [ParsedLine(number, number, "WrongType: x is not int") for number in range(1, 8)]
    error = refusal(lambda: check_lines("at", TABLE, [ParsedLine(9, None, None), *wrong]))
    assert error.reason is Reason.LOOKUP_INVALID
    assert error.message.startswith("at: key t of ConfigMap c is no table: line 9: id, the key, is null; line 1: Wrong")
    assert error.message.endswith("; and 3 more")
    twice = [ParsedLine(1, "a" * 200, None), ParsedLine(3, "b", None), ParsedLine(7, "a" * 200, None)]
    error = refusal(lambda: check_lines("at", TABLE, twice))
    assert error.reason is Reason.LOOKUP_NOT_UNIQUE
    assert f"id {'a' * 99}… stands in lines 1 and 7" in error.message


def test_the_fingerprint_is_that_of_the_file() -> None:
    assert fingerprint_of(replace(TABLE, content=b"")).startswith("e3b0c44298fc1c14"), "as sha256sum gives it"
    assert fingerprint_of(TABLE) != fingerprint_of(replace(TABLE, content=b"1\n3"))


# --- what is elsewhere ---


def test_what_is_elsewhere_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "NL;é".encode())
    (tmp_path / "own.csv").write_bytes(b"own")
    own = {"transform": {"lookups": [lookup(source={"file": str(tmp_path / "own.csv")})]}}
    asked = changed(of(REF).to_document(), ((*SINK, "transform"), own["transform"]))
    pipeline = read_given(parse_manifest(asked), tmp_path)
    write(tmp_path, b"later")
    rows = row_plan(pipeline)
    [table] = [each.table for each in rows.lookups]
    assert (table.content, table.origin) == ("NL;é".encode(), "key t.csv of ConfigMap tables")
    [table] = [each.table for each in rows_of(rows, pipeline, "copy").lookups]
    assert (table.content, table.origin) == (b"own", f"file {tmp_path / 'own.csv'}")
    assert [each.table.content for each in row_plan(parse_manifest(asked)).lookups] == [None], "not read yet"
    assert [each.table.content for each in row_plan(of({"inline": "NL,1"})).lookups] == [b"NL,1"]


def test_a_sink_may_look_nothing_up() -> None:
    pipeline = parse_manifest(changed(of({"inline": "a"}).to_document(), ((*SINK, "transform"), {"lookups": []})))
    assert rows_of(row_plan(pipeline), pipeline, "copy").lookups == ()


@pytest.mark.parametrize(
    ("content", "reason", "told"),
    [
        (None, Reason.CONFIG_MAP_NOT_FOUND, "t.csv can't be read: No such file"),
        (b"x" * (LIMIT + 1), Reason.LOOKUP_INVALID, "is larger than 1048576 bytes (1 MiB)"),
        (b"a\nb\n\xff", Reason.LOOKUP_INVALID, "line 3 is not valid UTF-8"),
    ],
)
def test_what_can_t_be_read_is_told_with_its_place(
    tmp_path: Path, content: bytes | None, reason: Reason, told: str
) -> None:
    if content is not None:
        write(tmp_path, content)
    error = refusal(lambda: read_given(of(REF), tmp_path))
    assert (error.reason, error.path) == (reason, "spec.transform.lookups[0].from.configMapRef")
    assert told in error.message
    assert error.reason.heals, "who mends the ConfigMap mends the pipeline"


def test_the_largest_table(tmp_path: Path) -> None:
    write(tmp_path, b"x" * LIMIT)
    [table] = [each.table for each in row_plan(read_given(of(REF), tmp_path)).lookups]
    assert len(table.content or b"") == LIMIT


def test_without_a_directory_the_option_is_told() -> None:
    error = refusal(lambda: read_given(of(REF), None))
    assert "give --config-maps-dir DIR, where DIR/tables/t.csv holds it" in str(error)
    assert read_given(of({"inline": "a"}), None) == of({"inline": "a"})


def test_a_schema_may_be_in_a_config_map(tmp_path: Path) -> None:
    avro = json.dumps({"type": "record", "name": "a", "fields": []})
    decode = {"format": "avro", "schemaConfigMapRef": {"name": "tables", "key": "a.avsc"}}
    pipeline = of({"inline": "a"}, decode=decode)
    write(tmp_path, avro.encode(), "a.avsc")
    read = read_given(pipeline, tmp_path)
    assert read.spec.decode == of({"inline": "a"}, decode={"format": "avro", "schema": avro}).spec.decode
    assert row_plan(read).schema == avro
    write(tmp_path, b"no json", "a.avsc")
    with pytest.raises(ManifestError, match=r"spec\.decode\.schema: is no JSON"):
        read_given(pipeline, tmp_path)


def test_the_manifest_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    pipeline = of(REF)
    before = copy.deepcopy(pipeline)
    read_given(pipeline, tmp_path)
    assert pipeline == before
