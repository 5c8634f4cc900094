"""Payloads: the columns of each format, and the way to decode formats in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from magnetar_spark.errors import OptionError

# Of what a value decodes to: the record, or why there is none.
RECORD, ERROR = "record", "error"
# The error of a message without a value.
NO_VALUE = "no value: a tombstone"
# What Arrow raises for a value that an array of a type cannot hold.
DOES_NOT_FIT = (pa.ArrowException, OverflowError, ValueError, TypeError)


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


class PythonPayload(ABC):
    """Values that Python decodes. Spark pickles the payload for its tasks.

    Attributes:
        schema: the columns of a record.
    """

    schema: StructType

    def decoded(self, value: Column) -> Column:
        """See `Payload`."""
        kind = StructType(
            [StructField(RECORD, self.schema, True), StructField(ERROR, StringType(), True)]
        )

        def decode(values: pa.Array) -> pa.Array:
            return self.decoded_array(values)

        # Its type hints say which kind of function it is, which the stubs do not know.
        found: Column = arrow_udf(decode, kind)(value)  # type: ignore[call-overload]
        return found

    def decoded_array(self, values: pa.Array) -> pa.Array:
        """Return an array of structs of RECORD and ERROR.

        Args:
            values: binary; a null is a message without a value, which has no record.
        """
        if not values.null_count:
            return self.records_array(values)
        return _without_absent(self.records_array(values.fill_null(b"")), values.is_null())

    @abstractmethod
    def records_array(self, values: pa.Array) -> pa.Array:
        """Return an array of structs of RECORD and ERROR.

        Args:
            values: binary, without nulls.
        """


class RecordPayload(PythonPayload):
    """Values that are decoded one by one."""

    @abstractmethod
    def decode(self, value: bytes) -> Mapping[str, Any]:
        """Return the record of a value.

        Raises:
            NotThis: the value has none.
        """

    def records_array(self, values: pa.Array) -> pa.Array:
        """See `PythonPayload`."""
        records: list[Mapping[str, Any] | None] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            record, error = None, None
            try:
                record = self.decode(value)
            except NotThis as raised:
                error = str(raised)
            records.append(record)
            errors.append(error)
        return decoded_struct(_converted(records, errors, arrow_type(self.schema)), errors)


def decoded_struct(records: pa.Array, errors: Sequence[str | None] | pa.Array) -> pa.Array:
    """Return an array of structs of RECORD and ERROR, exactly one of which is null."""
    return pa.StructArray.from_arrays([records, pa.array(errors, pa.string())], [RECORD, ERROR])


def _without_absent(decoded: pa.Array, is_absent: pa.Array) -> pa.Array:
    """Return decoded values in which those that are absent have an error and no record."""
    absent = is_absent.to_numpy(zero_copy_only=False)
    places = pa.array(np.arange(len(absent)), mask=absent)
    records = pc.struct_field(decoded, RECORD).take(places)
    errors = pc.if_else(is_absent, NO_VALUE, pc.struct_field(decoded, ERROR))
    return decoded_struct(records, errors)


def arrow_type(schema: DataType) -> pa.DataType:
    """Return the type in which Spark takes such values from Python."""
    return to_arrow_type(schema, timezone="UTC")


def _converted(
    records: list[Mapping[str, Any] | None], errors: list[str | None], kind: pa.DataType
) -> pa.Array:
    """Return the records as an array; some numbers may not fit in their type."""
    try:
        return pa.array(records, kind)
    except DOES_NOT_FIT:
        pass
    # One of the rows is wrong: find it.
    arrays = []
    for number, record in enumerate(records):
        try:
            arrays.append(pa.array([record], kind))
        except DOES_NOT_FIT as raised:
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
