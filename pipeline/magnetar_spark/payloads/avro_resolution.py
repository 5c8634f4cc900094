"""Reads values of one schema as records of another one: the writer's and the reader's.

Avro lets a reader change a value in silence. Here it stays the same, or it is an error: a long
becomes a double if there is such a double. Logical types are those of the value as it was written,
or of the default of a field that the writer does not have.
Source: Apache Avro 1.12 Specification, Schema Resolution, Complex Types (default), Logical Types.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from struct import Struct
from typing import Any

from magnetar_core import avro_binary as binary
from magnetar_core.avro_binary import Read, Skip
from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.avro_schemas import RECORDS, AvroSchema, logical_type
from magnetar_spark.payloads.exact_decimals import ExactDecimal
from magnetar_spark.payloads.payload import NotThis

Convert = Callable[[Any], Any]
_PLAIN: dict[str, Read] = {
    "null": binary.read_null,
    "boolean": binary.read_boolean,
    "int": binary.read_int,
    "long": binary.read_long,
    "float": binary.read_float,
    "double": binary.read_double,
    "bytes": binary.read_bytes,
    "string": binary.read_string,
}
# Pairs of a writer's and a reader's type whose values need no conversion.
_AS_IT_IS = {
    *((one, one) for one in _PLAIN),
    *(("int", "long"), ("float", "double"), ("string", "bytes")),
}
# The Python class of a default in JSON, by type.
_JSON = {"null": type(None), "boolean": bool, "string": str}
_FLOAT = Struct("<f")
_DAY_0 = date(1970, 1, 1).toordinal()
_DAYS = (1 - _DAY_0, date.max.toordinal() - _DAY_0)
_DAY_US = 24 * 3600 * 1_000_000
_TIMES_US = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)
# A decimal may have more than its digits need, but there is no use in many.
_DECIMAL_BYTES_MAX = 1_000
_EXACT = Context(prec=3 * _DECIMAL_BYTES_MAX)
# The meaning of the logical types that have a column type of their own. Values can be converted
# between two logical types with the same meaning.
_MEANING = {
    "date": "day",
    "decimal": "decimal",
    "timestamp-millis": "moment",
    "timestamp-micros": "moment",
    "local-timestamp-millis": "local time",
    "local-timestamp-micros": "local time",
}


class Unresolvable(NotThis):
    """Values of the writer's schema cannot be read with the reader's schema."""


class AvroResolution:
    """A writer's schema beside the reader's."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer = writer
        self._reader = reader
        self._skips: dict[str, Skip] = {}

    def read(self) -> Read:
        """Return a reader of values.

        Raises:
            Unresolvable: no value can be read.
        """
        return self._read(self._writer.root, self._reader.root, "the record")

    def _read(self, writer_part: Any, reader_part: Any, path: str) -> Read:
        writer, reader = self._writer.node(writer_part), self._reader.node(reader_part)
        if isinstance(writer, list):
            return binary.union([self._branch(one, reader_part, path) for one in writer])
        if isinstance(reader, list):
            return self._read_as_one_of(writer_part, reader, path)
        made = self._read_node(writer, reader, path)
        convert = _between(writer, reader, path)
        return made if convert is None else _converted(made, convert)

    def _branch(self, writer_part: Any, reader_part: Any, path: str) -> Read:
        """A branch of a writer's union fails only when a value has that branch."""
        try:
            return self._read(writer_part, reader_part, path)
        except Unresolvable as error:
            return _refusing(error)

    def _read_as_one_of(self, writer_part: Any, branches: list[Any], path: str) -> Read:
        # The column of two types of numbers is that of the wider one.
        for one in sorted(branches, key=lambda one: bool(one == "float")):
            try:
                return self._read(writer_part, one, path)
            except Unresolvable as raised:
                error = raised
        if len(branches) == 1:
            raise error
        raise Unresolvable(f"{path} is of no type of the reader's union")

    def _read_node(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> Read:
        given, wanted = writer["type"], reader["type"]
        if (given, wanted) in _AS_IT_IS:
            # A string that is read as bytes need not be text.
            return _PLAIN["bytes" if wanted == "bytes" else given]
        if given in ("int", "long") and wanted in ("float", "double"):
            return _converted(_PLAIN[given], _FLOATING[wanted])
        if (given, wanted) == ("bytes", "string"):
            return binary.read_string
        if given == wanted == "array":
            if not self._writer.takes_bytes(writer["items"]):
                raise Unresolvable(f"{path} is an array of items without content")
            return binary.array(self._read(writer["items"], reader["items"], path))
        if given == wanted == "map":
            return binary.mapping(self._read(writer["values"], reader["values"], path))
        if given in RECORDS and wanted in RECORDS and _is_same_name(writer, reader):
            return self._read_record(writer, reader, path)
        if given == wanted == "fixed" and _is_same_name(writer, reader):
            if writer["size"] != reader["size"]:
                raise Unresolvable(f"{path} is a fixed of another size")
            return binary.fixed(writer["size"])
        if given == wanted == "enum" and _is_same_name(writer, reader):
            return _read_enum(writer, reader, path)
        raise Unresolvable(f"{path} is {_told(writer)}, and the reader's is {_told(reader)}")

    def _read_record(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> Read:
        given = {one["name"] for one in writer["fields"]}
        wanted: dict[str, dict[str, Any]] = {}
        defaults = {}
        for field in reader["fields"]:
            names = [one for one in (field["name"], *field.get("aliases", ())) if one in given]
            if names:
                wanted.setdefault(names[0], field)
            elif "default" in field:
                defaults[field["name"]] = default_of(self._reader, field)
            else:
                raise Unresolvable(f"{path} has no field {field['name']}, which has no default")
        steps: list[tuple[str | None, Read]] = []
        for field in writer["fields"]:
            target = wanted.get(field["name"])
            if target is None:
                steps.append((None, _without_value(self._skip(field["type"], path))))
            else:
                name = target["name"]
                steps.append((name, self._read(field["type"], target["type"], f"{path}.{name}")))
        return _read_fields(steps, defaults)

    def _skip(self, part: Any, path: str) -> Skip:
        node = self._writer.node(part)
        if isinstance(node, list):
            return binary.skip_union([self._skip(one, path) for one in node])
        kind = node["type"]
        if kind in RECORDS:
            return self._skip_record(node, path)
        if kind in ("bytes", "string"):
            return binary.skip_bytes
        if kind == "array":
            if not self._writer.takes_bytes(node["items"]):
                raise Unresolvable(f"{path} has an array of items without content")
            return binary.skip_blocks(self._skip(node["items"], path))
        if kind == "map":
            value = self._skip(node["values"], path)
            return binary.skip_blocks(binary.skip_record([binary.skip_bytes, value]))
        if kind == "fixed":
            return binary.skipping(binary.fixed(node["size"]))
        return binary.skipping(binary.one_of(node["symbols"]) if kind == "enum" else _PLAIN[kind])

    def _skip_record(self, node: dict[str, Any], path: str) -> Skip:
        """A record may contain itself."""
        name = node["name"]
        if name not in self._skips:
            self._skips[name] = lambda data, at: self._skips[name](data, at)
            self._skips[name] = binary.skip_record(
                [self._skip(one["type"], path) for one in node["fields"]]
            )
        return self._skips[name]


def default_of(reader: AvroSchema, field: dict[str, Any]) -> Any:
    """Return the value of a field that a writer does not have.

    Raises:
        OptionError: the schema has no default of the field's type there.
    """
    try:
        return _from_json(reader, field["type"], field["default"])
    except (ValueError, OverflowError, LookupError, AttributeError, TypeError) as error:
        raise OptionError(
            f"the default of the field {field['name']} is not of its type:"
            f" {field['default']!r} ({error})"
        ) from None


def check_defaults(reader: AvroSchema, part: Any) -> None:
    """Check the defaults of all fields; raises as `default_of`."""
    node = reader.node(part)
    if isinstance(node, list):
        for one in node:
            check_defaults(reader, one)
    elif node["type"] in RECORDS:
        for field in node["fields"]:
            if "default" in field:
                default_of(reader, field)
            check_defaults(reader, field["type"])
    elif node["type"] in ("array", "map"):
        check_defaults(reader, node["items" if node["type"] == "array" else "values"])


def _from_json(reader: AvroSchema, part: Any, given: Any) -> Any:
    node = reader.node(part)
    if isinstance(node, list):
        return _first_of(reader, node, given)
    kind = node["type"]
    if kind in (*RECORDS, "map") and not isinstance(given, dict):
        raise ValueError(f"not a {kind}")
    if kind in RECORDS:
        return {
            one["name"]: _from_json(reader, one["type"], given[one["name"]])
            if one["name"] in given
            else _from_json(reader, one["type"], one["default"])
            for one in node["fields"]
        }
    if kind == "array":
        if not isinstance(given, list):
            raise ValueError("not an array")
        return [_from_json(reader, node["items"], one) for one in given]
    if kind == "map":
        return {name: _from_json(reader, node["values"], one) for name, one in given.items()}
    convert = _between(node, node, "it")
    found = _scalar(node, given)
    return found if convert is None else convert(found)


def _first_of(reader: AvroSchema, branches: list[Any], given: Any) -> Any:
    for branch in branches:
        try:
            return _from_json(reader, branch, given)
        except (ValueError, OverflowError, LookupError, AttributeError, TypeError) as raised:
            error = raised
    raise ValueError(f"of no type of the union: {error}")


def _scalar(node: dict[str, Any], given: Any) -> Any:
    kind = node["type"]
    if kind in ("bytes", "fixed") and isinstance(given, str):
        found = given.encode("latin-1")
        if kind == "bytes" or len(found) == node["size"]:
            return found
    elif kind in ("int", "long") and type(given) is int:
        bits = 31 if kind == "int" else 63
        if -(1 << bits) <= given < 1 << bits:
            return given
    elif kind in ("float", "double") and type(given) in (int, float):
        return float(given)
    elif (kind == "enum" and given in node["symbols"]) or type(given) is _JSON.get(kind):
        return given
    raise ValueError(f"not {_told(node)}")


def _read_fields(steps: list[tuple[str | None, Read]], defaults: dict[str, Any]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = defaults.copy()
        for name, field in steps:
            value, at = field(data, at)
            if name is not None:
                record[name] = value
        return record, at

    return read


def _read_enum(writer: dict[str, Any], reader: dict[str, Any], path: str) -> Read:
    symbols, default = reader["symbols"], reader.get("default")
    read = binary.one_of(writer["symbols"])
    if set(writer["symbols"]) <= set(symbols):
        return read

    def known(symbol: str) -> str:
        if symbol in symbols:
            return symbol
        if default is None:
            raise NotThis(f"{path} is {symbol}, which the reader's enum does not have")
        return str(default)

    return _converted(read, known)


def _converted(read: Read, convert: Convert) -> Read:
    def both(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return both


def _without_value(skip: Skip) -> Read:
    return lambda data, at: (None, skip(data, at))


def _refusing(error: Unresolvable) -> Read:
    text = str(error)

    def refuse(data: bytes, at: int) -> tuple[Any, int]:
        raise NotThis(text)

    return refuse


def _is_same_name(writer: dict[str, Any], reader: dict[str, Any]) -> bool:
    """Names count without their namespaces."""
    names = (reader["name"], *reader.get("aliases", ()))
    return _last(writer["name"]) in {_last(name) for name in names}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _told(node: dict[str, Any]) -> str:
    kind = node["type"]
    return f"{kind} {node['name']}" if "name" in node else str(kind)


def _between(writer: dict[str, Any], reader: dict[str, Any], path: str) -> Convert | None:
    """Return the conversion of a written value to the reader's logical type; None: it stays.

    Raises:
        Unresolvable: the writer's logical type means something else.
    """
    wanted = logical_type(reader)
    if wanted is None:
        return None
    given = logical_type(writer) or wanted
    if _MEANING.get(given, given) != _MEANING.get(wanted, wanted):
        raise Unresolvable(f"{path} is {given}, and the reader's is {wanted}")
    if given == "decimal":
        described = reader if logical_type(writer) is None else writer
        column = ExactDecimal(reader["precision"], reader.get("scale", 0))
        return _decimal(described.get("scale", 0), column)
    if given == "date":
        return _in_range(1, *_DAYS)
    if given in _MEANING:
        return _in_range(1_000 if given.endswith("millis") else 1, *_TIMES_US)
    return None


def _in_range(unit: int, first: int, last: int) -> Convert:
    def convert(number: int) -> int:
        found = number * unit
        if not first <= found <= last:
            raise NotThis(f"a time or a day is {number}: its year is not one of 1 to 9999")
        return found

    return convert


def _decimal(scale: int, column: ExactDecimal) -> Convert:
    def convert(data: bytes) -> Decimal:
        if len(data) > _DECIMAL_BYTES_MAX:
            raise NotThis(f"a decimal has {len(data)} bytes")
        unscaled = int.from_bytes(data, "big", signed=True)
        return column.of(Decimal(unscaled).scaleb(-scale, _EXACT))

    return convert


def _floating(number: int) -> float:
    found = float(number)
    if int(found) != number:
        raise NotThis(f"{number} cannot be a double without a change")
    return found


def _single(number: int) -> float:
    (found,) = _FLOAT.unpack(_FLOAT.pack(number))
    if int(found) != number:
        raise NotThis(f"{number} cannot be a float without a change")
    return float(found)


_FLOATING: dict[str, Convert] = {"float": _single, "double": _floating}
