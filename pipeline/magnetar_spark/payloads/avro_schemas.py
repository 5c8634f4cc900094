"""Avro schemas: the types that their names stand for, and the logical types that are known.

Source: Apache Avro 1.12 Specification, Schema Declaration, Names, Logical Types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

from fastavro import parse_schema
from fastavro.schema import SchemaParseException

from magnetar_spark.errors import OptionError
from magnetar_spark.payloads.schema_files import schema_text

# A union is a list; every other type is an object with a `type`.
Node: TypeAlias = "dict[str, Any] | list[Any]"
RECORDS = ("record", "error")
# The types that a logical type can annotate. On another type it is ignored, as Avro says.
_LOGICAL = {
    "date": ("int",),
    "decimal": ("bytes", "fixed"),
    "duration": ("fixed",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
}


class AvroSchema:
    """A schema whose names are full, as fastavro's parser returns it.

    Attributes:
        root: the whole schema.
    """

    def __init__(self, parsed: Any) -> None:
        self.root = parsed
        self._named: dict[str, dict[str, Any]] = {}
        self._find_names(parsed)

    def node(self, schema: Any) -> Node:
        """Return the type of a part of the schema: a name is replaced by the type that it names."""
        while True:
            if isinstance(schema, str):
                return self._named.get(schema) or {"type": schema}
            if isinstance(schema, list):
                return schema
            kind = schema["type"]
            if isinstance(kind, str) and kind not in self._named:
                found: dict[str, Any] = schema
                return found
            schema = kind

    def takes_bytes(self, schema: Any) -> bool:
        """Return whether each value takes at least a byte: a few bytes cannot declare many."""
        return self._takes_bytes(schema, ())

    def _takes_bytes(self, schema: Any, inside: tuple[str, ...]) -> bool:
        node = self.node(schema)
        if isinstance(node, list):
            return True  # The number of the branch.
        if node["type"] in RECORDS:
            if node["name"] in inside:
                return False
            within = (*inside, node["name"])
            return any(self._takes_bytes(one["type"], within) for one in node["fields"])
        if node["type"] == "fixed":
            return bool(node["size"])
        return bool(node["type"] != "null")

    def _find_names(self, schema: Any) -> None:
        if isinstance(schema, list):
            for one in schema:
                self._find_names(one)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for part in ("type", "items", "values"):
                self._find_names(schema.get(part))
            for field in schema.get("fields", ()):
                self._find_names(field["type"])


def logical_type(node: dict[str, Any]) -> str | None:
    """Return the logical type of a node; None: it has none, or one that is not understood."""
    name = node.get("logicalType")
    if not isinstance(name, str) or node["type"] not in _LOGICAL.get(name, ()):
        return None
    return None if name == "decimal" and "precision" not in node else name


def read_avro_schema(path: Path) -> AvroSchema:
    """Return the schema in a file.

    Raises:
        OptionError: the file is not a schema of Avro.
    """
    try:
        return AvroSchema(parse_schema(json.loads(schema_text(path))))
    except (SchemaParseException, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"{path} is not a schema of Avro: {error}") from None
