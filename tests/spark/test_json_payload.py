"""docs/pipeline.md, What each format accepts: a JSON value is in its column as it is, or is bad."""

from __future__ import annotations

import base64
import json
import math
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.json_payload import JsonPayload
from magnetar_spark.payloads.json_text import DEPTH_MAX, parsed_object, with_texts
from magnetar_spark.payloads.payload import NotThis

BOOLEAN, BINARY, DAY = spark.BooleanType(), spark.BinaryType(), spark.DateType()
MOMENT, LOCAL = spark.TimestampType(), spark.TimestampNTZType()
TINY, SMALL, INT, LONG = (
    *(spark.ByteType(), spark.ShortType()),
    *(spark.IntegerType(), spark.LongType()),
)
FLOAT, DOUBLE, TEXT = spark.FloatType(), spark.DoubleType(), spark.StringType()


def column(kind: spark.DataType, *, required: bool = False) -> spark.StructType:
    return spark.StructType([spark.StructField("it", kind, not required)])


def decoded(schema: spark.StructType, *values: bytes | None) -> list[dict[str, Any]]:
    """As a task does it, with a payload that came from the driver."""
    payload = pickle.loads(pickle.dumps(JsonPayload(schema)))
    found: list[dict[str, Any]] = payload.decoded_array(pa.array(values, pa.binary())).to_pylist()
    assert len(found) == len(values)
    for one in found:
        assert (one["record"] is None) is not (one["error"] is None)
    return found


def test_a_message_without_a_value_has_no_record() -> None:
    kind = column(LONG)
    absent = {"record": None, "error": "no value: a tombstone"}
    assert decoded(kind, None, b'{"it": 7}', None) == [
        absent,
        {"record": {"it": 7}, "error": None},
        absent,
    ]
    assert decoded(kind, None) == [absent]
    assert decoded(kind, b"")[0]["error"] != absent["error"]


def utc(*given: int) -> datetime:
    return datetime(*given, tzinfo=UTC)  # type: ignore[misc,arg-type]


LEAP = "2024-02-29"
SAME: list[tuple[spark.DataType, str, Any]] = [
    (BOOLEAN, "true", True),
    *((kind, "-7", -7) for kind in (TINY, SMALL, INT, LONG)),
    (TINY, "127", 127),
    (LONG, "9007199254740993", (1 << 53) + 1),
    (LONG, "-9223372036854775808", -(1 << 63)),
    (spark.DecimalType(20, 0), "18446744073709551615", Decimal((1 << 64) - 1)),
    (spark.DecimalType(10, 2), "1.5", Decimal("1.50")),
    (spark.DecimalType(10, 2), "1e5", Decimal("100000.00")),
    (spark.DecimalType(10, 2), "1.250", Decimal("1.25")),
    (spark.DecimalType(10, 2), f"1.{'0' * 500}", Decimal("1.00")),
    (spark.DecimalType(10, 2), "0e-999999999", Decimal("0.00")),
    (spark.DecimalType(10, 2), '"-12.50"', Decimal("-12.50")),
    (spark.DecimalType(38, 18), "0.000000000000000001", Decimal("1E-18")),
    (spark.DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
    (DOUBLE, "0.1", 0.1),
    (DOUBLE, "7", 7.0),
    (DOUBLE, "5e-324", 5e-324),
    (DOUBLE, "0e400", 0.0),
    (DOUBLE, "1.7976931348623157e308", 1.7976931348623157e308),
    (DOUBLE, '"Infinity"', math.inf),
    (FLOAT, "0.5", 0.5),
    (FLOAT, '"-Infinity"', -math.inf),
    (TEXT, '"tea"', "tea"),
    (TEXT, '"\\u00e9\\ud83d\\ude00\\u0000"', "é😀\0"),
    (TEXT, "1.10", "1.10"),
    (TEXT, "-0", "-0"),
    (TEXT, "1e2", "1e2"),
    (TEXT, "12345678901234567890123", "12345678901234567890123"),
    (TEXT, "false", "false"),
    (TEXT, '{"a" : [1.10, "}"]}', '{"a" : [1.10, "}"]}'),
    (TEXT, '[ 1e2 ,"]",\n{}]', '[ 1e2 ,"]",\n{}]'),
    (spark.VarcharType(3), '"äöü"', "äöü"),
    (spark.CharType(3), '"a"', "a"),
    (BINARY, '"/wE="', b"\xff\x01"),
    (BINARY, '""', b""),
    (DAY, f'"{LEAP}"', date(2024, 2, 29)),
    (DAY, '"0001-01-01"', date.min),
    (MOMENT, f'"{LEAP}T23:59:59.123456Z"', utc(2024, 2, 29, 23, 59, 59, 123456)),
    (MOMENT, f'"{LEAP} 23:59:59.120000000"', utc(2024, 2, 29, 23, 59, 59, 120000)),
    (MOMENT, f'"{LEAP}T23:59:59+05:30"', utc(2024, 2, 29, 18, 29, 59)),
    (MOMENT, f'"{LEAP}T01:00-0200"', utc(2024, 2, 29, 3)),
    (MOMENT, f'"{LEAP}"', utc(2024, 2, 29)),
    (MOMENT, '"9999-12-31T23:59:59.999999Z"', utc(9999, 12, 31, 23, 59, 59, 999999)),
    (LOCAL, f'"{LEAP}T23:59:59.000001"', datetime(2024, 2, 29, 23, 59, 59, 1)),
    (spark.ArrayType(INT), "[1, null, 3]", [1, None, 3]),
    (spark.ArrayType(TEXT), '["a", 1.0, {"b": 2}]', ["a", "1.0", '{"b": 2}']),
    (spark.ArrayType(spark.ArrayType(INT)), "[[], [1], null, [2, 3]]", [[], [1], None, [2, 3]]),
    (spark.MapType(TEXT, LONG), '{"b": 2, "a": null}', [("b", 2), ("a", None)]),
    (column(INT), '{"it": 1, "other": 2}', {"it": 1}),
    (column(column(spark.VarcharType(9))), '{"it": {"it": [0]}}', {"it": {"it": "[0]"}}),
    *((kind, "null", None) for kind in (INT, TEXT, DOUBLE, MOMENT, spark.ArrayType(INT))),
]
CHANGED: list[tuple[spark.DataType, str]] = [
    *((BOOLEAN, text) for text in ('"true"', "1", "{}")),
    *((LONG, text) for text in ("1.0", "1e2", '"5"', "true", "9223372036854775808", "9" * 5_000)),
    *((INT, text) for text in ("2147483648", "-2147483649", "[1]")),
    *((TINY, text) for text in ("128", "-129")),
    (SMALL, "40000"),
    *((spark.DecimalType(10, 2), text) for text in ("1.005", "0.001", "123456789.00", "1e8")),
    *((spark.DecimalType(10, 2), text) for text in ('"1,5"', '"1_0"', '" 1"', '""', '"0x1"')),
    *((spark.DecimalType(10, 2), text) for text in ('"NaN"', "1e999999999", "1e-999999999")),
    *((spark.DecimalType(10, 2), text) for text in ("1e-77", f"0.{'0' * 500}1", "1e-41")),
    (spark.DecimalType(20, 0), "1.5"),
    *((DOUBLE, text) for text in ("1e400", "-1e400", "1e-400", '"1.5"', '"inf"', "NaN")),
    *((FLOAT, text) for text in ("1e39", "1e-50", "Infinity")),
    *((TEXT, text) for text in ('"\\ud800"', '"\\ude00\\ud83d"', '"\t"')),
    (spark.VarcharType(3), '"abcd"'),
    (spark.VarcharType(3), "[12]"),
    *((BINARY, text) for text in ('"/wF="', '"/w"', '"/wE=\\n"', '"-_8="', "1")),
    *((DAY, f'"{text}"') for text in (f"{LEAP}T10:00:00", "2024-2-9", "2023-02-29", "20240229")),
    *((DAY, text) for text in ("19782", '"2024"', '"+10000-01-01"', '"2024-W09-4"')),
    *((MOMENT, text) for text in ("1700000000", "1700000000000", "1.5")),
    *((MOMENT, f'"{LEAP}T23:59:59.{text}Z"') for text in ("1234567", "000000001", "")),
    *((MOMENT, f'"{LEAP}T{text}"') for text in ("24:00:00Z", "23:59:60Z", "10Z", "10:00:00 CET")),
    *((MOMENT, f'"{text}"') for text in ("0001-01-01T00:00:00+05:00", "0000-01-01T00:00:00Z")),
    (LOCAL, f'"{LEAP}T23:59:59Z"'),
    (LOCAL, "1700000000"),
    *((spark.ArrayType(INT), text) for text in ("[1, 2.5]", "1", '{"a": 1}')),
    (spark.ArrayType(INT, containsNull=False), "[1, null]"),
    (spark.ArrayType(column(LONG, required=True)), '[{"it": 1}, {}]'),
    *((spark.MapType(TEXT, LONG), text) for text in ("[]", '{"a": 1, "a": 2}', '{"\\ud800": 1}')),
    (spark.MapType(TEXT, LONG, valueContainsNull=False), '{"a": null}'),
    (spark.MapType(spark.VarcharType(1), LONG), '{"ab": 1}'),
    (column(LONG, required=True), "{}"),
    (column(LONG, required=True), '{"it": null}'),
    (column(LONG), "[]"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), SAME, ids=lambda one: str(one)[:40])
def test_a_value_comes_out_as_it_went_in(kind: spark.DataType, text: str, expected: Any) -> None:
    # Beside others, whose column is made at once.
    values = [b'{"it": %b}' % one.encode() for one in ("null", text, "null")]
    found = decoded(column(kind), *values)
    assert [one["error"] for one in found] == [None] * 3
    assert [one["record"]["it"] for one in found] == [None, expected, None]


def test_not_a_number_comes_out_as_such() -> None:
    for kind in (FLOAT, DOUBLE):
        assert math.isnan(decoded(column(kind), b'{"it": "NaN"}')[0]["record"]["it"])


@pytest.mark.parametrize(("kind", "text"), CHANGED, ids=lambda one: str(one)[:40])
def test_a_value_that_would_be_changed_is_bad(kind: spark.DataType, text: str) -> None:
    (sound, usual), _ = next((one[1:], one) for one in SAME if one[0] == kind or one[1] == "null")
    found = decoded(
        column(kind), *(b'{"it": %b}' % one.encode() for one in (sound, text, sound, "null"))
    )
    assert [one["error"] is None for one in found] == [True, False, True, True]
    assert [found[at]["record"]["it"] for at in (0, 2, 3)] == [usual, usual, None]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no value at character 0"),
        (b"tea", "no value at character 0"),
        (b"null", "not a JSON object"),
        (b'{"it": 1', "Expecting ',' delimiter"),
        (b'{"it": 1}{}', "something follows it at character 9"),
        (b'{"it": 1},', "something follows it"),
        (b'\xef\xbb\xbf{"it": 1}', "no value at character 0"),
        (b'{"it": "\xff"}', "not UTF-8 at byte 8"),
        (b'{"it": "\xed\xa0\x80"}', "not UTF-8 at byte 8"),
        ('{"it": 1}'.encode("utf-16"), "not UTF-8 at byte 0"),
        (b"{'it': 1}", "Expecting property name"),
        (b'{"it": 01}', "Expecting ',' delimiter"),
        (b'{"it": +1}', "no value at character 7"),
        (b'{"it": 1, "it": 2}', 'the name "it" twice'),
        (b'{"other": [{"a": 1, "a": 1}]}', 'the name "a" twice'),
        (b'{"other": -Infinity}', "-Infinity is not a number in JSON"),
    ],
)
def test_what_is_no_object_says_so(value: bytes, reason: str) -> None:
    (found,) = decoded(column(LONG), value)
    assert found["error"].startswith("not a JSON object")
    assert reason in found["error"]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (column(LONG, required=True), b"{}", "no it"),
        (
            column(spark.ArrayType(column(LONG, required=True)), required=True),
            b'{"it": [{"it": 1}, {"it": null}]}',
            "no it.element.it",
        ),
        (column(LONG), b'{"it": "much"}', 'it is not a BIGINT: "much"'),
        (column(column(LONG)), b'{"it": [1]}', "it is not an object: an array"),
        (column(spark.VarcharType(2)), b'{"it": "tea"}', "it has more than 2 characters"),
        (column(MOMENT), b'{"it": 17}', "seconds or milliseconds. Make the column BIGINT"),
    ],
)
def test_a_bad_value_says_what_is_wrong(kind: spark.StructType, value: bytes, reason: str) -> None:
    assert reason in decoded(kind, value)[0]["error"]


@pytest.mark.parametrize("kind", [LONG, TEXT])
def test_values_are_nested_so_deeply_and_not_deeper(kind: spark.DataType) -> None:
    def nested(levels: int) -> bytes:
        # Brackets in a text do not count, nor those behind an escaped quote.
        inner = b'["\\"[[", ' + b"[" * (levels - 2) + b"]" * (levels - 2) + b"]"
        return b'{"other": ' + inner + b"}"

    schema = spark.StructType([*column(LONG), spark.StructField("other", kind)])
    if kind is LONG:
        schema = column(LONG)
    found = decoded(schema, nested(DEPTH_MAX), nested(DEPTH_MAX + 1), nested(20_000))
    assert [one["error"] is None for one in found] == [True, False, False]
    assert f"more than {DEPTH_MAX} levels" in found[1]["error"]
    # Many arrays beside each other are not deep.
    flat = b'{"other": [%b]}' % b",".join([b"[]"] * 2 * DEPTH_MAX)
    assert decoded(schema, flat)[0]["error"] is None


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (spark.MapType(LONG, TEXT), "the names in a JSON object are text: take MAP<STRING, STRING"),
        (spark.ArrayType(spark.MapType(DAY, TEXT)), "the column it.element is map<date,string>"),
        (spark.DayTimeIntervalType(), "which JSON has no values of: take STRING"),
        (spark.VariantType(), "which JSON has no values of"),
        (spark.NullType(), "which JSON has no values of"),
        (
            spark.StructType([spark.StructField("a", LONG), spark.StructField("a", TEXT)]),
            "it has two fields 'a'",
        ),
    ],
)
def test_a_type_that_json_has_no_values_of_is_refused(kind: spark.DataType, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        JsonPayload(column(kind))


def test_limits_of_texts_are_no_types_of_columns() -> None:
    kind = spark.StructType(
        [
            spark.StructField("a", spark.VarcharType(3), False),
            spark.StructField("b", spark.MapType(spark.CharType(2), spark.VarcharType(9), False)),
            spark.StructField("c", spark.ArrayType(column(spark.CharType(1)), False)),
        ]
    )
    assert JsonPayload(kind).schema.simpleString() == (
        "struct<a:string,b:map<string,string>,c:array<struct<it:string>>>"
    )
    assert not JsonPayload(kind).schema["a"].nullable


TEXTS = st.text(max_size=8)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda one: f"{one:e}"),
    st.decimals(-(10**9), 10**9, places=3).map(str),
)
MOMENTS = st.datetimes().map(lambda one: json.dumps(one.isoformat() + "Z"))
SCALARS = st.one_of(
    st.sampled_from(["null", "true", "false", '"NaN"', '"Infinity"']),
    *(NUMBERS, MOMENTS, TEXTS.map(json.dumps)),
    *(st.dates().map(lambda one: json.dumps(one.isoformat())), NUMBERS.map(json.dumps)),
    st.binary(max_size=4).map(lambda one: json.dumps(base64.b64encode(one).decode())),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda some: f"[{' , '.join(some)}]"),
        st.dictionaries(TEXTS, inner, max_size=3).map(
            lambda one: "{" + ",\n".join(f"{json.dumps(k)} : {v}" for k, v in one.items()) + "}"
        ),
    ),
    max_leaves=6,
)
SCALAR_KINDS = [
    *(BOOLEAN, TINY, SMALL, INT, LONG, FLOAT, DOUBLE, TEXT, BINARY, DAY, MOMENT, LOCAL),
    *(spark.DecimalType(9, 3), spark.DecimalType(38, 10), spark.VarcharType(3)),
]
KINDS = st.sampled_from(SCALAR_KINDS)


def says(kind: spark.DataType, text: str, found: Any) -> bool:
    """Whether a column has what a JSON text says, by rules that do not know how it was decoded."""
    given = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    if given is None:
        return found is None
    if isinstance(kind, (spark.StringType, spark.VarcharType)):
        return bool(found == (given if isinstance(given, str) else text))
    if isinstance(kind, (spark.IntegralType, spark.DecimalType)):
        return Decimal(given) == Decimal(found)
    if isinstance(kind, (spark.FloatType, spark.DoubleType)):
        pattern = "<f" if isinstance(kind, spark.FloatType) else "<d"
        # The nearest one that there is.
        (number,) = struct.unpack(pattern, struct.pack(pattern, float(given)))
        return bool(found == number) or (math.isnan(found) and given == "NaN")
    if isinstance(kind, spark.BinaryType):
        return bool(base64.b64encode(found).decode() == given)
    if isinstance(kind, spark.BooleanType):
        return bool(given is found)
    wanted = datetime.fromisoformat(given).replace(tzinfo=None)
    if isinstance(kind, spark.DateType):
        return wanted == datetime.combine(found, datetime.min.time())
    return bool(wanted == found.replace(tzinfo=None))


@settings(max_examples=300, deadline=None)
@given(KINDS, VALUES)
@example(DOUBLE, "1e400")
@example(spark.DecimalType(9, 3), "1.0005")
def test_whatever_a_value_is_it_comes_out_as_it_is_or_is_bad(
    kind: spark.DataType, text: str
) -> None:
    (found,) = decoded(column(kind), b'{"it": %b}' % text.encode())
    if found["error"] is None:
        assert says(kind, text, found["record"]["it"])


@given(KINDS, st.lists(SCALARS, max_size=4))
def test_it_is_the_same_at_any_depth(kind: spark.DataType, texts: list[str]) -> None:
    array = spark.StructType(
        [
            spark.StructField("array", spark.ArrayType(kind)),
            spark.StructField("map", spark.MapType(TEXT, column(kind))),
        ]
    )
    alone = decoded(column(kind), *(b'{"it": %b}' % one.encode() for one in texts))
    members = ", ".join(f'"{at}": {{"it": {one}}}' for at, one in enumerate(texts))
    (found,) = decoded(array, f'{{"array": [{", ".join(texts)}], "map": {{{members}}}}}'.encode())
    bad = [one["error"] for one in alone if one["error"] is not None]
    assert (found["error"] is None) is not bool(bad)
    if not bad:
        expected = [one["record"]["it"] for one in alone]
        assert repr(found["record"]["array"]) == repr(expected)
        assert repr([one["it"] for _, one in found["record"]["map"]]) == repr(expected)


class Everything:
    """Wants the text of what is at some depth."""

    def __init__(self, depth: int) -> None:
        self.is_text = depth == 0
        self._depth = depth

    def member(self, name: str) -> Everything:
        return Everything(self._depth - 1)

    def element(self) -> Everything:
        return Everything(self._depth - 1)


def parsed_again(value: Any, depth: int) -> Any:
    """The same value, with its texts at that depth parsed."""
    if depth == 0:
        is_structure = isinstance(value, str) and value[:1] in ("{", "[")
        return parsed_object(f'{{"it": {value}}}')["it"] if is_structure else value
    if isinstance(value, dict):
        return {name: parsed_again(one, depth - 1) for name, one in value.items()}
    if isinstance(value, list):
        return [parsed_again(one, depth - 1) for one in value]
    return value


@given(VALUES.filter(lambda one: '"{' not in one and '"[' not in one), st.integers(-1, 3))
def test_a_text_is_cut_out_where_it_is(text: str, depth: int) -> None:
    text = f' {{ "it" : {text} }} '
    found = with_texts(text, Everything(depth + 1))
    assert parsed_again(found, depth + 1) == parsed_object(text)


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(1, 255))
def test_no_bytes_break_it(value: bytes, at: int, change: int) -> None:
    kind = spark.StructType(
        [
            spark.StructField(f"c{number}", one)
            for number, one in enumerate((LONG, TEXT, MOMENT, spark.MapType(TEXT, TEXT)))
        ]
    )
    sound = b'{"c0": 7, "c1": {"a": "\\u00e9"}, "c2": "2024-02-29", "c3": {"x": [1, "y"]}}'
    damaged = bytearray(sound)
    damaged[at % len(damaged)] ^= change
    assert decoded(kind, value, bytes(damaged), sound)[2]["error"] is None
    with pytest.raises(NotThis):
        parsed_object(value.decode("latin-1") + "}}")


def test_many_values_are_parsed_in_pieces() -> None:
    """A piece ends within them, and each row keeps its place."""
    values = [b'{"it": %d, "other": "%b"}' % (one, b"x" * 20_000) for one in range(40)]
    values[13] = values[29] = b"tea"
    found = decoded(column(LONG), *values)
    assert [at for at, one in enumerate(found) if one["error"] is not None] == [13, 29]
    assert [one["record"]["it"] for one in found if one["record"]] == [
        one for one in range(40) if one not in (13, 29)
    ]
    assert decoded(column(LONG)) == []
