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
}
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


class AvroTypes:
    """Finds the types of a schema.

    Args:
        path: where the schema is from, for errors.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._open: list[str] = []
        self._named: dict[str, Any] = {}

    def columns(self, record: dict[str, Any]) -> StructType:
        """Return the columns of a record.

        Args:
            record: its schema, with full names, as fastavro's parser returns it.
        Raises:
            OptionError: the schema has what Spark has no type for.
        """
        found = self._type(record)
        assert isinstance(found, StructType)
        return found

    def _type(self, schema: Any) -> DataType:
        if isinstance(schema, list):
            return self._union(schema)[0]
        if isinstance(schema, str):
            return self._type(self._named[schema]) if schema in self._named else _plain(schema)
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self._type(kind)
        if "name" in schema:
            self._named[schema["name"]] = schema
        logical = schema.get("logicalType")
        if logical == "decimal":
            return self._decimal(schema)
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return ArrayType(self._item(schema["items"]))
        if kind == "map":
            return MapType(StringType(), self._type(schema["values"]))
        return _plain(kind)

    def _record(self, schema: dict[str, Any]) -> StructType:
        name = schema["name"]
        if name in self._open:
            raise OptionError(f"{self._path}: {name} contains itself, and Spark has no such type")
        self._open.append(name)
        fields = []
        for field in schema["fields"]:
            kind, nullable = self._union(field["type"])
            fields.append(StructField(field["name"], kind, nullable))
        self._open.pop()
        return StructType(fields)

    def _union(self, schema: Any) -> tuple[DataType, bool]:
        """Type, and whether it may be null."""
        if not isinstance(schema, list):
            return self._type(schema), schema == "null"
        others = [one for one in schema if one != "null"]
        nullable = len(others) < len(schema)
        if len(others) == 1:
            return self._type(others[0]), nullable
        if all(isinstance(one, str) for one in others):
            wider = _WIDER.get(frozenset(others))
            if wider is not None:
                return wider, nullable
        raise OptionError(f"{self._path}: Spark has no type for the union {_short(schema)}")

    def _item(self, schema: Any) -> DataType:
        found = self._type(schema)
        if not self._takes_bytes(schema):
            # A few bytes could declare any number of them.
            raise OptionError(f"{self._path}: an array of items without content")
        return found

    def _takes_bytes(self, schema: Any) -> bool:
        if isinstance(schema, list):
            return True  # The number of the branch.
        if isinstance(schema, str):
            return schema != "null" and (
                schema not in self._named or self._takes_bytes(self._named[schema])
            )
        kind = schema["type"]
        if kind in ("record", "error"):
            return any(self._takes_bytes(one["type"]) for one in schema["fields"])
        if kind == "fixed":
            return bool(schema["size"])
        return self._takes_bytes(kind)

    def _decimal(self, schema: dict[str, Any]) -> DecimalType:
        precision = schema["precision"]
        if precision > _DIGITS_MAX:
            raise OptionError(f"{self._path}: Spark's decimals have {_DIGITS_MAX} digits at most")
        return DecimalType(precision, schema.get("scale", 0))


def without_unknown_logic(schema: Any) -> Any:
    """Return the schema without the logical types that have no type in Spark.

    Their values are then those of the type below, such as the text of a UUID.
    """
    if isinstance(schema, list):
        return [without_unknown_logic(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("logicalType") in (*_LOGICAL, "decimal")
    return {
        name: without_unknown_logic(one)
        for name, one in schema.items()
        if known or name != "logicalType"
    }


def _plain(kind: str) -> DataType:
    # A column of nulls has to have some type.
    return _PRIMITIVE.get(kind, StringType())


def _short(schema: list[Any]) -> str:
    return ", ".join(
        one if isinstance(one, str) else one.get("name", one["type"]) for one in schema
    )
