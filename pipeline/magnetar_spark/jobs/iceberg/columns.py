"""The columns of tables: those of the record, and where each row comes from.

Source: Apache Iceberg, Table Spec: Schemas and Data Types; Schema Evolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

from magnetar_spark.errors import OptionError
from magnetar_spark.schema import source_schema

# By column of the source: what of a message each row has.
MESSAGE_COLUMNS = {
    "partition": "_partition",
    "offset": "_offset",
    "txn_id": "_txn_id",
    "timestamp": "_timestamp",
    "event_time": "_event_time",
    "key": "_key",
    "headers": "_headers",
}
TIME = MESSAGE_COLUMNS["timestamp"]
# What a row has instead of a record, if its value could not be decoded.
BAD_VALUE, REASON = "_value", "_reason"
# No field of a record may have such a name.
RESERVED = (*MESSAGE_COLUMNS.values(), BAD_VALUE, REASON)

_SOURCE = source_schema(include_headers=True)
_MESSAGE_FIELDS = spark.StructType(
    [spark.StructField(name, _SOURCE[of].dataType) for of, name in MESSAGE_COLUMNS.items()]
)
_BAD_FIELDS = spark.StructType(
    [
        spark.StructField(BAD_VALUE, spark.BinaryType()),
        spark.StructField(REASON, spark.StringType()),
    ]
)
_PRIMITIVES: dict[type[spark.DataType], IcebergType] = {
    spark.BooleanType: BooleanType(),
    spark.ByteType: IntegerType(),
    spark.ShortType: IntegerType(),
    spark.IntegerType: IntegerType(),
    spark.LongType: LongType(),
    spark.FloatType: FloatType(),
    spark.DoubleType: DoubleType(),
    spark.StringType: StringType(),
    spark.BinaryType: BinaryType(),
    spark.DateType: DateType(),
    spark.TimestampType: TimestamptzType(),
    spark.TimestampNTZType: TimestampType(),
}

# Narrow and wide.
_WIDER = {(IntegerType, LongType), (FloatType, DoubleType)}


def record_schema(record: spark.StructType) -> Schema:
    """Return the columns of a table of records.

    All may be null, also those that a record must have: a schema may let go of that later.

    Raises:
        OptionError: Iceberg has no type for a column.
    """
    return _schema(record, _MESSAGE_FIELDS)


def bad_schema() -> Schema:
    """Return the columns of a table of values that could not be decoded."""
    return _schema(_BAD_FIELDS, _MESSAGE_FIELDS)


def day_of_storage(schema: Schema) -> PartitionSpec:
    """Return how a new table is partitioned: by the day on which messages were stored, in UTC."""
    source = schema.find_field(TIME).field_id
    return PartitionSpec(PartitionField(source, 1000, DayTransform(), f"{TIME}_day"))


def check_change(existing: Schema, wanted: Schema, table: str) -> bool:
    """Check that a table can take such columns, and return whether it has to be changed for them.

    It can take new columns, and wider numbers.

    Raises:
        OptionError: it has others, or of another type.
    """
    return _is_changed(existing.as_struct(), wanted.as_struct(), table, "")


def is_empty(kind: spark.DataType) -> bool:
    """Return whether a type is a record without fields, which a table keeps as a boolean."""
    return isinstance(kind, spark.StructType) and not kind.fields


def _schema(*columns: spark.StructType) -> Schema:
    # Of no meaning: a catalog gives its own.
    ids = count(1)
    return Schema(*(one for some in columns for one in _fields(some, ids, "")))


def _fields(record: spark.StructType, ids: Iterator[int], path: str) -> list[NestedField]:
    return [
        NestedField(next(ids), one.name, _type(one.dataType, ids, f"{path}{one.name}"))
        for one in record
    ]


def _type(kind: spark.DataType, ids: Iterator[int], path: str) -> IcebergType:
    if isinstance(kind, spark.DecimalType):
        return DecimalType(kind.precision, kind.scale)
    if is_empty(kind):
        return BooleanType()
    if isinstance(kind, spark.StructType):
        return StructType(*_fields(kind, ids, f"{path}."))
    if isinstance(kind, spark.ArrayType):
        return ListType(
            next(ids), _type(kind.elementType, ids, f"{path}.element"), element_required=False
        )
    if isinstance(kind, spark.MapType):
        key_id, value_id = next(ids), next(ids)
        return MapType(
            key_id,
            _type(kind.keyType, ids, f"{path}.key"),
            value_id,
            _type(kind.valueType, ids, f"{path}.value"),
            value_required=False,
        )
    found = _PRIMITIVES.get(type(kind))
    if found is None:
        raise OptionError(f"tables have no type for the column {path}: {kind.simpleString()}")
    return found


def _is_changed(existing: IcebergType, wanted: IcebergType, table: str, path: str) -> bool:
    if isinstance(existing, StructType) and isinstance(wanted, StructType):
        return _is_struct_changed(existing, wanted, table, path)
    if isinstance(existing, ListType) and isinstance(wanted, ListType):
        return _is_changed(
            existing.element_type, wanted.element_type, table, _join(path, "element")
        )
    if isinstance(existing, MapType) and isinstance(wanted, MapType):
        # Both, so that each is checked.
        return any(
            [
                _is_changed(existing.key_type, wanted.key_type, table, _join(path, "key")),
                _is_changed(existing.value_type, wanted.value_type, table, _join(path, "value")),
            ]
        )
    if existing == wanted or _is_wider(existing, wanted):
        return False
    if _is_wider(wanted, existing):
        return True
    raise OptionError(
        f"the table {table} has {path} as {existing}, and the schema as {wanted}: give it another"
        " name in the schema, or take another --namespace"
    )


def _is_struct_changed(existing: StructType, wanted: StructType, table: str, path: str) -> bool:
    there = {one.name: one for one in existing.fields}
    names = {one.name for one in wanted.fields}
    for name in there:
        if name not in names:
            raise OptionError(
                f"the table {table} has a column {_join(path, name)}, and the schema has none: give"
                " it back, or drop the column from the table"
            )
    changes = [
        _is_changed(there[one.name].field_type, one.field_type, table, _join(path, one.name))
        if one.name in there
        else True
        for one in wanted.fields
    ]
    return any(changes)


def _is_wider(wide: IcebergType, narrow: IcebergType) -> bool:
    """Whether a column of the narrow type may become one of the wide type."""
    if isinstance(wide, DecimalType) and isinstance(narrow, DecimalType):
        return wide.scale == narrow.scale and wide.precision > narrow.precision
    return (type(narrow), type(wide)) in _WIDER


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
