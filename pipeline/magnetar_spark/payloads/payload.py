"""What a payload's format gives to Spark, and the way there for formats that Python decodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from magnetar_spark.errors import OptionError

# Of what a value decodes to: the record, or why there is none.
RECORD, ERROR = "record", "error"


class Payload(Protocol):
    """The values of a topic, as records.

    Attributes:
        schema: the columns of a record.
    """

    schema: StructType

    def decoded(self, value: Column) -> Column:
        """Return a struct of RECORD and ERROR, exactly one of which is null."""


class NotThis(ValueError):
    """A value is none of the schema. Its text says why, in a few words."""


class Decoder(Protocol):
    """Decodes in Python. It is pickled for tasks.

    Attributes:
        schema: the columns of a record.
    """

    schema: StructType

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """Return the record of a value.

        Raises:
            NotThis: the value has none.
        """


def decoded_by(decoder: Decoder) -> Callable[[Column], Column]:
    """Return what decodes a column of values."""
    kind = StructType(
        [StructField(RECORD, decoder.schema, True), StructField(ERROR, StringType(), True)]
    )

    def decode(values: pa.Array) -> pa.Array:
        return decoded_array(decoder, values)

    # Its type hints say which kind of function it is, which the stubs do not know.
    function: Callable[[Column], Column] = arrow_udf(decode, kind)  # type: ignore[call-overload]
    return function


def decoded_array(decoder: Decoder, values: pa.Array) -> pa.Array:
    """Decode values, and say of each that has no record why."""
    kind = arrow_type(decoder.schema)
    records: list[Mapping[str, Any] | None] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        record, error = None, None
        try:
            record = decoder.decode(value)
        except NotThis as raised:
            error = str(raised)
        records.append(record)
        errors.append(error)
    return pa.StructArray.from_arrays(
        [_converted(records, errors, kind), pa.array(errors, pa.string())], [RECORD, ERROR]
    )


def arrow_type(schema: DataType) -> pa.DataType:
    """Return the type in which Spark takes such values from Python."""
    return to_arrow_type(schema, timezone="UTC")


def _converted(
    records: list[Mapping[str, Any] | None], errors: list[str | None], kind: pa.DataType
) -> pa.Array:
    """Return the records as an array; some numbers may not fit in their type."""
    try:
        return pa.array(records, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pass
    # One of them is wrong: look which.
    arrays = []
    for number, record in enumerate(records):
        try:
            arrays.append(pa.array([record], kind))
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as raised:
            errors[number] = f"a value does not fit in its type: {raised}"
            arrays.append(pa.nulls(1, kind))
    return pa.concat_arrays(arrays)


def require_distinct(names: Sequence[str], reserved: Sequence[str], path: str) -> None:
    """Check the names of a record's columns; Spark does not tell upper from lower case.

    Raises:
        OptionError: two names are the same, or one is reserved.
    """
    lower = [name.lower() for name in names]
    for name in lower:
        if lower.count(name) > 1:
            raise OptionError(f"{path} has two fields {name!r}")
        if name in reserved:
            raise OptionError(f"{path} has a field {name!r}, which is the message's name here")
