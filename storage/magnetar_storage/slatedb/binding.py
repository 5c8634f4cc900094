"""Calls of SlateDB's Python binding that copy rows at the speed of memory.

The binding is generated, and moves every byte that goes to SlateDB in a loop of Python: four
megabytes a second, while the event loop is blocked. It also unpacks each number of each row that
comes back on its own. The functions here make the same calls with the same content, but pack and
unpack it as a whole. They know the binding's inner names, so they work with the version that they
were tested with only. tests/storage/test_slate_binding.py lists these names.
"""

from __future__ import annotations

import ctypes
import struct
from importlib.metadata import version
from typing import Any, Final

from slatedb import uniffi

Row = tuple[bytes, bytes]

TESTED_VERSION: Final = "0.17.0"
if version("slatedb") != TESTED_VERSION:
    raise ImportError(
        f"slatedb {version('slatedb')} is installed, and Magnetar works with {TESTED_VERSION} only:"
        f" pip install slatedb=={TESTED_VERSION}"
    )

_generated: Any = uniffi._generated
_LENGTH: Final = struct.Struct(">i")
# What follows a row's key and value: sequence number, time of creation, whether it expires.
_VERSION_OF_ROW: Final = struct.Struct(">QqB")
_TIME_BYTES: Final = 8
_SEQUENCE: Final = struct.Struct(">Q")
_KIND_BYTES: Final = 4
_BYTES: Final = ctypes.POINTER(ctypes.c_char)
_KINDS: Final = {uniffi.DbSnapshot: "dbsnapshot", uniffi.DbReader: "dbreader"}


def put(batch: Any, key: bytes, value: bytes) -> None:
    """Add a row to a batch of SlateDB."""
    _call(
        _generated._UniffiLib.uniffi_slatedb_uniffi_fn_method_writebatch_put,
        batch._uniffi_clone_handle(),
        buffer_of(packed(key)),
        buffer_of(packed(value)),
    )


def delete(batch: Any, key: bytes) -> None:
    """Add the deletion of a row to a batch of SlateDB."""
    _call(
        _generated._UniffiLib.uniffi_slatedb_uniffi_fn_method_writebatch_delete,
        batch._uniffi_clone_handle(),
        buffer_of(packed(key)),
    )


async def get(reader: Any, key: bytes) -> bytes | None:
    """Return a row's value, from the database, a snapshot or a reader of it."""
    value: bytes | None = await _call_async(
        _method(reader, "get")(reader._uniffi_clone_handle(), buffer_of(packed(key))),
        "rust_buffer",
        optional_bytes_from,
    )
    return value


class ScanPlan:
    """Options of a scan, packed once for all scans that have them."""

    __slots__ = ("is_reverse", "options", "packed")

    def __init__(self, options: Any, *, is_reverse: bool) -> None:
        self.options = options
        self.is_reverse = is_reverse
        lower = _generated._UniffiFfiConverterTypeScanOptions.lower
        self.packed = content_of(lower(options))


async def scan(reader: Any, start: bytes, end: bytes, plan: ScanPlan) -> Any:
    """Return an iterator over the rows with start <= key < end."""
    return await _call_async(
        _method(reader, "scan_with_options")(
            reader._uniffi_clone_handle(),
            buffer_of(packed_range(start, end)),
            buffer_of(plan.packed),
        ),
        "u64",
        _generated._UniffiFfiConverterTypeDbIterator.lift,
    )


async def next_rows(iterator: Any, count: int) -> list[Row]:
    """Return the next rows of an iterator; fewer than count at its end."""
    rows: list[Row] = await _call_async(
        _generated._UniffiLib.uniffi_slatedb_uniffi_fn_method_dbiterator_next_batch(
            iterator._uniffi_clone_handle(), count
        ),
        "rust_buffer",
        rows_from,
    )
    return rows


async def seek(iterator: Any, key: bytes) -> None:
    """Move an iterator forward to a key, or to the first key after it."""
    await _call_async(
        _generated._UniffiLib.uniffi_slatedb_uniffi_fn_method_dbiterator_seek(
            iterator._uniffi_clone_handle(), buffer_of(packed(key))
        ),
        "void",
        lambda _: None,
    )


async def newest_in_log_object(iterator: Any) -> int:
    """Return the highest sequence number of the rows in the next object of a log; 0: it has none.

    Args:
        iterator: of the binding's SlateDbWalReader, in front of an object that exists.
    """
    newest: int = await _call_async(
        _generated._UniffiLib.uniffi_slatedb_uniffi_fn_method_slatedbwaliterator_next(
            iterator._uniffi_clone_handle()
        ),
        "rust_buffer",
        newest_from,
    )
    return newest


def packed(value: bytes) -> bytes:
    """Return bytes as the binding sends them: with their length in front."""
    return _LENGTH.pack(len(value)) + value


def packed_range(start: bytes, end: bytes) -> bytes:
    """Return a range as the binding sends it: with its start and without its end."""
    return b"".join((b"\x01", packed(start), b"\x01", b"\x01", packed(end), b"\x00"))


def buffer_of(content: bytes) -> Any:
    """Return a buffer of SlateDB with this content. The call that gets it frees it."""
    foreign = _generated._UniffiForeignBytes(
        len(content), ctypes.cast(ctypes.c_char_p(content), _BYTES)
    )
    return _generated._uniffi_rust_call(
        _generated._UniffiLib.ffi_slatedb_uniffi_rustbuffer_from_bytes, foreign
    )


def content_of(buffer: Any) -> bytes:
    """Return the content of a buffer of SlateDB, and free the buffer."""
    try:
        return ctypes.string_at(buffer.data, buffer.len) if buffer.len else b""
    finally:
        buffer.free()


def optional_bytes_from(buffer: Any) -> bytes | None:
    """Return the bytes in a buffer, or None, and free the buffer."""
    content = content_of(buffer)
    if content[:1] == b"\x00":
        return None
    return content[1 + _LENGTH.size :]


def rows_from(buffer: Any) -> list[Row]:
    """Return the rows in a buffer, and free the buffer."""
    content = content_of(buffer)
    length_at, version_at = _LENGTH.unpack_from, _VERSION_OF_ROW.unpack_from
    (count,) = length_at(content)
    at = _LENGTH.size
    rows: list[Row] = []
    for _ in range(count):
        (size,) = length_at(content, at)
        at += _LENGTH.size
        key = content[at : at + size]
        at += size
        (size,) = length_at(content, at)
        at += _LENGTH.size
        rows.append((key, content[at : at + size]))
        at += size
        if version_at(content, at)[2]:
            at += _TIME_BYTES
        at += _VERSION_OF_ROW.size
    return rows


def newest_from(buffer: Any) -> int:
    """Return the highest sequence number of the log's rows in a buffer, and free the buffer."""
    content = content_of(buffer)
    length_at, sequence_at = _LENGTH.unpack_from, _SEQUENCE.unpack_from
    # In front of the rows is whether there was an object, and their number; in front of each row is
    # its kind.
    if content[:1] == b"\x00":
        return 0
    at = 1
    (count,) = length_at(content, at)
    at += _LENGTH.size
    newest = 0
    for _ in range(count):
        at += _KIND_BYTES
        (size,) = length_at(content, at)
        at += _LENGTH.size + size
        has_value, at = content[at], at + 1
        if has_value:
            (size,) = length_at(content, at)
            at += _LENGTH.size + size
        newest = max(newest, sequence_at(content, at)[0])
        at += _SEQUENCE.size
        for _ in ("creation", "expiry"):
            at += 1 + _TIME_BYTES if content[at] else 1
    return newest


def _method(reader: Any, name: str) -> Any:
    kind = _KINDS.get(type(reader), "db")
    return getattr(_generated._UniffiLib, f"uniffi_slatedb_uniffi_fn_method_{kind}_{name}")


def _call(function: Any, *arguments: Any) -> None:
    _generated._uniffi_rust_call_with_error(
        _generated._UniffiFfiConverterTypeError, function, *arguments
    )


async def _call_async(future: Any, kind: str, lift: Any) -> Any:
    library = _generated._UniffiLib
    return await _generated._uniffi_rust_call_async(
        future,
        getattr(library, f"ffi_slatedb_uniffi_rust_future_poll_{kind}"),
        getattr(library, f"ffi_slatedb_uniffi_rust_future_complete_{kind}"),
        getattr(library, f"ffi_slatedb_uniffi_rust_future_free_{kind}"),
        lift,
        _generated._UniffiFfiConverterTypeError,
    )
