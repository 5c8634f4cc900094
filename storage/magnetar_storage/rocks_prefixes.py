"""Walks over the distinct beginnings of RocksDB's keys, a bounded step at a time.

A seek goes over every row that was deleted and not compacted away yet, and holds the GIL: behind
300,000 trimmed transactions one takes seconds, in which a server answers nobody. So RocksDB is told
to give up after some, which does not say where it was. What lies ahead is then taken in spans, each
closed by an upper bound: they double while they are passed, and shrink to their root where that is
too much.
"""

from __future__ import annotations

import rocksdict

from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.store import KEY_END, behind_prefix

# Rows that a seek may go over; twice as many take four times as long where caches are cold.
SKIPPED_MAX = 1_000
# Seeks of one call, beside those that find something: a few milliseconds.
MISSES_MAX = 16
# How RocksDB says that it gave up; the binding has no kinds of errors.
_GAVE_UP = "Result incomplete"


def walk_prefixes(
    family: rocksdict.Rdict, start: bytes, end: bytes, length: int, count_max: int
) -> tuple[list[bytes], bytes | None]:
    """As `Store.prefixes`.

    Every call gets ahead: it stops only where a span was passed, or something was found.
    """
    if count_max <= 0:
        raise BrokenInvariant(f"count_max is {count_max}")
    found: list[bytes] = []
    misses = 0
    # In beginnings, taken as numbers; None: up to the end.
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
            # One beginning cannot be cut further.
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
    """Whether rows may follow where none was found. Raises what else ended the walk."""
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
    """The key so many beginnings ahead."""
    number = _number(key, length) + span
    return number.to_bytes(length, "big") if number < 1 << (8 * length) else KEY_END


def _root(span: int | None, at: bytes, end: bytes, length: int) -> int:
    """The next span, where this one was too much."""
    if span is None:
        span = max(1, _number(end, length) - _number(at, length))
    return 1 << (span.bit_length() - 1) // 2


def _doubled(span: int | None, at: bytes, end: bytes, length: int) -> int | None:
    """The next span, where this one was passed; None when it reaches the end."""
    if span is None or _number(at, length) + 2 * span >= _number(end, length):
        return None
    return 2 * span
