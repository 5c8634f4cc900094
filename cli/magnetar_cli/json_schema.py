"""JSON schema of a type, in the form in which output.print_json prints its values. Pure.

Source: JSON Schema, draft 2020-12.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from magnetar_core.errors import MagnetarError
from magnetar_core.ids import TxnID

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
    Any: {},
    object: {},
    MagnetarError: {
        "type": "object",
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        "required": ["code", "message"],
        "additionalProperties": False,
    },
    TxnID: {"type": "string", "pattern": "^[0-9]+:[0-9]+:[0-9]+$"},
}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the schema of a type.

    Raises:
        TypeError: print_json has no form for such values.
    """
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(one) for one in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is tuple:
        return _of_tuple(arguments)
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return {"enum": [one.name for one in kind]}
    return _of_names(kind, _names(kind))


def _of_tuple(arguments: tuple[Any, ...]) -> dict[str, Any]:
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": schema_of(arguments[0])}
    places = [schema_of(one) for one in arguments]
    return {"type": "array", "prefixItems": places, "items": False, "minItems": len(places)}


def _names(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(one.name for one in dataclasses.fields(kind))
    if hasattr(kind, "_fields"):
        return tuple(kind._fields)
    if is_typeddict(kind):
        return tuple(kind.__annotations__)
    raise TypeError(f"there is no JSON for {kind!r}")


def _of_names(kind: Any, names: tuple[str, ...]) -> dict[str, Any]:
    types, meanings = get_type_hints(kind), attributes_of(kind)
    properties = {
        name: schema_of(types[name]) | ({"description": meanings[name]} if name in meanings else {})
        for name in names
    }
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0],
        "properties": properties,
        "required": list(names),
        "additionalProperties": False,
    }


def attributes_of(kind: type) -> dict[str, str]:
    """Return the part of a class's docstring below "Attributes:": names, and what they mean.

    It is empty where Python drops docstrings (`python -OO`).
    """
    _, _, text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w)", text):
        names, _, meaning = entry.partition(":")
        for name in names.split(","):
            text = " ".join(meaning.split())
            found[name.strip()] = text[:1].upper() + text[1:]
    return found
