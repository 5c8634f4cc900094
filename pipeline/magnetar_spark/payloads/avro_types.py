"""The Spark types of Avro's. Source: Apache Avro 1.12 Specification, Schema Declaration."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.avro_schemas import RECORDS, AvroSchema, logical_type

_PRIMITIVE: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    # A column of nulls has to have some type.
    "null": StringType(),
}
# Values of other logical types are those of the type below, such as the text of a UUID.
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}
# Of two types, the one that holds both.
_WIDER: dict[frozenset[str], DataType] = {
    frozenset({"int", "long"}): LongType(),
    frozenset({"float", "double"}): DoubleType(),
}
_DIGITS_MAX = 38


def avro_columns(schema: AvroSchema, path: str) -> StructType:
    """Return the columns of a schema.

    Args:
        path: where the schema is from, for errors.
    Raises:
        OptionError: the schema is not of a record, or has what Spark has no type for.
    """
    found = _Types(schema, path).of(schema.root)
    if not isinstance(found, StructType):
        raise OptionError(f"{path} is not a schema of a record, whose fields would be columns")
    return found


class _Types:
    """Finds the types of a schema."""

    def __init__(self, schema: AvroSchema, path: str) -> None:
        self._schema = schema
        self._path = path
        self._open: list[str] = []

    def of(self, schema: Any) -> DataType:
        node = self._schema.node(schema)
        if isinstance(node, list):
            return self._union(node)[0]
        kind = node["type"]
        logical = logical_type(node)
        if logical == "decimal":
            return self._decimal(node)
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind in RECORDS:
            return self._record(node)
        if kind == "array":
            return self._array(node["items"])
        if kind == "map":
            return MapType(StringType(), self.of(node["values"]))
        return _PRIMITIVE[kind]

    def _record(self, node: dict[str, Any]) -> StructType:
        name = node["name"]
        if name in self._open:
            raise OptionError(f"{self._path}: {name} contains itself, and Spark has no such type")
        self._open.append(name)
        fields = []
        for field in node["fields"]:
            kind, nullable = self._union(field["type"])
            fields.append(StructField(field["name"], kind, nullable))
        self._open.pop()
        return StructType(fields)

    def _union(self, schema: Any) -> tuple[DataType, bool]:
        """Type, and whether it may be null."""
        node = self._schema.node(schema)
        if not isinstance(node, list):
            return self.of(schema), node["type"] == "null"
        others = [one for one in node if self._schema.node(one) != {"type": "null"}]
        nullable = len(others) < len(node)
        if len(others) == 1:
            return self.of(others[0]), nullable
        if all(isinstance(one, str) for one in others):
            wider = _WIDER.get(frozenset(others))
            if wider is not None:
                return wider, nullable
        raise OptionError(f"{self._path}: Spark has no type for the union {_short(node)}")

    def _array(self, items: Any) -> ArrayType:
        found = self.of(items)
        if not self._schema.takes_bytes(items):
            # A few bytes could declare any number of them.
            raise OptionError(f"{self._path}: an array of items without content")
        return ArrayType(found)

    def _decimal(self, node: dict[str, Any]) -> DecimalType:
        precision = node["precision"]
        if precision > _DIGITS_MAX:
            raise OptionError(f"{self._path}: Spark's decimals have {_DIGITS_MAX} digits at most")
        return DecimalType(precision, node.get("scale", 0))


def _short(schema: list[Any]) -> str:
    return ", ".join(
        one if isinstance(one, str) else one.get("name", one["type"]) for one in schema
    )
