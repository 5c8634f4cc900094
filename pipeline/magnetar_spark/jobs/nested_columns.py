"""Changes the parts of columns that are of some type, at any depth."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

# Returns the change of parts of a type; None: the part itself stays, its own parts may change.
Change = Callable[[DataType], Callable[[Column], Column] | None]


def changed(column: Column, kind: DataType, change: Change) -> Column:
    """Return a column in which `change` has replaced the parts that it applies to.

    Args:
        kind: the column's type.
    """
    if not _has(kind, change):
        return column
    made = change(kind)
    if made is not None:
        return F.when(column.isNotNull(), made(column))
    if isinstance(kind, StructType):
        parts = [
            changed(column.getField(one.name), one.dataType, change).alias(one.name) for one in kind
        ]
        return F.when(column.isNotNull(), F.struct(*parts))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(column, lambda one: changed(one, element, change))
    assert isinstance(kind, MapType)
    key, value = kind.keyType, kind.valueType
    if _has(key, change):
        column = F.transform_keys(column, lambda name, _: changed(name, key, change))
    if _has(value, change):
        column = F.transform_values(column, lambda _, one: changed(one, value, change))
    return column


def _has(kind: DataType, change: Change) -> bool:
    if change(kind) is not None:
        return True
    if isinstance(kind, StructType):
        return any(_has(one.dataType, change) for one in kind)
    if isinstance(kind, ArrayType):
        return _has(kind.elementType, change)
    return isinstance(kind, MapType) and (
        _has(kind.keyType, change) or _has(kind.valueType, change)
    )
