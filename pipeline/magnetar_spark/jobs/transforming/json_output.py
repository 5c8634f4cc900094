"""Writes rows as JSON without changing a value.

Spark's to_json cuts microseconds, replaces bytes that are not UTF-8 by U+FFFD, and writes keys of
maps that are dates, times or bytes in Spark's internal form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.nested_columns import changed

# Digits of a second: three, as Spark writes it, or six where there are more.
_MOMENT = "yyyy-MM-dd'T'HH:mm:ss.{digits}XXX"
_LOCAL_TIME = "yyyy-MM-dd'T'HH:mm:ss.{digits}"
_KEYS = (StringType, NumericType, BooleanType)


def to_json(schema: StructType, names: Sequence[str]) -> Column:
    """Return the JSON object of some columns of a schema; fields that are null are written.

    Raises when it runs: Spark's INVALID_UTF8_STRING, for a text that is not UTF-8.
    """
    fields = [
        changed(F.col(f"`{name.replace('`', '``')}`"), schema[name].dataType, _as_written)
        for name in names
    ]
    record = F.struct(*(one.alias(name) for one, name in zip(fields, names, strict=True)))
    return F.to_json(record, {"ignoreNullFields": "false"})


def require_json(kind: DataType, path: str) -> None:
    """Check that JSON has a form for all values of a type.

    Raises:
        OptionError: it has none.
    """
    if isinstance(kind, StructType):
        for one in kind:
            if kind.names.count(one.name) > 1:
                raise OptionError(f"the query gives {path}.{one.name} twice: name one otherwise")
            require_json(one.dataType, f"{path}.{one.name}")
    elif isinstance(kind, ArrayType):
        require_json(kind.elementType, f"{path}.element")
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, _KEYS):
            raise OptionError(
                f"the query's {path} has keys of the type {kind.keyType.simpleString()}, which are"
                " not names in JSON: make them text"
            )
        require_json(kind.valueType, f"{path}.value")


def _as_written(kind: DataType) -> Callable[[Column], Column] | None:
    if isinstance(kind, TimestampType):
        return _time_in(_MOMENT)
    if isinstance(kind, TimestampNTZType):
        return _time_in(_LOCAL_TIME)
    return F.validate_utf8 if isinstance(kind, StringType) else None


def _time_in(pattern: str) -> Callable[[Column], Column]:
    def written(time: Column) -> Column:
        has_microseconds = F.unix_micros(time.cast("timestamp")) % 1_000 != 0
        return F.when(
            has_microseconds, F.date_format(time, pattern.format(digits="SSSSSS"))
        ).otherwise(F.date_format(time, pattern.format(digits="SSS")))

    return written
