"""Turns parsed JSON into columns of Arrow, a column at a time.

No value is changed. A value that its column cannot hold is a fault of the row: a number that it
would round, a text that is not a date, half of a surrogate pair.
Source: docs/pipeline.md, What each format accepts.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import accumulate
from math import isinf
from struct import Struct
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import types as spark

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.exact_decimals import ExactDecimal
from magnetar_spark.payloads.json_text import Places
from magnetar_spark.payloads.payload import DOES_NOT_FIT, NotThis, arrow_type

# Returns the row of a value by its index in a list.
RowOf = Callable[[int], int]
# Reads a value of one Python class. Raises ValueError or OverflowError.
Reader = Callable[[Any], Any]


@dataclass
class Faults:
    """Faults in the rows of some columns.

    Attributes:
        reasons: by row, the first reason why it does not follow the schema.
        texts_wanted: rows with an array or an object in a column that takes its text.
    """

    reasons: dict[int, str] = field(default_factory=dict)
    texts_wanted: set[int] = field(default_factory=set)

    def add(self, row: int, reason: str) -> None:
        """Add a reason; only the first one of a row is kept."""
        self.reasons.setdefault(row, reason)


class Column(Places, Protocol):
    """A column, or a part of one."""

    def array(self, values: list[Any], row_of: RowOf, faults: Faults) -> pa.Array:
        """Return the values. A value that is a fault becomes null, and its row a reason."""


def column_of(kind: spark.DataType, path: str = "") -> Column:
    """Return a maker of columns of a type.

    Args:
        path: the column's name, for errors.
    Raises:
        OptionError: JSON has no values of the type.
    """
    if isinstance(kind, spark.StructType):
        return _StructColumn(kind, path)
    if isinstance(kind, spark.ArrayType):
        return _ArrayColumn(kind, path)
    if isinstance(kind, spark.MapType):
        return _MapColumn(kind, path)
    readers = _readers(kind)
    if readers is None:
        raise OptionError(
            f"the column {path} is {kind.simpleString()}, which JSON has no values of: take STRING,"
            " which keeps the text of what is there"
        )
    return _ScalarColumn(kind, readers, path)


def stored_type(kind: spark.DataType) -> spark.DataType:
    """Return the type of the column. VARCHAR and CHAR become STRING: lengths are checked here."""
    if isinstance(kind, (spark.VarcharType, spark.CharType)):
        return spark.StringType()
    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [
                spark.StructField(one.name, stored_type(one.dataType), one.nullable)
                for one in kind.fields
            ]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(stored_type(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType):
        return spark.MapType(
            stored_type(kind.keyType), stored_type(kind.valueType), kind.valueContainsNull
        )
    return kind


class _ScalarColumn:
    """A column of texts, numbers, or what is written as such.

    Args:
        readers: by class, what reads a value; that of most values is the first.
    """

    def __init__(self, kind: spark.DataType, readers: Mapping[type, Reader], path: str) -> None:
        self.is_text = isinstance(kind, _TEXTS)
        self._arrow = arrow_type(stored_type(kind))
        # Arrow reads whole numbers from their text.
        self._is_whole = isinstance(kind, spark.IntegralType)
        self._name = kind.simpleString().upper()
        self._readers = readers
        self._path = path
        usual = next(iter(readers))
        self._usual = frozenset({usual, type(None)})
        self._read = readers[usual]

    def member(self, name: str) -> None:
        """See `Places`."""

    def element(self) -> None:
        """See `Places`."""

    def array(self, values: list[Any], row_of: RowOf, faults: Faults) -> pa.Array:
        """See `Column`."""
        if self.is_text:
            values = _without_structure(values, row_of, faults)
        try:
            if self._usual.issuperset(map(type, values)):
                read = self._read
                if read is _same:
                    return self._made(values)
                return self._made([None if value is None else read(value) for value in values])
            return self._made([self._one(value) for value in values])
        except (*DOES_NOT_FIT, KeyError):
            return self._one_by_one(values, row_of, faults)

    def _made(self, values: list[Any]) -> pa.Array:
        """An array of what the readers return."""
        if self._is_whole:
            return pa.array(values, pa.string()).cast(self._arrow)
        return pa.array(values, self._arrow)

    def _one_by_one(self, values: list[Any], row_of: RowOf, faults: Faults) -> pa.Array:
        found = []
        for at, value in enumerate(values):
            try:
                one = self._one(value)
                self._made([one])
            except (*DOES_NOT_FIT, KeyError) as error:
                why = f": {error}" if isinstance(error, NotThis) else ""
                faults.add(row_of(at), f"{self._path} is not a {self._name}: {_short(value)}{why}")
                one = None
            found.append(one)
        return self._made(found)

    def _one(self, value: Any) -> Any:
        return None if value is None else self._readers[value.__class__](value)


class _StructColumn:
    """A column of objects, of which each member has a column."""

    is_text = False

    def __init__(self, kind: spark.StructType, path: str) -> None:
        names = [one.name for one in kind]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"{path or 'the schema'} has two fields {name!r}")
        self._arrow = arrow_type(stored_type(kind))
        self._path = path
        self._columns = {one.name: column_of(one.dataType, _join(path, one.name)) for one in kind}
        self._required = {one.name for one in kind if not one.nullable}

    def member(self, name: str) -> Column | None:
        """See `Places`."""
        return self._columns.get(name)

    def element(self) -> None:
        """An array in the place of an object is a fault."""

    def array(self, values: list[Any], row_of: RowOf, faults: Faults) -> pa.Array:
        """See `Column`."""
        values = _only(dict, values, self._path, row_of, faults)
        children = []
        for name, column in self._columns.items():
            members = [None if value is None else value.get(name) for value in values]
            if name in self._required and None in members:
                for at, one in enumerate(members):
                    if one is None and values[at] is not None:
                        faults.add(row_of(at), f"no {_join(self._path, name)}")
            children.append(column.array(members, row_of, faults))
        return pa.StructArray.from_arrays(children, fields=list(self._arrow), mask=_is_null(values))


class _ArrayColumn:
    """A column of arrays."""

    is_text = False

    def __init__(self, kind: spark.ArrayType, path: str) -> None:
        self._arrow = arrow_type(stored_type(kind))
        self._path = path
        self._has_nulls = kind.containsNull
        self._column = column_of(kind.elementType, f"{path}.element")

    def member(self, name: str) -> None:
        """An object in the place of an array is a fault."""

    def element(self) -> Column:
        """See `Places`."""
        return self._column

    def array(self, values: list[Any], row_of: RowOf, faults: Faults) -> pa.Array:
        """See `Column`."""
        values = _only(list, values, self._path, row_of, faults)
        ends = _ends(values)
        elements = [one for some in values if some is not None for one in some]
        row_of_element = _row_of_part(ends, row_of)
        if not self._has_nulls:
            _require(elements, f"{self._path}.element", row_of_element, faults)
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()),
            self._column.array(elements, row_of_element, faults),
            type=self._arrow,
            mask=_is_null(values),
        )


class _MapColumn:
    """A column of objects whose names are keys."""

    is_text = False

    def __init__(self, kind: spark.MapType, path: str) -> None:
        if not isinstance(kind.keyType, _TEXTS):
            raise OptionError(
                f"the column {path} is {kind.simpleString()}, and the names in a JSON object are"
                f" text: take MAP<STRING, {kind.valueType.simpleString().upper()}>"
            )
        self._arrow = arrow_type(stored_type(kind))
        self._path = path
        self._has_nulls = kind.valueContainsNull
        self._keys = column_of(kind.keyType, f"{path}.key")
        self._column = column_of(kind.valueType, f"{path}.value")

    def member(self, name: str) -> Column:
        """See `Places`."""
        return self._column

    def element(self) -> None:
        """An array in the place of an object is a fault."""

    def array(self, values: list[Any], row_of: RowOf, faults: Faults) -> pa.Array:
        """See `Column`."""
        values = _only(dict, values, self._path, row_of, faults)
        ends = _ends(values)
        keys = [name for value in values if value is not None for name in value]
        items = [item for value in values if value is not None for item in value.values()]
        row_of_item = _row_of_part(ends, row_of)
        if not self._has_nulls:
            _require(items, f"{self._path}.value", row_of_item, faults)
        return pa.MapArray.from_arrays(
            pa.array(ends, pa.int32()),
            # A row with a faulty key is null in the end, whatever its key is here.
            self._keys.array(keys, row_of_item, faults).fill_null(""),
            self._column.array(items, row_of_item, faults),
            type=self._arrow,
            mask=_is_null(values),
        )


def _without_structure(values: list[Any], row_of: RowOf, faults: Faults) -> list[Any]:
    """The values without arrays and objects, of which a column of text takes the text."""
    if {dict, list}.isdisjoint(map(type, values)):
        return values
    found = []
    for at, one in enumerate(values):
        if isinstance(one, (dict, list)):
            faults.texts_wanted.add(row_of(at))
            one = None
        found.append(one)
    return found


def _only(wanted: type, values: list[Any], path: str, row_of: RowOf, faults: Faults) -> list[Any]:
    """The values of a class; the others are faults."""
    if {wanted, type(None)}.issuperset(map(type, values)):
        return values
    found = []
    what = "an object" if wanted is dict else "an array"
    for at, one in enumerate(values):
        if one is not None and type(one) is not wanted:
            faults.add(row_of(at), f"{path} is not {what}: {_short(one)}")
            one = None
        found.append(one)
    return found


def _require(values: list[Any], path: str, row_of: RowOf, faults: Faults) -> None:
    if None in values:
        for at, one in enumerate(values):
            if one is None:
                faults.add(row_of(at), f"no {path}")


def _ends(values: list[Any]) -> list[int]:
    return [0, *accumulate(0 if value is None else len(value) for value in values)]


def _row_of_part(ends: list[int], row_of: RowOf) -> RowOf:
    return lambda at: row_of(bisect_right(ends, at) - 1)


def _is_null(values: list[Any]) -> pa.Array | None:
    return pa.array([value is None for value in values]) if None in values else None


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DAY_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DAY = re.compile(_DAY_PATTERN)
# Digits behind the microseconds may be zeros only.
_TIME_PATTERN = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6}0*)?)?"
_LOCAL_TIME = re.compile(f"{_DAY_PATTERN}(?:{_TIME_PATTERN})?")
_MOMENT = re.compile(f"{_DAY_PATTERN}(?:{_TIME_PATTERN}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)?)?")
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_FLOAT = Struct("<f")


def _same(value: Any) -> Any:
    return value


def _double(text: bytes) -> float:
    number = float(text)
    if isinf(number) or (not number and _is_not_zero(text)):
        raise NotThis("it is out of range")
    return number


def _float(text: bytes) -> float:
    (number,) = _FLOAT.unpack(_FLOAT.pack(float(text)))
    if isinf(number) or (not number and _is_not_zero(text)):
        raise NotThis("it is out of range")
    assert isinstance(number, float)
    return number


def _is_not_zero(number: bytes) -> bool:
    digits = number.lower().partition(b"e")[0]
    return bool(digits.strip(b"-0."))


def _special(text: str) -> float:
    return _SPECIAL[text]


def _decimal(column: ExactDecimal, number: bytes) -> Decimal:
    return column.of(Decimal(number.decode()))


def _decimal_text(column: ExactDecimal, text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise NotThis("the text is not a number as JSON writes it")
    return column.of(Decimal(text))


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _binary(text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        found = b""
    if base64.b64encode(found).decode() != text:
        raise NotThis("it is not base64")
    return found


def _day(text: str) -> date:
    if not _DAY.fullmatch(text):
        raise NotThis("a day is written as 2024-02-29")
    return date.fromisoformat(text)


def _moment(text: str) -> datetime:
    if not _MOMENT.fullmatch(text):
        raise NotThis(
            "a moment is written as 2024-02-29T23:59:59.123456Z, with six digits of a second at"
            " most"
        )
    if text[-1] == "Z":
        text = text[:-1]
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        return found  # Arrow takes it for a time in UTC.
    # Raises OverflowError where UTC has no such year.
    return found.astimezone(UTC)


def _local_time(text: str) -> datetime:
    if not _LOCAL_TIME.fullmatch(text):
        raise NotThis(
            "a time without a zone is written as 2024-02-29T23:59:59.123456, with six digits of a"
            " second at most"
        )
    return datetime.fromisoformat(text)


def _no_moment(number: bytes) -> datetime:
    raise NotThis(
        "a number does not say whether it is seconds or milliseconds. Make the column BIGINT, and"
        " say timestamp_millis() or timestamp_seconds() in a query"
    )


_TEXTS = (spark.StringType, spark.VarcharType, spark.CharType)
_TEXT_READERS: dict[type, Reader] = {str: _same, bytes: bytes.decode, bool: _boolean_text}
_INTEGER: dict[type, Reader] = {bytes: _same}
_READERS: dict[type[spark.DataType], dict[type, Reader]] = {
    spark.BooleanType: {bool: _same},
    spark.ByteType: _INTEGER,
    spark.ShortType: _INTEGER,
    spark.IntegerType: _INTEGER,
    spark.LongType: _INTEGER,
    spark.FloatType: {bytes: _float, str: _special},
    spark.DoubleType: {bytes: _double, str: _special},
    spark.StringType: _TEXT_READERS,
    spark.BinaryType: {str: _binary},
    spark.DateType: {str: _day},
    spark.TimestampType: {str: _moment, bytes: _no_moment},
    spark.TimestampNTZType: {str: _local_time, bytes: _no_moment},
}


def _readers(kind: spark.DataType) -> Mapping[type, Reader] | None:
    if isinstance(kind, (spark.VarcharType, spark.CharType)):
        return {one: partial(_limited, read, kind.length) for one, read in _TEXT_READERS.items()}
    if isinstance(kind, spark.DecimalType):
        column = ExactDecimal(kind.precision, kind.scale)
        return {bytes: partial(_decimal, column), str: partial(_decimal_text, column)}
    return _READERS.get(type(kind))


def _limited(read: Reader, length_max: int, value: Any) -> str:
    text: str = read(value)
    if len(text) > length_max:
        raise NotThis(f"it has more than {length_max} characters")
    return text


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = value.decode() if isinstance(value, bytes) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
