"""Values in Protobuf, each one message, decoded by Google's library.

The schema is a set of file descriptors, as `protoc --include_imports --descriptor_set_out` writes
it. Protobuf's own rules change some values in silence: a number of 64 bits loses its upper half if
the schema says int32, and a field of another wire type than the schema's counts as absent. So
numbers are read with 64 bits, and such fields are looked for among the unknown ones.
Source: Protocol Buffers, Language Guide (proto 2, proto 3), Updating A Message Type; Encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.payload import NotThis, RecordPayload
from magnetar_spark.payloads.schema_files import read_schema

_SCALARS: dict[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
}
_TIMESTAMP = "google.protobuf.Timestamp"
# Its range, in seconds.
_SECONDS_MIN = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_SECONDS_MAX = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
_NANOS = 1_000_000_000
# By the type in the schema, the type with 64 bits by which the number is read.
_Field = descriptor_pb2.FieldDescriptorProto
_WIDE = {
    _Field.TYPE_INT32: _Field.TYPE_INT64,
    _Field.TYPE_SINT32: _Field.TYPE_SINT64,
    _Field.TYPE_UINT32: _Field.TYPE_UINT64,
    _Field.TYPE_ENUM: _Field.TYPE_INT64,
    _Field.TYPE_BOOL: _Field.TYPE_UINT64,
}

Reader = Callable[[Any], Any]


class ProtobufPayload(RecordPayload):
    """Messages of one type.

    Args:
        descriptors: the set of file descriptors.
        name: the full name of the message.
    """

    def __init__(self, descriptors: bytes, name: str, path: str) -> None:
        self._descriptors = descriptors
        self._name = name
        self._path = path
        self._prepare()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments, since descriptors cannot be pickled."""
        return ProtobufPayload, (self._descriptors, self._name, self._path)

    def _prepare(self) -> None:
        files = _files(self._descriptors, self._path)
        descriptor = _pool(files, self._path).FindMessageTypeByName(self._name)
        self.schema, self._read = _Types(self._path).record(descriptor)
        for file in files.file:
            _widen(file.message_type)
        wide = _pool(files, self._path).FindMessageTypeByName(self._name)
        self._class = message_factory.GetMessageClass(wide)

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """See `RecordPayload`."""
        message = self._class()
        try:
            message.ParseFromString(value)
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
                raise NotThis(f"{missing} is required, and is not there")
            record: Mapping[str, Any] = self._read(message)
        except (DecodeError, NotThis) as error:
            raise NotThis(f"no message {self._name}: {error}") from None
        return record


def protobuf_payload(path: Path, name: str | None) -> ProtobufPayload:
    """Return the payload of a message's type.

    Args:
        path: the file of descriptors.
        name: the message's full name; None: the only one in the last of the files.
    Raises:
        OptionError: there is no such message, or it has what Spark has no type for.
    """
    if path.suffix == ".proto":
        raise OptionError(
            f"{path} is source: compile it with protoc --include_imports"
            f" --descriptor_set_out={path.stem}.desc {path.name}"
        )
    content = read_schema(path)
    files = _files(content, str(path))
    pool = _pool(files, str(path))
    if name is None:
        name = _only_message(files, path)
    try:
        pool.FindMessageTypeByName(name)
    except KeyError:
        raise OptionError(f"{path} has no message {name}") from None
    return ProtobufPayload(content, name, str(path))


def _files(content: bytes, path: str) -> descriptor_pb2.FileDescriptorSet:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content)
    except DecodeError as error:
        raise _no_descriptors(path, error) from None
    if not files.file:
        raise OptionError(f"{path} describes no file")
    return files


def _pool(files: descriptor_pb2.FileDescriptorSet, path: str) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        for file in files.file:
            pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        raise _no_descriptors(path, error) from None
    return pool


def _no_descriptors(path: str, error: Exception) -> OptionError:
    return OptionError(
        f"{path} is not a complete set of descriptors: write it with protoc --include_imports"
        f" --descriptor_set_out ({error})"
    )


def _widen(messages: Iterable[descriptor_pb2.DescriptorProto]) -> None:
    """Change the types of numbers to those with 64 bits."""
    for message in messages:
        _widen(message.nested_type)
        for field in message.field:
            if field.type in _WIDE:
                field.type = _WIDE[field.type]
                field.ClearField("type_name")
                field.ClearField("default_value")


def _only_message(files: descriptor_pb2.FileDescriptorSet, path: Path) -> str:
    file = files.file[-1]
    names = [f"{file.package}.{one.name}".lstrip(".") for one in file.message_type]
    if len(names) != 1:
        raise OptionError(f"name one of the messages in {path}: {', '.join(names) or 'none'}")
    return names[0]


class _Types:
    """Types of messages, and functions that read them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: list[str] = []

    def record(self, descriptor: Descriptor) -> tuple[StructType, Reader]:
        if descriptor.full_name in self._open:
            raise OptionError(
                f"{self._path}: {descriptor.full_name} contains itself, and Spark has no such type"
            )
        self._open.append(descriptor.full_name)
        columns, readers = [], []
        for field in descriptor.fields:
            kind, reader = self._field(field)
            columns.append(StructField(field.name, kind))
            readers.append((field.name, reader))
        self._open.pop()
        known = {field.number: field.name for field in descriptor.fields}

        def read(message: Message) -> dict[str, Any]:
            unknown: Any = UnknownFieldSet(message)
            if len(unknown):
                for one in unknown:
                    if one.field_number in known:
                        raise NotThis(
                            f"the field {known[one.field_number]} is of another kind than the"
                            " schema says"
                        )
            return {name: reader(message) for name, reader in readers}

        return StructType(columns), read

    def _field(self, field: FieldDescriptor) -> tuple[DataType, Reader]:
        """Type, and what reads the field from the message that has it."""
        name = field.name
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            key_kind, key = self._value(message.fields_by_name["key"])
            kind, value = self._value(message.fields_by_name["value"])
            return MapType(key_kind, kind), lambda one: [
                (key(at), value(it)) for at, it in getattr(one, name).items()
            ]
        kind, value = self._value(field)
        if field.is_repeated:
            return ArrayType(kind), lambda one: [value(it) for it in getattr(one, name)]
        if field.has_presence:
            return kind, lambda one: value(getattr(one, name)) if one.HasField(name) else None
        return kind, lambda one: value(getattr(one, name))

    def _value(self, field: FieldDescriptor) -> tuple[DataType, Reader]:
        if field.message_type is not None:
            if field.message_type.full_name == _TIMESTAMP:
                return TimestampType(), _moment
            return self.record(field.message_type)
        if field.enum_type is not None:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            # A number that the schema does not name yet.
            return StringType(), lambda number: names.get(number, str(number))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return BooleanType(), _boolean
        if field.type == FieldDescriptor.TYPE_BYTES:
            return BinaryType(), _same
        if field.type == FieldDescriptor.TYPE_STRING:
            return StringType(), _same
        return _SCALARS[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value


def _boolean(value: int) -> bool:
    if value > 1:
        raise NotThis(f"a bool is {value}")
    return value == 1


def _moment(value: Any) -> int:
    """Microseconds since 1970, which is how Arrow keeps a moment."""
    seconds, nanos = value.seconds, value.nanos
    if not _SECONDS_MIN <= seconds <= _SECONDS_MAX or not 0 <= nanos < _NANOS:
        raise NotThis(f"a Timestamp has {seconds} seconds and {nanos} nanos, which is not a moment")
    if nanos % 1_000:
        raise NotThis(
            f"a Timestamp has {nanos} nanos, and a TIMESTAMP keeps microseconds. A message of your"
            " own with the same two fields, int64 seconds = 1 and int32 nanos = 2, keeps all"
        )
    return int(seconds * 1_000_000 + nanos // 1_000)
