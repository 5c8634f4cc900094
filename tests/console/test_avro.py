"""Values in Avro as text, by a schema."""

from __future__ import annotations

import json
from io import BytesIO
from random import Random
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from magnetar_console.looks.avro import AvroValues
from magnetar_core.config import InvalidConfig

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "parts", "type": {"type": "array", "items": ["null", "Order"]}},
        {"name": "tags", "type": {"type": "map", "values": "Hash"}},
    ],
}


def written(schema: Any, datum: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), datum)
    return out.getvalue()


def order(number: int, parts: list[Any]) -> dict[str, Any]:
    return {
        "id": number,
        "note": None if number else "größer",
        "at": 1_700_000_000_123,
        "on": 19_000,
        "price": b"\xff\x85",
        "state": "PAID",
        "hash": b"\x01\xff",
        "parts": parts,
        "tags": {"a": b"\x00\x01"},
    }


def test_a_value_is_shown_with_all_of_its_fields() -> None:
    found = AvroValues(json.dumps(ORDER)).show(written(ORDER, order(0, [None, order(7, [])])))
    told = json.loads(found["text"])
    assert (found["form"], found["cut"]) == ("Avro", False)
    assert told["note"] == "größer"
    assert told["at"] == "2023-11-14T22:13:20.123+00:00"
    assert told["on"] == "2022-01-08"
    assert told["price"] == "-1.23"
    assert (told["state"], told["hash"]) == ("PAID", "0x01ff")
    assert told["parts"][1]["id"] == 7
    assert told["tags"] == {"a": "0x0001"}


@pytest.mark.parametrize(
    ("schema", "datum", "text"),
    [
        ("string", "a", '"a"'),
        (["null", "double"], 1.5, "1.5"),
        ({"type": "map", "values": "boolean"}, {"x": True}, '{"x": true}'),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1, '"1970-01-01T00:00:00.000001'),
        ({"type": "int", "logicalType": "unknown"}, 5, "5"),
    ],
)
def test_other_schemas(schema: Any, datum: Any, text: str) -> None:
    found = AvroValues(json.dumps(schema)).show(written(schema, datum))
    assert found["text"].startswith(text)
    assert "note" not in found


def test_what_is_not_of_the_schema_is_shown_without_it() -> None:
    values = AvroValues(json.dumps(ORDER))
    found = values.show(b"plain")
    assert (found["text"], found["form"]) == ("plain", "text")
    assert found["note"].startswith("not Avro of the schema")
    good = written(ORDER, order(1, []))
    assert "bytes are left" in values.show(good + b"xx")["note"]
    assert "its end is missing" in values.show(good[:-1])["note"]
    assert "too long" in values.show(b"{" + b" " * 70_000)["note"]


def test_no_bytes_break_it() -> None:
    values, random = AvroValues(json.dumps(ORDER)), Random(4)
    good = written(ORDER, order(1, [order(2, [None])]))
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        values.show(bytes(data[: random.randrange(len(data) + 1)]))


@pytest.mark.usefixtures("full_stack")
def test_few_bytes_cannot_declare_much() -> None:
    # 2**62 items.
    data = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    longs = AvroValues('{"type": "array", "items": "long"}')
    assert "its end is missing" in longs.show(data)["note"]
    for empty in (
        '"null"',
        '{"type": "fixed", "name": "F", "size": 0}',
        '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}',
    ):
        with pytest.raises(InvalidConfig, match="without content"):
            AvroValues(f'{{"type": "array", "items": {empty}}}')
    # A record that contains itself takes a byte for its list.
    AvroValues(
        '{"type": "record", "name": "T", "fields":'
        ' [{"name": "c", "type": {"type": "array", "items": "T"}}]}'
    )
    endless = AvroValues('{"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}')
    assert "nested too deeply" in endless.show(b"x")["note"]
    decimal = '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}'
    assert "too many digits" in AvroValues(decimal).show(written("bytes", b"\x01" * 200))["note"]


def test_framed_values_name_the_schema_of_their_writer() -> None:
    values = AvroValues('"long"', {3: '"string"', 4: '"long"'})
    found = values.show(b"\x00\x00\x00\x00\x03" + written("string", "x"))
    assert (found["text"], found["form"]) == ('"x"', "Avro, schema 3")
    assert "schema 9, which is not here" in values.show(b"\x00\x00\x00\x00\x09x")["note"]
    assert "no number of a schema" in values.show(b"x")["note"]


@pytest.mark.parametrize("text", ["{", '"Order"', "7", '{"type": "record"}', '{"type": []}x'])
def test_what_is_not_a_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="not a schema of Avro"):
        AvroValues(text)
