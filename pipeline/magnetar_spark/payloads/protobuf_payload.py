"""Values in Protobuf, each one message, decoded by Google's library.

The schema is a set of file descriptors, as `protoc --include_imports --descriptor_set_out` writes
it. Source: Protocol Buffers, Language Guide (proto 3); Encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
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
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
}
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
        """Pickle what it was made of, since descriptors are not pickled."""
        return ProtobufPayload, (self._descriptors, self._name, self._path)

    def _prepare(self) -> None:
        descriptor = _pool(self._descriptors, self._path).FindMessageTypeByName(self._name)
        self._class = message_factory.GetMessageClass(descriptor)
        self.schema, self._read = _Types(self._path).record(descriptor)

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """See `RecordPayload`."""
        message = self._class()
        try:
            message.ParseFromString(value)
            record: Mapping[str, Any] = self._read(message)
        except (DecodeError, OverflowError) as error:
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
    pool = _pool(content, str(path))
    if name is None:
        name = _only_message(content, path)
    try:
        pool.FindMessageTypeByName(name)
    except KeyError:
        raise OptionError(f"{path} has no message {name}") from None
    return ProtobufPayload(content, name, str(path))


def _pool(content: bytes, path: str) -> descriptor_pool.DescriptorPool:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content)
        if not files.file:
            raise OptionError(f"{path} describes no file")
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        for file in files.file:
            pool.FindFileByName(file.name)
    except (DecodeError, TypeError, KeyError) as error:
        raise OptionError(
            f"{path} is no whole set of descriptors: write it with protoc --include_imports"
            f" --descriptor_set_out ({error})"
        ) from None
    return pool


def _only_message(content: bytes, path: Path) -> str:
    file = descriptor_pb2.FileDescriptorSet.FromString(content).file[-1]
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

        def read(message: Message) -> dict[str, Any]:
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
        if field.type == FieldDescriptor.TYPE_BYTES:
            return BinaryType(), _same
        if field.type == FieldDescriptor.TYPE_STRING:
            return StringType(), _same
        return _SCALARS[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value


def _moment(value: Any) -> datetime:
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
