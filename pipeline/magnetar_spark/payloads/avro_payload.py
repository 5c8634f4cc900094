"""Values in Avro, each one datum without a container file.

With Confluent's framing a value begins with a zero and four bytes that number its writer's schema.
Source: Apache Avro 1.12 Specification, Schema Resolution; Confluent, Schema Registry, Wire Format.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from magnetar_core.avro_binary import Read
from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.avro_resolution import AvroResolution, Unresolvable, check_defaults
from magnetar_spark.payloads.avro_schemas import AvroSchema, read_avro_schema
from magnetar_spark.payloads.avro_types import avro_columns
from magnetar_spark.payloads.payload import NotThis, RecordPayload

_HEADER = struct.Struct(">bI")
# What reading raises for bytes that are not a datum of the schema.
_UNREADABLE = (ArithmeticError, LookupError, RecursionError, ValueError, struct.error)


class AvroPayload(RecordPayload):
    """Avro data of one reader's schema.

    Args:
        reader: the schema that the columns follow.
        writers: with Confluent's framing, the schemas of writers by number; None: without.
    """

    def __init__(
        self, schema: StructType, reader: AvroSchema, writers: Mapping[int, AvroSchema] | None
    ) -> None:
        self.schema = schema
        self._reader = reader
        self._writers = writers
        self._reads: dict[int | None, Read | Unresolvable] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments, since functions cannot be pickled."""
        return AvroPayload, (self.schema, self._reader, self._writers)

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """See `RecordPayload`."""
        number, start = None, 0
        if self._writers is not None:
            number, start = self._number(value), _HEADER.size
        read = self._read_of(number)
        if isinstance(read, Unresolvable):
            raise NotThis(f"its schema {number} cannot be read as the reader's: {read}")
        try:
            record, end = read(value, start)
        except _UNREADABLE as error:
            raise NotThis(f"not Avro of the schema: {_told(error)}") from None
        if end != len(value):
            raise NotThis(f"not Avro of the schema: {len(value) - end} bytes are left")
        assert isinstance(record, dict)
        return record

    def _number(self, value: bytes) -> int:
        assert self._writers is not None
        if len(value) < _HEADER.size or value[0]:
            raise NotThis("no number of a schema: it does not begin with a zero and four bytes")
        number: int = _HEADER.unpack_from(value)[1]
        if number not in self._writers:
            raise NotThis(f"its schema {number} is not among those given")
        return number

    def _read_of(self, number: int | None) -> Read | Unresolvable:
        """Make it when a value needs it: a directory may have the schemas of many topics."""
        found = self._reads.get(number)
        if found is None:
            writers = self._writers
            writer = self._reader if number is None or writers is None else writers[number]
            try:
                found = AvroResolution(writer, self._reader).read()
            except Unresolvable as error:
                found = error
            self._reads[number] = found
        return found


def _told(error: Exception) -> str:
    if isinstance(error, (LookupError, struct.error)):
        return "its end is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error) or type(error).__name__


def avro_payload(path: Path, *, framed: bool) -> AvroPayload:
    """Return the payload of a schema.

    Args:
        path: the reader's schema. With `framed`, files NUMBER.avsc beside it are the writers'.
        framed: whether values have Confluent's header.
    Raises:
        OptionError: a file is not a schema of Avro; Spark has no type for a part of the
            reader's schema; or a default in it is not of its field's type.
    """
    reader = read_avro_schema(path)
    schema = avro_columns(reader, str(path))
    writers = None
    if framed:
        files = [one for one in path.parent.glob("*.avsc") if one.stem.isdecimal()]
        if not files:
            raise OptionError(
                f"no writer's schema beside {path}: with framed values each is NUMBER.avsc there"
            )
        try:
            check_defaults(reader, reader.root)
        except OptionError as error:
            raise OptionError(f"{path}: {error}") from None
        writers = {int(file.stem): read_avro_schema(file) for file in files}
    return AvroPayload(schema, reader, writers)
