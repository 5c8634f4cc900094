"""The columns of the source, as in Spark's Kafka source, and the columns that the sink takes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar_spark.errors import OptionError

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_SOURCE_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    # When the broker stored it; for a transaction's message, its commit marker.
    ("timestamp", TimestampType()),
    # The producer's own; null when it gave none.
    ("event_time", TimestampType()),
    # Null for a message that was sent plainly.
    ("txn_id", StringType()),
)

_SINK_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
    "event_time": (TimestampType,),
    "headers": (ArrayType,),
}
# The source has them, and what comes from a topic may go into one as it is.
_SINK_IGNORES = {"offset", "txn_id"}


def source_schema(*, include_headers: bool, columns: Sequence[str] = ()) -> StructType:
    """Return the columns of the source.

    Args:
        include_headers: whether there is a column of headers.
        columns: the names of the columns to read; all if empty.
    Raises:
        OptionError: a column does not exist, or comes twice.
    """
    fields = [StructField(name, kind) for name, kind in _SOURCE_COLUMNS]
    if include_headers:
        fields.append(StructField("headers", HEADERS_TYPE))
    if not columns:
        return StructType(fields)
    by_name = {field.name: field for field in fields}
    for name in columns:
        if name == "headers" and not include_headers:
            raise OptionError("columns names 'headers': set includeHeaders to 'true' too")
        if name not in by_name:
            raise OptionError(f"columns names {name!r}; there are: {_list([*by_name])}")
    if len(set(columns)) < len(columns):
        raise OptionError(f"columns names one twice: {_list([*columns])}")
    return StructType([by_name[name] for name in columns])


def check_source_schema(
    given: StructType, *, include_headers: bool, columns: Sequence[str] = ()
) -> None:
    """Check the schema that a query gives.

    Raises:
        OptionError: the source has another schema.
    """
    expected = source_schema(include_headers=include_headers, columns=columns)
    if [(one.name, one.dataType) for one in given] != [
        (one.name, one.dataType) for one in expected
    ]:
        raise OptionError(
            f"the source has a schema of its own, {expected.simpleString()}: leave schema() out,"
            " and cast or parse its columns"
        )


def check_sink_schema(given: StructType, topic: str | None) -> None:
    """Check that the sink can write such rows.

    Args:
        given: the schema of the rows.
        topic: the option `topic`, if it is given.
    Raises:
        OptionError: a column is missing, unknown, or has a wrong type.
    """
    names = [field.name for field in given]
    if "value" not in names:
        raise OptionError(
            f"the sink needs a column 'value', of type binary or string; there are: {_list(names)}"
        )
    if topic is None and "topic" not in names:
        raise OptionError("where to: name a topic by option('topic', ...), or in a column 'topic'")
    for field in given:
        kinds = _SINK_COLUMNS.get(field.name)
        if field.name in _SINK_IGNORES:
            continue
        if kinds is None:
            raise OptionError(
                f"the sink does not know the column {field.name!r}: it takes"
                f" {_list([*_SINK_COLUMNS])}, and leaves out {_list(sorted(_SINK_IGNORES))}"
            )
        if not isinstance(field.dataType, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise OptionError(
                f"the column {field.name!r} is of type {field.dataType.simpleString()}:"
                f" the sink takes {wanted}"
            )
        if field.name == "headers" and not _is_headers(field.dataType):
            raise OptionError(
                f"the column 'headers' is of type {field.dataType.simpleString()}: the sink takes"
                f" {HEADERS_TYPE.simpleString()}"
            )
    if len(set(names)) != len(names):
        raise OptionError(f"a column is there twice: {_list(names)}")


def _is_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    return isinstance(element, StructType) and [
        (field.name, field.dataType) for field in element
    ] == [("key", StringType()), ("value", BinaryType())]


def _list(names: list[str]) -> str:
    return ", ".join(names)
