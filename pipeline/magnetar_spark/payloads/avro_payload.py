"""Values in Avro, each one datum without a container file, decoded by fastavro.

With Confluent's framing a value begins with a zero and four bytes that number its writer's schema.
Source: Apache Avro 1.12 Specification, Schema Resolution; Confluent, Schema Registry, Wire Format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException
from pyspark.sql.types import StructType

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.avro_types import AvroTypes, without_unknown_logic
from magnetar_spark.payloads.payload import NotThis, RecordPayload
from magnetar_spark.payloads.schema_files import schema_text

_HEADER = struct.Struct(">bI")
# What fastavro raises for bytes that are no datum of the schema: it has no error of its own.
_UNREADABLE = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError)


class AvroPayload(RecordPayload):
    """Avro data of one reader's schema.

    Args:
        reader: the schema that the columns follow, parsed.
        writers: with Confluent's framing, the parsed schemas of writers by number; None: without.
    """

    def __init__(
        self, schema: StructType, reader: dict[str, Any], writers: dict[int, dict[str, Any]] | None
    ) -> None:
        self.schema = schema
        self._reader = reader
        self._writers = writers

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """See `RecordPayload`."""
        writer, start = self._reader, 0
        if self._writers is not None:
            writer, start = self._writer(value), _HEADER.size
        data = BytesIO(value)
        data.seek(start)
        try:
            record = schemaless_reader(data, writer, self._reader if start else None)
        except _UNREADABLE as error:
            raise NotThis(f"not Avro of the schema: {error or type(error).__name__}") from None
        if data.tell() != len(value):
            raise NotThis(f"not Avro of the schema: {len(value) - data.tell()} bytes are left")
        assert isinstance(record, dict)
        return record

    def _writer(self, value: bytes) -> dict[str, Any]:
        assert self._writers is not None
        if len(value) < _HEADER.size or value[0]:
            raise NotThis("no number of a schema: it does not begin with a zero and four bytes")
        number = _HEADER.unpack_from(value)[1]
        if number not in self._writers:
            raise NotThis(f"its schema {number} is not among those given")
        return self._writers[number]


def avro_payload(path: Path, *, framed: bool) -> AvroPayload:
    """Return the payload of a schema.

    Args:
        path: the reader's schema. With `framed`, files NUMBER.avsc beside it are the writers'.
        framed: whether values have Confluent's header.
    Raises:
        OptionError: a schema is none, or has what Spark has no type for.
    """
    reader = _parsed(path)
    types = AvroTypes(str(path))
    schema = types.columns(reader)
    writers = None
    if framed:
        files = [one for one in path.parent.glob("*.avsc") if one.stem.isdecimal()]
        if not files:
            raise OptionError(
                f"no writer's schema beside {path}: with framed values each is NUMBER.avsc there"
            )
        writers = {int(one.stem): _parsed(one) for one in files}
        for one in writers.values():
            types.columns(one)
    return AvroPayload(schema, reader, writers)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        given = json.loads(schema_text(path))
        parsed = parse_schema(without_unknown_logic(given))
    except (SchemaParseException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OptionError(f"{path} is no schema of Avro: {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise OptionError(f"{path} is no schema of a record, whose fields would be columns")
    return parsed
