"""What Avro schemas of Debezium's envelopes say, as its converters registered them."""

from __future__ import annotations

import json

import pytest

from sinkpipeline.core.debezium import NoEnvelope, disagreement, kinds_of_avro
from support.debezium import recorded


def test_each_column_has_its_kind() -> None:
    found = kinds_of_avro(recorded("postgresql").schemas[0])
    assert {name: found.get(name) for name in ("id", "price", "amount", "day", "at3", "at6", "at_zone", "big")} == {
        "id": None,
        "price": "org.apache.kafka.connect.data.Decimal",
        "amount": "io.debezium.data.VariableScaleDecimal",
        "day": "io.debezium.time.Date",
        "at3": "io.debezium.time.Timestamp",
        "at6": "io.debezium.time.MicroTimestamp",
        "at_zone": "io.debezium.time.ZonedTimestamp",
        "big": None,
    }


def test_a_column_that_was_altered_means_another_thing() -> None:
    reader, _, altered, without_ratio = recorded("postgresql").schemas[:4]
    assert disagreement(reader, reader) is None
    assert disagreement(altered, without_ratio) is None, "a column less is Avro's to judge"
    told = disagreement(reader, altered)
    assert told == "after.at3 is io.debezium.time.MicroTimestamp, and in the reader's io.debezium.time.Timestamp"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('"string"', "no before"),
        ({"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}, "no before"),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [{"name": each, "type": "string"} for each in ("before", "after", "op", "source", "ts_ms")],
            },
            "after is no record",
        ),
    ],
)
def test_what_is_no_envelope(schema: object, why: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(NoEnvelope, match=why):
        kinds_of_avro(text)
    assert why in (disagreement(recorded("postgresql").schemas[0], text) or "")
