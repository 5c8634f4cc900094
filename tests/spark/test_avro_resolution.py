"""Avro: what a writer has written is what the reader's columns have, or it is a bad value.

Source: Apache Avro 1.12 Specification, Schema Resolution, Logical Types, Complex Types (default).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.test_payloads import decoded, saved

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.avro_payload import AvroPayload, avro_payload

Schema = Any
WRITER = 7
HEADER = struct.pack(">bI", 0, WRITER)


def logical(kind: str, name: str, **more: object) -> Schema:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int, scale: int, **more: object) -> Schema:
    return {**logical("bytes", "decimal", precision=precision, scale=scale), **more}


def fixed(size: int, name: str = "Fixed", **more: object) -> Schema:
    return {"type": "fixed", "name": name, "size": size, **more}


def enum(*symbols: str, **more: object) -> Schema:
    return {"type": "enum", "name": "Enum", "symbols": symbols, **more}


def map_of(values: Schema) -> Schema:
    return {"type": "map", "values": values}


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def record(*fields: tuple[str, Schema], name: str = "Inner") -> Schema:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def of(kind: Schema, **more: object) -> Schema:
    return {
        "type": "record",
        "name": "One",
        "fields": [{"name": "it", "type": kind, **more}, {"name": "end", "type": "long"}],
    }


def written(kind: Schema, value: object) -> bytes:
    """By another implementation; texts of logical types are those of their types."""
    data = BytesIO()
    schemaless_writer(data, parse_schema(without_logic(of(kind))), {"it": value, "end": 5})
    return data.getvalue()


def without_logic(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [without_logic(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_logic(one) for name, one in schema.items() if name != "logicalType"}


@pytest.fixture
def payload(tmp_path: Path) -> Callable[..., AvroPayload]:
    def make(writer: Schema, reader: Schema) -> AvroPayload:
        saved(tmp_path, f"{WRITER}.avsc", writer)
        return avro_payload(saved(tmp_path, "orders.avsc", reader), framed=True)

    return make


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
LOCAL_MILLIS = logical("long", "local-timestamp-millis")
LOCAL_MICROS = logical("long", "local-timestamp-micros")
NANOS, DAY = logical("long", "timestamp-nanos"), logical("int", "date")
TIME_MILLIS, TIME_MICROS = logical("int", "time-millis"), logical("long", "time-micros")
AT_MS, AT = 1_700_000_000_123, datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
OLD = record(("a", "long"))
NEW = {
    **record(("a", "double"), ("b", MILLIS), ("c", "bytes")),
    "aliases": ["Elder"],
}
NEW["fields"][1]["default"] = AT_MS
NEW["fields"][2]["default"] = "ÿ"
# Of a writer's and a reader's type, a value as it is written, and as it comes out.
SAME: list[tuple[Schema, Schema, object, object]] = [
    *((one, one, -(1 << 31), -(1 << 31)) for one in ("int", "long")),
    *(("int", one, 7, 7) for one in ("long", "float", "double")),
    ("long", "double", 1 << 53, float(1 << 53)),
    ("long", "float", 1 << 24, float(1 << 24)),
    ("float", "double", 0.5, 0.5),
    ("string", "bytes", "é", "é".encode()),
    ("bytes", "string", "é".encode(), "é"),
    ("long", MILLIS, AT_MS, AT),
    (MILLIS, MILLIS, AT_MS, AT),
    (MICROS, MICROS, AT_MS * 1_000 + 456, AT.replace(microsecond=123456)),
    # The unit is the writer's.
    (MILLIS, MICROS, AT_MS, AT),
    (MICROS, MILLIS, AT_MS * 1_000 + 1, AT.replace(microsecond=123001)),
    (LOCAL_MILLIS, LOCAL_MICROS, AT_MS, AT.replace(tzinfo=None)),
    (LOCAL_MICROS, LOCAL_MICROS, -1, datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (MILLIS, "long", AT_MS, AT_MS),
    (NANOS, NANOS, AT_MS * 1_000_000 + 1, AT_MS * 1_000_000 + 1),
    (TIME_MILLIS, TIME_MILLIS, 1_500, 1_500),
    (TIME_MICROS, "long", 1_500, 1_500),
    (DAY, DAY, 19_782, date(2024, 2, 29)),
    ("int", DAY, -719_162, date(1, 1, 1)),
    (decimal(9, 2), decimal(9, 2), b"\x01\x00", Decimal("2.56")),
    (decimal(9, 2), decimal(12, 4), b"\xff\x00", Decimal("-2.5600")),
    (decimal(60, 40), decimal(38, 20), (10**41).to_bytes(18, "big"), Decimal("10." + "0" * 20)),
    (decimal(38, 0), decimal(38, 0), (10**38 - 1).to_bytes(40, "big"), Decimal("9" * 38)),
    (decimal(9, 2), "bytes", b"\x01\x00", b"\x01\x00"),
    ("bytes", decimal(9, 0), b"\x07", Decimal(7)),
    (
        fixed(4, **logical("fixed", "decimal", precision=9, scale=3)),
        fixed(4, **logical("fixed", "decimal", precision=9, scale=3)),
        b"\0\0\x04\xd2",
        Decimal("1.234"),
    ),
    (fixed(12, **logical("fixed", "duration")),) * 2 + (b"m" * 12,) * 2,
    (fixed(2, "space.Fixed"), fixed(2, "other.Fixed"), b"ab", b"ab"),
    (logical("string", "uuid"), "string", "any text", "any text"),
    # On another type than its own, or without its digits, a logical type means nothing.
    (logical("string", "timestamp-millis"), logical("string", "timestamp-millis"), "a", "a"),
    (logical("bytes", "decimal"), logical("bytes", "decimal"), b"a", b"a"),
    (enum("A", "B"), enum("B", "A", "C"), "A", "A"),
    (enum("A", "NEW"), enum("A", "OLD", default="OLD"), "NEW", "OLD"),
    ({**enum("A"), "name": "Was"}, enum("A", aliases=["Was"]), "A", "A"),
    (["null", "string"], ["null", "string"], None, None),
    ("string", ["null", "string"], "tea", "tea"),
    (["null", "string"], "string", "tea", "tea"),
    (["string", "long"], "string", "tea", "tea"),
    ("null", ["null", "long"], None, None),
    (["int", "long"], ["int", "long"], 1 << 40, 1 << 40),
    # A column of both is one of doubles.
    ("int", ["float", "double"], (1 << 24) + 1, float((1 << 24) + 1)),
    (["null", MILLIS], ["null", MICROS], AT_MS, AT),
    (array_of("int"), array_of("double"), [1, 2], [1.0, 2.0]),
    (map_of(MILLIS), map_of(MICROS), {"k": 0}, [("k", datetime(1970, 1, 1, tzinfo=UTC))]),
    (OLD, NEW, {"a": 3}, {"a": 3.0, "b": AT, "c": b"\xff"}),
    ({**OLD, "name": "Elder"}, NEW, {"a": 3}, {"a": 3.0, "b": AT, "c": b"\xff"}),
    (
        array_of(["null", OLD]),
        array_of(["null", NEW]),
        [None, {"a": 1}],
        [None, {"a": 1.0, "b": AT, "c": b"\xff"}],
    ),
]
BAD: list[tuple[Schema, Schema, object, str]] = [
    ("long", "double", (1 << 53) + 1, "9007199254740993 cannot be a double"),
    ("int", "float", (1 << 24) + 1, "16777217 cannot be a float"),
    ("bytes", "string", b"\xff", "can't decode byte"),
    ("long", MILLIS, 1 << 60, "its year is not one of 1 to 9999"),
    (MICROS, MICROS, -62_135_596_800_000_001, "its year is not one of 1 to 9999"),
    (DAY, DAY, -719_163, "its year is not one of 1 to 9999"),
    (DAY, DAY, 2_932_897, "its year is not one of 1 to 9999"),
    (decimal(9, 2), decimal(9, 1), b"\x01\x00", "9 digits, of which 1 are behind the point"),
    (decimal(38, 0), decimal(9, 0), (10**9).to_bytes(9, "big"), "9 digits, of which 0"),
    (decimal(9, 2), decimal(9, 2), b"\x01" * 2_000, "a decimal has 2000 bytes"),
    (enum("A", "NEW"), enum("A"), "NEW", "NEW, which the reader's enum does not have"),
    (["string", "long"], "string", 1, "is long, and the reader's is string"),
    (["null", "string"], "string", None, "is null, and the reader's is string"),
    ("long", "int", 1, "is long, and the reader's is int"),
    ("string", "long", "1", "is string, and the reader's is long"),
    # The same number would say something else.
    (MILLIS, LOCAL_MILLIS, 0, "timestamp-millis, and the reader's is local-timestamp-millis"),
    (NANOS, MICROS, 0, "timestamp-nanos, and the reader's is timestamp-micros"),
    (TIME_MILLIS, TIME_MICROS, 0, "time-millis, and the reader's is time-micros"),
    (fixed(2), fixed(3), b"ab", "a fixed of another size"),
    (fixed(2), fixed(2, "Other"), b"ab", "is fixed Fixed, and the reader's is fixed Other"),
    (OLD, {**NEW, "name": "X", "aliases": []}, {"a": 1}, "is record Inner, and the reader's is"),
    (OLD, record(("b", "long")), {"a": 1}, "has no field b, which has no default"),
]


@pytest.mark.parametrize(("writer", "reader", "value", "expected"), SAME, ids=lambda one: str(one))
def test_what_was_written_comes_out(
    payload: Callable[..., AvroPayload],
    writer: Schema,
    reader: Schema,
    value: object,
    expected: object,
) -> None:
    made = payload(of(writer), of(reader))
    (found,) = decoded(made, HEADER + written(writer, value))
    assert found["error"] is None
    assert found["record"] == {"it": expected, "end": 5}
    # A field that the reader does not have is passed over, and the next one is where it is.
    made = payload(of(writer), record(("end", "long"), name="One"))
    (found,) = decoded(made, HEADER + written(writer, value))
    assert found == {"record": {"end": 5}, "error": None}


@pytest.mark.parametrize(("writer", "reader", "value", "reason"), BAD, ids=lambda one: str(one))
def test_what_would_be_changed_is_bad(
    payload: Callable[..., AvroPayload],
    writer: Schema,
    reader: Schema,
    value: object,
    reason: str,
) -> None:
    (found,) = decoded(payload(of(writer), of(reader)), HEADER + written(writer, value))
    assert found["record"] is None
    assert reason in found["error"]


ARRAY_OF = array_of(MILLIS)
DEFAULTS: list[tuple[Schema, object, object]] = [
    ("bytes", "ÿ\u0001", b"\xff\x01"),
    (fixed(2), "ÿ\u0001", b"\xff\x01"),
    (decimal(9, 2), "\u0000d", Decimal("1.00")),
    (fixed(2, **logical("fixed", "decimal", precision=4, scale=1)), "ÿÿ", Decimal("-0.1")),
    (MILLIS, AT_MS, AT),
    (MICROS, 1, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (LOCAL_MILLIS, 1, datetime(1970, 1, 1, 0, 0, 0, 1_000)),
    (DAY, 1, date(1970, 1, 2)),
    (TIME_MILLIS, 5, 5),
    ("float", 0.5, 0.5),
    ("double", 3, 3.0),
    ("boolean", True, True),
    (enum("A", "B"), "B", "B"),
    (ARRAY_OF, [0, AT_MS], [datetime(1970, 1, 1, tzinfo=UTC), AT]),
    (map_of("bytes"), {"k": "ÿ"}, [("k", b"\xff")]),
    (NEW, {"a": 2}, {"a": 2.0, "b": AT, "c": b"\xff"}),
    (NEW, {"a": 2, "b": 0, "c": ""}, {"a": 2.0, "b": datetime(1970, 1, 1, tzinfo=UTC), "c": b""}),
    (["null", MILLIS], None, None),
    # Avro 1.12: of any type of the union.
    (["null", MILLIS], AT_MS, AT),
    (["null", "string"], "null", "null"),
    (logical("string", "uuid"), "x", "x"),
]


@pytest.mark.parametrize(("kind", "default", "expected"), DEFAULTS, ids=lambda one: str(one))
def test_what_an_older_writer_lacks_is_the_default(
    payload: Callable[..., AvroPayload], kind: Schema, default: object, expected: object
) -> None:
    made = payload(record(("end", "long"), name="One"), of(kind, default=default))
    found = decoded(made, *([HEADER + b"\x0a"] * 2))
    assert [one["error"] for one in found] == [None, None]
    assert [one["record"] for one in found] == [{"it": expected, "end": 5}] * 2


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        *(("long", one) for one in ("1", 1.5, True, None, 1 << 63)),
        *(("bytes", one) for one in ("Ā", 1, None)),
        (fixed(2), "a"),
        (decimal(2, 0), "\u0001\u0000"),
        (enum("A"), "B"),
        (["null", "long"], "x"),
        (ARRAY_OF, {"a": 1}),
        (map_of("long"), []),
        (NEW, {"b": 1}),
        (NEW, [1]),
        (DAY, 1 << 30),
    ],
)
def test_a_default_of_another_type_is_refused_at_the_start(
    payload: Callable[..., AvroPayload], kind: Schema, default: object
) -> None:
    with pytest.raises(OptionError, match=r"orders\.avsc.*: (the d|D)efault"):
        payload(record(("end", "long"), name="One"), of(kind, default=default))


TREE = record(("left", ["null", "Tree"]), ("right", ["null", "Tree"]), name="Tree")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (["int", "string", OLD], {"a": 1}),
        (TREE, {"left": {"left": None, "right": None}, "right": None}),
        (decimal(60, 0), b"x" * 25),
        (map_of(array_of(TREE)), {"a": []}),
    ],
)
def test_what_the_reader_does_not_have_needs_no_column(
    payload: Callable[..., AvroPayload], kind: Schema, value: object
) -> None:
    made = payload(of(kind), record(("end", "long"), name="One"))
    (found,) = decoded(made, HEADER + written(kind, value))
    assert found == {"record": {"end": 5}, "error": None}


def test_a_writer_that_the_reader_cannot_follow_spoils_no_other(tmp_path: Path) -> None:
    """A directory may have the schemas of all topics, and of keys."""
    reader = record(("end", "long"), name="One")
    saved(tmp_path, "1.avsc", reader)
    saved(tmp_path, "2.avsc", "string")
    saved(tmp_path, "3.avsc", record(("other", "long"), name="One"))
    nulls = array_of("null")
    saved(tmp_path, "4.avsc", record(("end", "long"), ("none", nulls), name="One"))
    made = avro_payload(saved(tmp_path, "orders.avsc", reader), framed=True)
    bomb = b"\x0a" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    found = decoded(
        made, *(struct.pack(">bI", 0, one) + rest for one, rest in ((2, b"\0"), (3, b"\x02")))
    )
    assert "schema 2 cannot be read as the reader's: the record is string" in found[0]["error"]
    assert "has no field end, which has no default" in found[1]["error"]
    found = decoded(made, struct.pack(">bI", 0, 4) + bomb, struct.pack(">bI", 0, 1) + b"\x0a")
    assert "an array of items without content" in found[0]["error"]
    assert found[1]["record"] == {"end": 5}
    (tmp_path / "5.avsc").write_text("{")
    with pytest.raises(OptionError, match=r"5\.avsc is not a schema of Avro"):
        avro_payload(tmp_path / "orders.avsc", framed=True)


UNWRITTEN: list[tuple[Schema, bytes]] = [
    ("boolean", b"\x02"),
    ("int", b"\xff\xff\xff\xff\x1f"),
    ("long", b"\xff" * 10 + b"\x01"),
    ("long", b"\x80" * 9 + b"\x02"),
    ("string", b"\x01"),
    ("string", b"\x04a"),
    ("bytes", b"\x04a"),
    ("double", b"\0" * 7),
    ("float", b"\0" * 3),
    (fixed(3), b"ab"),
    (enum("A", "B"), b"\x01"),
    (enum("A", "B"), b"\x04"),
    (["null", "long"], b"\x01\x02"),
    (["null", "long"], b"\x04"),
    (array_of("long"), b"\x04\x02"),
    (array_of("long"), b""),
]
# Bytes that are not text, and a key that comes twice: a field that is skipped may have them.
UNWRITTEN_IF_READ: list[tuple[Schema, bytes]] = [
    ("string", b"\x04\xff\xff"),
    (map_of("long"), b"\x04\x02a\x02\x02a\x04\0"),
]


@pytest.mark.parametrize(
    ("kind", "data", "is_read"),
    [
        *((*one, False) for one in UNWRITTEN),
        *((*one, True) for one in (*UNWRITTEN, *UNWRITTEN_IF_READ)),
    ],
    ids=str,
)
def test_bytes_that_no_writer_writes_are_bad(
    payload: Callable[..., AvroPayload], kind: Schema, data: bytes, is_read: bool
) -> None:
    fields = [("it", kind)] if is_read else []
    schema = record(("it", kind), name="One")
    reader = record(*fields, ("end", ["null", "long"]), name="One")
    reader["fields"][-1]["default"] = None
    (found,) = decoded(payload(schema, reader), HEADER + data)
    assert found["error"].startswith("not Avro of the schema: ")
    assert not found["error"].endswith(": ")


def test_a_tree_that_is_too_deep_is_bad(payload: Callable[..., AvroPayload]) -> None:
    made = payload(of(TREE), record(("end", "long"), name="One"))
    found = decoded(
        made,
        HEADER + b"\x02" * 100 + b"\0" * 102 + b"\x0a",
        HEADER + b"\x02" * 1_000_000,
    )
    assert found[0]["record"] == {"end": 5}
    assert found[1]["error"] == "not Avro of the schema: it is nested too deeply"


@settings(deadline=None)
@given(st.data())
def test_it_reads_what_another_implementation_writes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kind, values = data.draw(KINDS)
    value = data.draw(values)
    schema = of(kind)
    path = saved(tmp_path_factory.getbasetemp(), "any.avsc", schema)
    sent = written(kind, value)
    (found,) = decoded(avro_payload(path, framed=False), sent)
    other = schemaless_reader(BytesIO(sent), parse_schema(schema), None)
    assert isinstance(other, dict)
    assert found["error"] is None
    assert flat(found["record"]["it"]) == flat(other["it"])


def flat(value: Any) -> Any:
    """Comparable: with maps as pairs, and without the difference of NaN and itself."""
    if isinstance(value, dict):
        return [(name, flat(one)) for name, one in value.items()]
    if isinstance(value, list):
        return [flat(one) for one in value]
    if isinstance(value, tuple):
        return tuple(flat(one) for one in value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
SCALARS: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=9)),
    ("string", st.text(max_size=9)),
    (fixed(3), st.binary(min_size=3, max_size=3)),
    (enum("A", "B"), st.sampled_from(["A", "B"])),
    (MILLIS, _MS),
    (MICROS, _MS.map(lambda one: one * 1_000 + 7)),
    (LOCAL_MICROS, _MS.map(lambda one: one * 1_000 + 7)),
    (DAY, st.integers(-719_162, 2_932_896)),
    (
        decimal(20, 3),
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda one: one.to_bytes(9, signed=True)),
    ),
]
KINDS: st.SearchStrategy[tuple[Schema, st.SearchStrategy[Any]]] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(lambda one: ({"type": "array", "items": one[0]}, st.lists(one[1], max_size=3))),
        inner.map(
            lambda one: (
                {"type": "map", "values": one[0]},
                st.dictionaries(st.text(max_size=4), one[1], max_size=3),
            )
        ),
        inner.filter(lambda one: not isinstance(one[0], list)).map(
            lambda one: (["null", one[0]], st.one_of(st.none(), one[1]))
        ),
        inner.map(
            lambda one: (
                json.loads(json.dumps(record(("a", one[0]), ("b", "long")))),
                st.fixed_dictionaries({"a": one[1], "b": st.integers(0, 9)}),
            )
        ).filter(lambda one: json.dumps(one[0]).count('"Inner"') == 1),
    ),
    max_leaves=3,
)
