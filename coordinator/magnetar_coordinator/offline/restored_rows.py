"""Rows of a coordinator's store that change when a backup becomes a store again. Pure.

The store takes another incarnation when it is started, so that no TxnID is issued twice.
Source: docs/protocol/rules.md, rule n; docs/design/0012-backup.md.
"""

from __future__ import annotations

from magnetar_coordinator.metadata.records import (
    META_PRODUCER_ID,
    META_RESTORED,
    Restored,
    read_u64,
    u64,
)

# Of 47 bits: so many producer ids a second, for as long as a cluster lives.
_PRODUCERS_A_SECOND_BITS = 15


def restored_meta(key: bytes, value: bytes, *, restored_at_s: int) -> bytes:
    """Return the row of the family `meta` in the restored store."""
    if key == META_PRODUCER_ID:
        return u64(max(read_u64(value), restored_at_s << _PRODUCERS_A_SECOND_BITS))
    return value


def added_meta(restored: Restored) -> tuple[bytes, bytes]:
    """Return the row that says what becomes of OPEN transactions."""
    return META_RESTORED, u64(restored)
