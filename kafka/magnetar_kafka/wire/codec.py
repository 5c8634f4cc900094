"""Reader and writer of Kafka's messages, made from their layouts at the first use. Pure.

A message is a dict of its fields, named as in the layout; structures are dicts, arrays are lists.
The writer takes a default for a field that is not given, and leaves out those that its version does
not have. The reader takes no memory for what a length claims before the bytes are there.
Source: Kafka's documentation, Protocol Primitive Types; KIP-482 for tagged fields.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from uuid import UUID

from magnetar_kafka.wire.apis import Api

# Structures and entries of arrays in a request, all together.
ELEMENTS_MAX = 20_000

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint8": struct.Struct(">B"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "uint64": struct.Struct(">Q"),
    "float64": struct.Struct(">d"),
}
_NO_UUID = UUID(int=0)


class Malformed(Exception):
    """A request is not what its version says; nothing of it was applied."""


class Input:
    """The bytes of a request that were not read yet."""

    __slots__ = ("at", "data", "elements")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.elements = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes.

        Raises:
            Malformed: there are fewer.
        """
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise Malformed(f"a field of {count} bytes exceeds the request")
        found = self.data[self.at : end]
        self.at = end
        return found

    def number(self, layout: struct.Struct) -> Any:
        """Return the next number.

        Raises:
            Malformed: the request ends before.
        """
        try:
            (found,) = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise Malformed("the request ends inside a number") from None
        self.at += layout.size
        return found

    def varint(self) -> int:
        """Return the next unsigned varint, of 32 bits.

        Raises:
            Malformed: it is longer, or the request ends before.
        """
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise Malformed("a length has more than 32 bits")
        if value >= 1 << 32:
            raise Malformed("a length has more than 32 bits")
        return value

    def count_elements(self, count: int) -> None:
        """Count entries of an array before any is read: each takes a byte at least.

        Raises:
            Malformed: there are too many.
        """
        self.elements += count
        if count > len(self.data) - self.at or self.elements > ELEMENTS_MAX:
            raise Malformed(f"an array of {count} entries exceeds the request, or what is allowed")


Reader = Callable[[Input], Any]
Writer = Callable[[bytearray, Any], None]


def is_flexible(api: Api, version: int) -> bool:
    """Return whether a version has compact lengths and tagged fields."""
    return bool(_layout(api, "request", version)["flexible"])


@cache
def request_reader(api: Api, version: int) -> Reader:
    """Return the reader of a request's body."""
    layout = _layout(api, "request", version)
    return _struct_reader(layout["fields"], flexible=layout["flexible"])


@cache
def request_writer(api: Api, version: int) -> Writer:
    """Return the writer of a request's body; for clients in tests."""
    layout = _layout(api, "request", version)
    return _struct_writer(layout["fields"], flexible=layout["flexible"])


@cache
def response_reader(api: Api, version: int) -> Reader:
    """Return the reader of a response's body; for clients in tests."""
    layout = _layout(api, "response", version)
    return _struct_reader(layout["fields"], flexible=layout["flexible"])


@cache
def response_writer(api: Api, version: int) -> Writer:
    """Return the writer of a response's body."""
    layout = _layout(api, "response", version)
    return _struct_writer(layout["fields"], flexible=layout["flexible"])


@cache
def _layouts() -> Mapping[str, Any]:
    text = files("magnetar_kafka.wire").joinpath("messages.json").read_text()
    return dict(json.loads(text))


def _layout(api: Api, kind: str, version: int) -> Mapping[str, Any]:
    for row in _layouts()[api.name][kind]:
        if row["first"] <= version <= row["last"]:
            return dict(row["layout"])
    raise KeyError(f"{api.name} has no version {version}")


# Reading


def skip_tags(source: Input) -> None:
    """Skip tagged fields.

    Raises:
        Malformed: they exceed the request.
    """
    for _ in range(_counted(source, source.varint())):
        source.varint()
        source.take(source.varint())


def _counted(source: Input, count: int) -> int:
    source.count_elements(count)
    return count


def read_nullable_string(source: Input) -> str | None:
    """Return a text with a length of two bytes, as headers have it.

    Raises:
        Malformed: it exceeds the request, or is not UTF-8.
    """
    length = source.number(_NUMBERS["int16"])
    return None if length == -1 else _decoded(source.take(length))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _struct_reader(fields: Sequence[Mapping[str, Any]], *, flexible: bool) -> Reader:
    plain = [
        (field["name"], _field_reader(field, flexible=flexible))
        for field in fields
        if "tag" not in field
    ]
    tagged = {
        field["tag"]: (field["name"], _field_reader(field, flexible=flexible))
        for field in fields
        if "tag" in field
    }
    defaults = {field["name"]: _default_of(field) for field in fields if "tag" in field}

    def read(source: Input) -> dict[str, Any]:
        found = {name: read_field(source) for name, read_field in plain}
        if flexible:
            found.update(defaults)
            for _ in range(_counted(source, source.varint())):
                tag, size = source.varint(), source.varint()
                known = tagged.get(tag)
                if known is None:
                    source.take(size)
                    continue
                end = source.at + size
                found[known[0]] = known[1](source)
                if source.at != end:
                    raise Malformed("a tagged field has another size than it says")
        return found

    return read


def _field_reader(field: Mapping[str, Any], *, flexible: bool) -> Reader:
    is_array, nullable = field.get("array", False), field.get("nullable", False)
    if "fields" in field:
        one = _struct_reader(field["fields"], flexible=flexible)
        if nullable and not is_array:
            return _nullable_struct_reader(one)
    else:
        one = _primitive_reader(
            field["type"], flexible=flexible, nullable=nullable and not is_array
        )
    return _array_reader(one, flexible=flexible, nullable=nullable) if is_array else one


def _nullable_struct_reader(one: Reader) -> Reader:
    def read(source: Input) -> Any:
        return None if source.number(_NUMBERS["int8"]) < 0 else one(source)

    return read


def _array_reader(one: Reader, *, flexible: bool, nullable: bool) -> Reader:
    def read(source: Input) -> list[Any] | None:
        count = source.varint() - 1 if flexible else source.number(_NUMBERS["int32"])
        if count < 0:
            if count == -1 and nullable:
                return None
            raise Malformed(f"an array has {count} entries")
        source.count_elements(count)
        return [one(source) for _ in range(count)]

    return read


def _primitive_reader(kind: str, *, flexible: bool, nullable: bool) -> Reader:
    layout = _NUMBERS.get(kind)
    if layout is not None:
        return lambda source: source.number(layout)
    if kind == "bool":
        return lambda source: source.take(1) != b"\x00"
    if kind == "uuid":
        return _read_uuid
    width = _NUMBERS["int16" if kind == "string" else "int32"]

    def read(source: Input) -> Any:
        length = source.varint() - 1 if flexible else source.number(width)
        if length < 0:
            if length == -1 and nullable:
                return None
            raise Malformed(f"a field has {length} bytes")
        data = source.take(length)
        return _decoded(data) if kind == "string" else data

    return read


def _read_uuid(source: Input) -> UUID | None:
    found = UUID(bytes=source.take(16))
    return None if found == _NO_UUID else found


# Writing


def put_varint(out: bytearray, value: int) -> None:
    """Add an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _struct_writer(fields: Sequence[Mapping[str, Any]], *, flexible: bool) -> Writer:
    plain = [
        (field["name"], _field_writer(field, flexible=flexible), _default_of(field))
        for field in fields
        if "tag" not in field
    ]
    tagged = sorted(
        (field["tag"], field["name"], _field_writer(field, flexible=flexible), _default_of(field))
        for field in fields
        if "tag" in field
    )

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        for name, write_field, default in plain:
            write_field(out, values.get(name, default))
        if not flexible:
            return
        given = [one for one in tagged if values.get(one[1], one[3]) != one[3]]
        put_varint(out, len(given))
        for tag, name, write_field, _ in given:
            body = bytearray()
            write_field(body, values[name])
            put_varint(out, tag)
            put_varint(out, len(body))
            out += body

    return write


def _default_of(field: Mapping[str, Any]) -> Any:
    if "default" in field:
        return field["default"]
    if field.get("nullable"):
        return None
    if field.get("array"):
        return []
    if "fields" in field:
        return {}
    return {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": None}.get(
        field["type"], 0
    )


def _field_writer(field: Mapping[str, Any], *, flexible: bool) -> Writer:
    is_array, nullable = field.get("array", False), field.get("nullable", False)
    if "fields" in field:
        one = _struct_writer(field["fields"], flexible=flexible)
        if nullable and not is_array:
            return _nullable_struct_writer(one)
    else:
        one = _primitive_writer(field["type"], flexible=flexible)
    return _array_writer(one, flexible=flexible) if is_array else one


def _nullable_struct_writer(one: Writer) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        out.append(0xFF if value is None else 1)
        if value is not None:
            one(out, value)

    return write


def _array_writer(one: Writer, *, flexible: bool) -> Writer:
    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        count = -1 if values is None else len(values)
        if flexible:
            put_varint(out, count + 1)
        else:
            out += _NUMBERS["int32"].pack(count)
        for value in values or ():
            one(out, value)

    return write


def _primitive_writer(kind: str, *, flexible: bool) -> Writer:
    layout = _NUMBERS.get(kind)
    if layout is not None:

        def write_number(out: bytearray, value: Any) -> None:
            out += layout.pack(value)

        return write_number
    if kind == "bool":
        return lambda out, value: out.append(1 if value else 0)
    if kind == "uuid":

        def write_uuid(out: bytearray, value: UUID | None) -> None:
            out += (value or _NO_UUID).bytes

        return write_uuid
    if kind == "records":
        return _records_writer(flexible=flexible)
    width = _NUMBERS["int16" if kind == "string" else "int32"]

    def write(out: bytearray, value: str | bytes | None) -> None:
        data = value.encode() if isinstance(value, str) else value
        length = -1 if data is None else len(data)
        if flexible:
            put_varint(out, length + 1)
        else:
            out += width.pack(length)
        if data:
            out += data

    return write


def _records_writer(*, flexible: bool) -> Writer:
    """Return the writer of record batches, which are given in pieces."""

    def write(out: bytearray, pieces: Sequence[bytes | memoryview] | None) -> None:
        length = -1 if pieces is None else sum(map(len, pieces))
        if flexible:
            put_varint(out, length + 1)
        else:
            out += _NUMBERS["int32"].pack(length)
        for piece in pieces or ():
            out += piece

    return write
