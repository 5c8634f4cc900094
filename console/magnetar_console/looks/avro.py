"""Values in Avro as text for people, by a schema from a file. Pure.

Each value is one datum, without a container file. It is shown as its writer wrote it:
nothing is resolved to another schema.
Source: Apache Avro 1.12 Specification, Schema Declaration, Names, Binary Encoding.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

from magnetar_console.looks.contents import JSON_BYTES_MAX, content, json_text, shown
from magnetar_core import avro_binary as binary
from magnetar_core.avro_binary import Read
from magnetar_core.config import InvalidConfig

_PLAIN: Final[Mapping[str, Read]] = {
    "null": binary.read_null,
    "boolean": binary.read_boolean,
    "int": binary.read_int,
    "long": binary.read_long,
    "float": binary.read_float,
    "double": binary.read_double,
    "bytes": binary.read_bytes,
    "string": binary.read_string,
}
# What reading raises for bytes that are not a datum of the schema.
_UNREADABLE = (ArithmeticError, LookupError, RecursionError, ValueError, struct.error)
# Confluent's framing: a zero, and the number of the writer's schema.
_HEADER: Final = struct.Struct(">bI")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMAL_BYTES_MAX: Final = 128


class AvroValues:
    """Shows the values of a topic.

    Args:
        schema: the schema of values, as JSON; of another form it is refused.
        writers: with Confluent's framing, the schemas of writers by number; None: without framing.
    Raises:
        InvalidConfig: a schema is not one of Avro.
    """

    def __init__(self, schema: str, writers: Mapping[int, str] | None = None) -> None:
        self._read = _Schema(schema).read
        self._writers = None
        if writers is not None:
            self._writers = {number: _Schema(text).read for number, text in writers.items()}

    def show(self, data: bytes) -> dict[str, Any]:
        """Return a value as text for people; what is not of the schema is shown without it."""
        if len(data) > JSON_BYTES_MAX:
            return content(data) | {"note": "too long to be read as Avro"}
        start, form, read = 0, "Avro", self._read
        if self._writers is not None:
            if len(data) < _HEADER.size or data[0]:
                return content(data) | {"note": "not Avro: no number of a schema"}
            start, number = _HEADER.size, int(_HEADER.unpack_from(data)[1])
            if number not in self._writers:
                return content(data) | {"note": f"Avro of schema {number}, which is not here"}
            form, read = f"Avro, schema {number}", self._writers[number]
        try:
            found, end = read(data, start)
            if end != len(data):
                raise ValueError(f"{len(data) - end} bytes are left")
            return shown(data, form, json_text(found))
        except _UNREADABLE as error:
            return content(data) | {"note": f"not Avro of the schema: {_told(error)}"}


class _Schema:
    """A schema, as a function that reads its data.

    Attributes:
        read: returns what JSON can say.
    """

    def __init__(self, text: str) -> None:
        self._named: dict[str, Read] = {}
        self._parts: dict[str, Any] = {}
        try:
            self.read = self._reader(json.loads(text), "")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InvalidConfig(f"not a schema of Avro: {error!r}") from None

    def _reader(self, part: Any, space: str) -> Read:
        if isinstance(part, list):
            return binary.union([self._reader(one, space) for one in part])
        if isinstance(part, str):
            if part in _PLAIN:
                return _PLAIN[part] if part != "bytes" else _converted(binary.read_bytes, _digits)
            return self._by_name(_full(part, space))
        kind = part["type"]
        if not isinstance(kind, str):
            return self._reader(kind, space)
        match kind:
            case "record" | "error":
                return self._record(part, space)
            case "enum":
                read = binary.one_of([str(one) for one in part["symbols"]])
                return self._define(part, space, read)
            case "fixed":
                size = int(part["size"])
                read = _logical(part, binary.fixed(size)) or _converted(binary.fixed(size), _digits)
                return self._define(part, space, read)
            case "array":
                item = self._reader(part["items"], space)
                if self._is_empty(part["items"], space, ()):
                    # A few bytes could declare any number of them.
                    raise ValueError("an array of items without content")
                return binary.array(item)
            case "map":
                return binary.mapping(self._reader(part["values"], space))
        if kind in _PLAIN:
            return _logical(part, _PLAIN[kind]) or self._reader(kind, space)
        return self._by_name(_full(kind, space))

    def _by_name(self, name: str) -> Read:
        """Return the reader of a named type, which may not be complete yet: it contains itself."""
        if name not in self._named:
            raise ValueError(f"there is no type {name!r}")
        return lambda data, at: self._named[name](data, at)

    def _define(self, part: dict[str, Any], space: str, read: Read) -> Read:
        name = _name_of(part, space)
        if name in self._named:
            raise ValueError(f"there are two types {name!r}")
        self._named[name], self._parts[name] = read, part
        return read

    def _record(self, part: dict[str, Any], space: str) -> Read:
        name = _name_of(part, space)
        inside = name.rpartition(".")[0]
        fields: list[tuple[str, Read]] = []

        def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
            found = {}
            for field, one in fields:
                found[field], at = one(data, at)
            return found, at

        self._define(part, space, read)
        for field in part["fields"]:
            fields.append((str(field["name"]), self._reader(field["type"], inside)))
        return read

    def _is_empty(self, part: Any, space: str, within: tuple[str, ...]) -> bool:
        """Whether a value may take no bytes.

        Args:
            within: the records that contain it.
        """
        if isinstance(part, list):
            return False  # The number of the branch.
        if isinstance(part, str):
            if part in _PLAIN:
                return part == "null"
            name = _full(part, space)
            return self._is_empty(self._parts[name], name.rpartition(".")[0], within)
        kind = part["type"]
        if kind in ("array", "map", "enum"):
            return False
        if kind == "fixed":
            return not part["size"]
        if kind in ("record", "error"):
            name = _name_of(part, space)
            inside = name.rpartition(".")[0]
            return name in within or all(
                self._is_empty(one["type"], inside, (*within, name)) for one in part["fields"]
            )
        return self._is_empty(kind, space, within)


def _name_of(part: dict[str, Any], space: str) -> str:
    return _full(str(part["name"]), str(part.get("namespace", space)))


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _converted(read: Read, convert: Callable[[Any], Any]) -> Read:
    def both(data: bytes, at: int) -> tuple[Any, int]:
        found, at = read(data, at)
        return convert(found), at

    return both


def _digits(data: bytes) -> str:
    return f"0x{data.hex()}"


def _logical(part: dict[str, Any], read: Read) -> Read | None:
    """Return a reader of a logical type; None: it is shown as its type."""
    name, kind = part.get("logicalType"), part["type"]
    if name == "date" and kind == "int":
        return _converted(read, lambda days: (date(1970, 1, 1) + timedelta(days)).isoformat())
    if kind == "long" and name in ("timestamp-millis", "timestamp-micros"):
        spec = "milliseconds" if name == "timestamp-millis" else "microseconds"
        unit = timedelta(**{spec: 1})
        return _converted(read, lambda count: (_EPOCH + count * unit).isoformat(timespec=spec))
    if name == "decimal" and kind in ("bytes", "fixed"):
        scale = int(part.get("scale", 0))

        def number(data: bytes) -> str:
            if len(data) > _DECIMAL_BYTES_MAX:
                raise ValueError("a decimal has too many digits")
            unscaled = Decimal(int.from_bytes(data, signed=True))
            return format(unscaled.scaleb(-scale, Context(prec=2_000)), "f")

        return _converted(read, number)
    return None


def _told(error: Exception) -> str:
    if isinstance(error, (LookupError, struct.error)):
        return "its end is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error) or type(error).__name__
