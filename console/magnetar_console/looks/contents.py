"""Keys and values as text for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

TEXT_CHARACTERS_MAX: Final = 2_000
# A value of more bytes is not parsed as JSON.
JSON_BYTES_MAX: Final = 64 << 10

# A longer value is shown with a line for each field.
JSON_LINE_CHARACTERS_MAX: Final = 80

# Returns bytes as text for people, as `content` does.
Show: TypeAlias = Callable[[bytes], dict[str, Any]]


def content(data: bytes) -> dict[str, Any]:
    """Return bytes as text, with the form in which they were read.

    Returns:
        "text"; "form", which is "JSON", "text" or "bytes" (in hexadecimal digits); "bytes", the
        size; "cut", whether the text is longer than shown.
    """
    return shown(data, *_read(data))


def shown(data: bytes, form: str, text: str) -> dict[str, Any]:
    """Return bytes that were read in some form, as `content` does."""
    return {
        "text": text[:TEXT_CHARACTERS_MAX],
        "form": form,
        "bytes": len(data),
        "cut": len(text) > TEXT_CHARACTERS_MAX,
    }


def json_text(found: Any) -> str:
    """Return a value of JSON as text; of a long one, each field has a line."""
    line = json.dumps(found, ensure_ascii=False)
    if len(line) <= JSON_LINE_CHARACTERS_MAX:
        return line
    return json.dumps(found, ensure_ascii=False, indent=1)


def _read(data: bytes) -> tuple[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "bytes", data[: TEXT_CHARACTERS_MAX // 2 + 1].hex()
    if data[:1] in (b"{", b"[") and len(data) <= JSON_BYTES_MAX:
        try:
            return "JSON", json_text(json.loads(text))
        except (ValueError, RecursionError):
            pass
    if not all(one.isprintable() or one in "\n\r\t" for one in text):
        return "bytes", data[: TEXT_CHARACTERS_MAX // 2 + 1].hex()
    return "text", text
