"""Values in Avro and Protobuf become records, or say why not; whatever comes from the wire."""

from __future__ import annotations

import json
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.avro_payload import AvroPayload, avro_payload
from magnetar_spark.payloads.formats import payload_of
from magnetar_spark.payloads.payload import PythonPayload
from magnetar_spark.payloads.protobuf_payload import ProtobufPayload, protobuf_payload

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
BUYER = {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "price", "type": PRICE},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": "State"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "buyer", "type": BUYER},
    ],
}
RECORD = {
    "id": 7,
    "count": -1,
    "item": None,
    "price": Decimal("2.50"),
    "day": date(2026, 11, 24),
    "at": datetime(2026, 11, 24, 12, tzinfo=UTC),
    "token": "not checked: it is text here",
    "state": "PAID",
    "before": "NEW",
    "tags": ["hot"],
    "counts": {"cups": 2},
    "buyer": {"name": "Ada"},
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { string item = 1; uint32 cups = 2; }
  int64 id = 1;
  optional string note = 2;
  string plain = 3;
  uint64 large = 4;
  State state = 5;
  repeated Line lines = 6;
  map<string, Line> by_name = 7;
  google.protobuf.Timestamp at = 8;
  bytes raw = 9;
  oneof paid { double cash = 10; Line voucher = 11; }
}
"""


def written(schema: dict[str, Any], record: object) -> bytes:
    data = BytesIO()
    schemaless_writer(data, parse_schema(schema), record)
    return data.getvalue()


def saved(directory: Path, name: str, schema: object) -> Path:
    path = directory / name
    path.write_text(json.dumps(schema))
    return path


def decoded(payload: PythonPayload, *values: bytes | None) -> list[Any]:
    """As a task does it, with a payload that came from the driver."""
    again = pickle.loads(pickle.dumps(payload))
    found: list[Any] = again.decoded_array(pa.array(values, pa.binary())).to_pylist()
    return found


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> AvroPayload:
    return avro_payload(saved(tmp_path_factory.mktemp("schema"), "order.avsc", ORDER), framed=False)


def test_avro_becomes_columns(orders: AvroPayload) -> None:
    assert orders.schema.simpleString() == (
        "struct<id:bigint,count:int,item:string,price:decimal(9,2),day:date,at:timestamp,"
        "token:string,state:string,before:string,tags:array<string>,counts:map<string,bigint>,"
        "buyer:struct<name:string>>"
    )
    assert [one.name for one in orders.schema if one.nullable] == ["item"]
    (found,) = decoded(orders, written({**ORDER, "fields": raw_fields()}, RECORD))
    assert found == {
        "record": {**RECORD, "counts": [("cups", 2)]},
        "error": None,
    }


def raw_fields() -> list[Any]:
    """Of the writer, whose token is plain text."""
    return [{**one, "type": "string"} if one["name"] == "token" else one for one in ORDER["fields"]]


def test_what_is_no_avro_of_the_schema_says_so(orders: AvroPayload) -> None:
    sound = written({**ORDER, "fields": raw_fields()}, RECORD)
    found = decoded(orders, b"", sound[:-1], sound + b"\0", b'{"id": 7}', sound)
    assert [one["record"] is None for one in found] == [True] * 4 + [False]
    assert [one["error"] is None for one in found] == [False] * 4 + [True]
    assert found[2]["error"] == "not Avro of the schema: 1 bytes are left"


def test_a_number_that_is_too_large_for_its_type_spoils_no_other(tmp_path: Path) -> None:
    narrow = {"type": "record", "name": "One", "fields": [{"name": "count", "type": "int"}]}
    wide = {"type": "record", "name": "One", "fields": [{"name": "count", "type": "long"}]}
    payload = avro_payload(saved(tmp_path, "one.avsc", narrow), framed=False)
    values = [written(wide, {"count": count}) for count in (1, 1 << 40, 2)]
    found = decoded(payload, *values)
    assert [one["record"] for one in found] == [{"count": 1}, None, {"count": 2}]
    assert found[1]["error"] == "not Avro of the schema: an int is 1099511627776"


@given(st.lists(st.binary(max_size=60), max_size=5), st.integers(0, 60), st.integers(1, 255))
def test_no_bytes_break_avro(
    orders: AvroPayload, values: list[bytes], at: int, change: int
) -> None:
    damaged = bytearray(written({**ORDER, "fields": raw_fields()}, RECORD))
    damaged[at % len(damaged)] ^= change
    for one in decoded(orders, *values, bytes(damaged)):
        assert (one["record"] is None) == (one["error"] is not None)


def test_framed_values_name_their_writers_schema(tmp_path: Path) -> None:
    one = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    two = {**one, "fields": [*one["fields"], {"name": "item", "type": "string"}]}
    reader = {
        **one,
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": "string", "default": "?"},
        ],
    }
    saved(tmp_path, "1.avsc", one)
    saved(tmp_path, "2.avsc", two)
    payload = avro_payload(saved(tmp_path, "orders.avsc", reader), framed=True)
    found = decoded(
        payload,
        struct.pack(">bI", 0, 1) + written(one, {"id": 1}),
        struct.pack(">bI", 0, 2) + written(two, {"id": 2, "item": "tea"}),
        struct.pack(">bI", 0, 3) + written(one, {"id": 3}),
        written(two, {"id": 2, "item": "tea"}),
        b"\0\0",
    )
    assert [each["record"] for each in found[:2]] == [
        {"id": 1, "item": "?"},
        {"id": 2, "item": "tea"},
    ]
    assert found[2]["error"] == "its schema 3 is not among those given"
    assert [each["error"][:21] for each in found[3:]] == ["no number of a schema"] * 2


RECURSIVE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "left", "type": ["null", "Tree"]}],
}


def of_field(kind: object) -> dict[str, Any]:
    return {"type": "record", "name": "One", "fields": [{"name": "it", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("no object", "not a schema of Avro"),
        ({"type": "record", "name": "One", "fields": []}, "names no column"),
        ({"type": "long"}, "not a schema of a record"),
        (RECURSIVE, "Tree contains itself"),
        (of_field(["int", "string"]), "no type for the union int, string"),
        *(
            (of_field({"type": "array", "items": one}), "items without content")
            for one in (
                *("null", {"type": "fixed", "name": "None", "size": 0}),
                {**of_field("null"), "name": "Two"},
            )
        ),
        (
            of_field({"type": "bytes", "logicalType": "decimal", "precision": 39}),
            "38 digits at most",
        ),
    ],
)
def test_schemas_that_cannot_be_columns(tmp_path: Path, schema: object, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        payload_of("avro", topic="one", schema_path=str(saved(tmp_path, "one.avsc", schema)))


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("proto"), PROTO)


def compiled(directory: Path, source: str, *, imports: bool = True) -> Path:
    (directory / "order.proto").write_text(source)
    path = directory / "order.desc"
    include = Path(protoc.__file__).parent / "_proto"
    given = [f"-I{directory}", f"-I{include}", f"--descriptor_set_out={path}", "order.proto"]
    assert protoc.main(["protoc", *(["--include_imports"] if imports else []), *given]) == 0
    return path


def new_order(descriptors: Path) -> Any:
    """A message of the class that a producer would have."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()


def test_protobuf_becomes_columns(descriptors: Path) -> None:
    payload = protobuf_payload(descriptors, None)
    line = "struct<item:string,cups:bigint>"
    assert payload.schema.simpleString() == (
        "struct<id:bigint,note:string,plain:string,large:decimal(20,0),state:string,"
        f"lines:array<{line}>,by_name:map<string,{line}>,at:timestamp,raw:binary,cash:double,"
        f"voucher:{line}>"
    )
    order = new_order(descriptors)
    order.id = -7
    order.large = (1 << 64) - 1
    order.state = 1
    order.lines.add(item="tea", cups=2)
    order.by_name["first"].item = "cake"
    order.at.FromJsonString("2026-11-24T12:00:00.000001Z")
    order.raw = b"\xff"
    order.voucher.cups = (1 << 32) - 1
    found, empty, absent = decoded(payload, order.SerializeToString(), b"", None)
    # No bytes are a message of this format, and what is absent is not.
    assert (empty["error"], absent["record"]) == (None, None)
    assert absent["error"] == "no value: a tombstone"
    assert found == {
        "record": {
            "id": -7,
            "note": None,
            "plain": "",
            "large": Decimal((1 << 64) - 1),
            "state": "PAID",
            "lines": [{"item": "tea", "cups": 2}],
            "by_name": [("first", {"item": "cake", "cups": 0})],
            "at": datetime(2026, 11, 24, 12, 0, 0, 1, tzinfo=UTC),
            "raw": b"\xff",
            "cash": None,
            "voucher": {"item": "", "cups": (1 << 32) - 1},
        },
        "error": None,
    }


def test_an_enum_may_be_newer_than_the_schema(descriptors: Path) -> None:
    order = new_order(descriptors)
    order.state = 9
    (found,) = decoded(protobuf_payload(descriptors, "shop.Order"), order.SerializeToString())
    assert found["record"]["state"] == "9"


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_no_bytes_break_protobuf(descriptors: Path, values: list[bytes]) -> None:
    payload: ProtobufPayload = protobuf_payload(descriptors, None)
    for one in payload.decoded_array(pa.array(values, pa.binary())).to_pylist():
        assert (one["record"] is None) == (one["error"] is not None)


def test_a_moment_that_no_clock_shows_is_an_error(descriptors: Path) -> None:
    order = new_order(descriptors)
    order.at.seconds = 1 << 60
    (found,) = decoded(protobuf_payload(descriptors, None), order.SerializeToString())
    assert found["record"] is None
    assert "shop.Order" in found["error"]


WIRE = """
syntax = "proto2";
message One {
  enum State { NEW = 0; PAID = 1; }
  message Inner { required int32 id = 1; }
  message Nothing {}
  optional int32 number = 1;
  optional bool flag = 2;
  optional State state = 3 [default = PAID];
  repeated State states = 4;
  map<int32, State> by_number = 5;
  optional string text = 6;
  optional Inner inner = 7;
  optional uint32 count = 8;
  optional sint32 signed = 9;
  optional Nothing nothing = 10;
}
"""


@pytest.mark.parametrize(
    ("wire", "name", "expected"),
    [
        (b"\x08\x07", "number", 7),
        (b"\x08" + b"\xff" * 9 + b"\x01", "number", -1),
        (b"\x10\x01", "flag", True),
        (b"\x18\x01", "state", "PAID"),
        # An enum may be newer than the schema, whatever the syntax.
        (b"\x18\x05", "state", "5"),
        (b"\x20\x05\x20\x01", "states", ["5", "PAID"]),
        (b"\x22\x02\x05\x01", "states", ["5", "PAID"]),
        (b"\x2a\x04\x08\x09\x10\x05", "by_number", [(9, "5")]),
        (b"\x40" + b"\xff" * 4 + b"\x0f", "count", (1 << 32) - 1),
        (b"\x48\x01", "signed", -1),
        (b"\x3a\x02\x08\x07", "inner", {"id": 7}),
        (b"\x52\x00", "nothing", {}),
        (b"", "state", None),
        # Not of the schema: it is newer.
        (b"\xf8\x07\x01", "number", None),
    ],
)
def test_what_is_on_the_wire_is_in_the_column(
    tmp_path: Path, wire: bytes, name: str, expected: object
) -> None:
    (found,) = decoded(protobuf_payload(compiled(tmp_path, WIRE), None), wire)
    assert found["error"] is None
    assert found["record"][name] == expected


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        # Of a writer whose field has 64 bits; Protobuf would keep the lower ones.
        (b"\x08" + b"\xff" * 8 + b"\x7f", "does not fit in its type"),
        (b"\x08" + b"\xff" * 4 + b"\x0f", "does not fit in its type"),
        (b"\x2a\x09\x08" + b"\xff" * 5 + b"\x7f\x10\x01", "does not fit in its type"),
        (b"\x10\x02", "a bool is 2"),
        # Of a writer whose field is of another kind; Protobuf would take it for unknown.
        (b"\x10\x01\x32\x01a\x30\x05", "the field text is of another kind"),
        (b"\x0a\x01a", "the field number is of another kind"),
        (b"\x3a\x04\x08\x01\x0a\x00", "the field id is of another kind"),
        (b"\x3a\x00", "inner.id is required"),
        (b"\x32\x01\xff", "was not a utf8 string"),
    ],
)
def test_what_protobuf_would_change_is_bad(tmp_path: Path, wire: bytes, reason: str) -> None:
    found = decoded(protobuf_payload(compiled(tmp_path, WIRE), None), b"\x08\x07", wire)
    assert found[0]["error"] is None
    assert reason in found[1]["error"]


def test_a_moment_has_microseconds_and_no_more(descriptors: Path) -> None:
    values = []
    for seconds, nanos in ((0, 1_000), (0, 1), (0, -1_000), (0, 10**9), (-1, 999_999_000)):
        order = new_order(descriptors)
        order.at.seconds, order.at.nanos = seconds, nanos
        values.append(order.SerializeToString())
    found = decoded(protobuf_payload(descriptors, None), *values)
    assert [one["record"] and one["record"]["at"] for one in found] == [
        datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        *(None, None, None),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    assert "A message of your own with the same two fields" in found[1]["error"]
    assert " nanos" in found[2]["error"]


def test_a_byte_order_mark_is_not_part_of_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "one.avsc"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(of_field("long")).encode())
    assert avro_payload(path, framed=False).schema.simpleString() == "struct<it:bigint>"


def test_descriptors_that_cannot_be_used(tmp_path: Path, descriptors: Path) -> None:
    with pytest.raises(OptionError, match=r"no message shop\.Bill"):
        protobuf_payload(descriptors, "shop.Bill")
    with pytest.raises(OptionError, match="is source: compile it with protoc"):
        protobuf_payload(descriptors.with_suffix(".proto"), None)
    with pytest.raises(OptionError, match="--include_imports"):
        protobuf_payload(compiled(tmp_path, PROTO, imports=False), None)
    two = 'syntax = "proto3"; message One {} message Two { Two again = 1; }'
    several = compiled(tmp_path, two)
    with pytest.raises(OptionError, match=r"name one of the messages .*: One, Two"):
        protobuf_payload(several, None)
    with pytest.raises(OptionError, match="Two contains itself"):
        protobuf_payload(several, "Two")
    several.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="--include_imports"):
        protobuf_payload(several, "Two")


def test_a_directory_has_a_schema_for_each_topic(tmp_path: Path) -> None:
    saved(tmp_path, "orders.avsc", of_field("long"))
    found = payload_of("avro", topic="orders", schema_path=str(tmp_path))
    assert found.schema.simpleString() == "struct<it:bigint>"
    for topic, kind, complaint in (
        ("bills", "avro", r"has no bills\.avsc"),
        ("orders", "protobuf", r"has no orders\.desc or orders\.pb"),
    ):
        with pytest.raises(OptionError, match=complaint):
            payload_of(kind, topic=topic, schema_path=str(tmp_path))
    (tmp_path / "orders.desc").touch()
    (tmp_path / "orders.pb").touch()
    with pytest.raises(OptionError, match="more than one"):
        payload_of("protobuf", topic="orders", schema_path=str(tmp_path))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"payload_format": "avro", "schema_path": None}, "need a schema"),
        ({"payload_format": "avro", "schema_path": "/nowhere"}, "no schema at /nowhere"),
        ({"payload_format": "text", "schema_path": "/nowhere"}, "text has no schema"),
        ({"payload_format": "json", "schema_path": None, "framed": True}, "in Avro only"),
        ({"payload_format": "avro", "schema_path": None, "message_name": "One"}, "Protobuf only"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        payload_of(topic="orders", **given)


def test_a_huge_file_is_no_schema(tmp_path: Path) -> None:
    path = tmp_path / "one.avsc"
    path.write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(OptionError, match="more than 4,194,304 bytes"):
        avro_payload(path, framed=False)
