"""Values in JSON, each one object.

The schema is a file of columns in SQL, as `id BIGINT NOT NULL, name STRING`, or a schema as Spark
writes it, `DataFrame.schema.json()`. Spark's own from_json is not used, since it changes values: it
rounds decimals, makes 1e400 infinite, replaces bytes that are not UTF-8, and ignores NOT NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.json_columns import Faults, column_of, stored_type
from magnetar_spark.payloads.json_text import parsed_object, with_texts
from magnetar_spark.payloads.payload import NotThis, PythonPayload, decoded_struct
from magnetar_spark.payloads.schema_files import schema_text

# Values that are parsed together. Parsed, they may take twenty times as much memory, and they take
# less time while they are in a processor's cache.
_TOGETHER_BYTES = 256 << 10


class JsonPayload(PythonPayload):
    """JSON objects.

    Args:
        schema: the fields. A field that is not nullable has to be there, at any depth.
    Raises:
        OptionError: JSON has no values of a type.
    """

    def __init__(self, schema: StructType) -> None:
        stored = stored_type(schema)
        assert isinstance(stored, StructType)
        self.schema = stored
        self._column = column_of(schema)

    def records_array(self, values: pa.Array) -> pa.Array:
        """See `PythonPayload`."""
        return pa.concat_arrays([self._decoded(some) for some in _some_together(values)])

    def _decoded(self, values: list[bytes]) -> pa.Array:
        records: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values:
            record, error = None, None
            try:
                record = parsed_object(_text(value))
            except NotThis as raised:
                error = str(raised)
            records.append(record)
            errors.append(error)
        return decoded_struct(self._array(records, errors, values), errors)

    def _array(
        self, records: list[dict[str, Any] | None], errors: list[str | None], values: list[bytes]
    ) -> pa.Array:
        """The records as an array. A record that does not follow the schema becomes an error."""
        while True:
            faults = Faults()
            found = self._column.array(records, int, faults)
            if not faults.reasons and not faults.texts_wanted:
                return found
            for row in faults.texts_wanted:
                records[row] = with_texts(_text(values[row]), self._column)
            for row, reason in faults.reasons.items():
                records[row], errors[row] = None, reason


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise NotThis(f"not a JSON object: not UTF-8 at byte {error.start}") from None


def _some_together(values: pa.Array) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for value in values.to_pylist():
        some.append(value)
        size += len(value)
        if size >= _TOGETHER_BYTES:
            yield some
            some, size = [], 0
    if some or not len(values):
        yield some


def json_payload(path: Path) -> JsonPayload:
    """Return the payload whose schema is in a file. Needs a Spark session.

    Raises:
        OptionError: the file has no schema.
    """
    text = schema_text(path).strip()
    return JsonPayload(
        _from_json(path, text) if text.startswith("{") else _from_columns(path, text)
    )


def _from_columns(path: Path, text: str) -> StructType:
    try:
        found = DataType.fromDDL(text)
    except PySparkException as error:
        why = str(error).strip().splitlines()[0]
        raise OptionError(f"{path} has no columns as SQL has them: {why}") from None
    if not isinstance(found, StructType):
        raise OptionError(f"{path} has one type, and no columns: write id BIGINT, name STRING")
    return found


def _from_json(path: Path, text: str) -> StructType:
    try:
        parsed = json.loads(text)
        if "fields" not in parsed:
            raise OptionError(
                f"{path} is not a schema of Spark's (JSON Schema is not understood): write "
                "columns as"
                " in SQL, id BIGINT NOT NULL, name STRING"
            )
        return StructType.fromJson(parsed)
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{path} is not a schema of Spark's: {error}") from None
