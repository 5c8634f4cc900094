"""Parses JSON without changing anything that it says. Pure.

A number becomes its own text, as bytes, so that 1.10 and 1e400 are still known, and so that it is
told from a string. Two members with the same name, NaN and Infinity are errors.
Source: RFC 8259, The JavaScript Object Notation (JSON) Data Interchange Format; RFC 7493, The
I-JSON Message Format, Object Member Names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Protocol

from magnetar_spark.payloads.payload import NotThis

# How deeply arrays and objects may be nested. Python's parser takes a frame for each level.
DEPTH_MAX = 500
# A string, of which the end may be missing, or where a level begins or ends.
_LEVELS = re.compile(r'"(?:[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_BLANKS = re.compile(r"[ \t\n\r]*")
_BETWEEN = re.compile(r"[ \t\n\r,:]*")


def parsed_object(text: str) -> dict[str, Any]:
    """Return the object of a text: its values are str, bytes (numbers), bool, None, list and dict.

    Raises:
        NotThis: the text is not a JSON object, or has a name twice.
    """
    _check_depth(text)
    start = 0 if text.startswith("{") else _after_blanks(text, 0)
    try:
        found, end = _SCAN(text, start)
    except json.JSONDecodeError as error:
        raise NotThis(f"not a JSON object: {error}") from None
    except StopIteration as error:
        raise NotThis(f"not a JSON object: no value at character {error.value}") from None
    if not isinstance(found, dict):
        raise NotThis("not a JSON object")
    if end < len(text) and _after_blanks(text, end) < len(text):
        raise NotThis(f"not a JSON object: something follows it at character {end}")
    return found


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotThis(f"not a JSON object: it has the name {json.dumps(twice)} twice")
    return found


def _refuse_constant(name: str) -> None:
    raise NotThis(f"not a JSON object: {name} is not a number in JSON")


# Returns the value that begins at an index and where it ends. Raises StopIteration if none does.
_SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=str.encode,
    parse_float=str.encode,
    parse_constant=_refuse_constant,
).scan_once  # type: ignore[attr-defined]


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for found in _LEVELS.finditer(text):
        first = found[0][0]
        if first in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise NotThis(f"not a JSON object: more than {DEPTH_MAX} levels of nesting")
        elif first in "]}":
            depth -= 1


class Places(Protocol):
    """Places in a value where arrays and objects are kept as text.

    Attributes:
        is_text: whether this value is kept as text.
    """

    is_text: bool

    def member(self, name: str) -> Places | None:
        """Return the places in an object's member; None: there are none."""

    def element(self) -> Places | None:
        """Return the places in an array's elements; None: there are none."""


def with_texts(text: str, places: Places) -> Any:
    """Return the value of a text that `parsed_object` has taken.

    Arrays and objects at the given places are the text itself, as it was written.
    """
    return _with_texts(text, _after_blanks(text, 0), places)[0]


def _with_texts(text: str, at: int, places: Places | None) -> tuple[Any, int]:
    """The value that begins there, and where it ends."""
    first = text[at]
    if places is not None and not places.is_text:
        if first == "{":
            return _object_with_texts(text, at + 1, places)
        if first == "[":
            return _array_with_texts(text, at + 1, places)
    value, end = _SCAN(text, at)
    if places is not None and first in "[{":
        value = text[at:end]
    return value, end


def _object_with_texts(text: str, at: int, places: Places) -> tuple[dict[str, Any], int]:
    found = {}
    while text[at := _next(text, at)] != "}":
        name, at = scanstring(text, at + 1)
        found[name], at = _with_texts(text, _next(text, at), places.member(name))
    return found, at + 1


def _array_with_texts(text: str, at: int, places: Places) -> tuple[list[Any], int]:
    found, wanted = [], places.element()
    while text[at := _next(text, at)] != "]":
        one, at = _with_texts(text, at, wanted)
        found.append(one)
    return found, at + 1


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


def _next(text: str, at: int) -> int:
    """Return where the next name or value begins, or the end. Commas and colons are checked."""
    found = _BETWEEN.match(text, at)
    assert found is not None
    return found.end()
