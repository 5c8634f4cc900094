"""Walk over the distinct beginnings of RocksDB's keys, in bounded steps.

A seek passes every deleted row that is not compacted away yet, and holds the GIL: after 300,000
trimmed transactions a seek takes seconds, in which the server does not answer. So RocksDB is told
to give up after some rows; it does not say where it stopped. The keys ahead are then taken in
spans, each closed by an upper bound. Spans double when they are passed, and shrink to their root
when they are too large.
"""

from __future__ import annotations

import rocksdict

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.store import KEY_END, behind_prefix

# Rows that a seek may pass; twice as many take four times as long when caches are cold.
SKIPPED_MAX = 1_000
# Seeks of a call that find nothing: they take a few milliseconds.
MISSES_MAX = 16
# RocksDB's text when it gave up; rocksdict has no error classes.
_GAVE_UP = "Result incomplete"


def walk_prefixes(
    family: rocksdict.Rdict, start: bytes, end: bytes, length: int, count_max: int
) -> tuple[list[bytes], bytes | None]:
    """Return the distinct beginnings of keys; see `Store.prefixes`.

    Every call makes progress: it stops only where it passed a span, or found something.
    """
    if count_max <= 0:
        raise BrokenInvariant(f"count_max is {count_max}")
    found: list[bytes] = []
    misses = 0
    # The span's size, in beginnings taken as numbers; None: up to the end.
    span: int | None = None
    at = start
    bound, iterator = end, _iterator(family, end, skipped_max=SKIPPED_MAX)
    while at < end:
        iterator.seek(at)
        if iterator.valid():
            found.append(iterator.key()[:length])
            at = behind_prefix(found[-1], length)
            if len(found) == count_max:
                break
            next_span = _doubled(span, at, end, length)
        elif _gave_up(iterator):
            misses += 1
            next_span = _root(span, at, end, length)
        else:
            misses += 1
            at = bound
            if misses >= MISSES_MAX:
                break
            next_span = _doubled(span, at, end, length)
        if next_span is not None or span is not None:
            span = next_span
            bound = end if span is None else min(end, _ahead(at, span, length))
            # A span of a single beginning cannot be divided.
            iterator = _iterator(family, bound, skipped_max=None if span == 1 else SKIPPED_MAX)
    return found, at if at < end else None


def _iterator(
    family: rocksdict.Rdict, bound: bytes, *, skipped_max: int | None
) -> rocksdict.RdictIter:
    options = rocksdict.ReadOptions()
    options.set_background_purge_on_iterator_cleanup(True)
    options.set_iterate_upper_bound(bound)
    if skipped_max is not None:
        options.set_max_skippable_internal_keys(skipped_max)
    return family.iter(options)


def _gave_up(iterator: rocksdict.RdictIter) -> bool:
    """Return whether rows may follow where none was found. Raises any other error of the walk."""
    try:
        iterator.status()
    except Exception as error:
        if _GAVE_UP in str(error):
            return True
        raise
    return False


def _number(key: bytes, length: int) -> int:
    return int.from_bytes(key[:length].ljust(length, b"\x00"), "big")


def _ahead(key: bytes, span: int, length: int) -> bytes:
    """Return the key that lies span beginnings ahead."""
    number = _number(key, length) + span
    return number.to_bytes(length, "big") if number < 1 << (8 * length) else KEY_END


def _root(span: int | None, at: bytes, end: bytes, length: int) -> int:
    """Return the next span after a span that was too large."""
    if span is None:
        span = max(1, _number(end, length) - _number(at, length))
    return 1 << (span.bit_length() - 1) // 2


def _doubled(span: int | None, at: bytes, end: bytes, length: int) -> int | None:
    """Return the next span after a span that was passed; None when it reaches the end."""
    if span is None or _number(at, length) + 2 * span >= _number(end, length):
        return None
    return 2 * span
