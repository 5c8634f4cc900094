"""Rows of a broker's store that change when a backup becomes a store again. Pure.

After the backup, the old store gave out offsets and ids that the backup does not know. The new
store never gives them out again: they are below what the time of the restore says. So two restores
of the same backup do not meet either.
Source: docs/protocol/rules.md, rule n; docs/design/0012-backup.md.
"""

from __future__ import annotations

from magnetar_broker import keys
from magnetar_core.membership.placement import SERIAL_MAX
from magnetar_core.wire import record_pb2 as records

# Topics a second for as long as a cluster lives: far more than any cluster creates. 40 bits last
# until the year 2059.
_SERIALS_A_SECOND = 1 << 10
_EPOCH_S = 1_735_689_600  # 2025
_SUBSCRIPTION_BITS = 32


def restored_meta(key: bytes, value: bytes, *, restored_at_s: int, is_first: bool) -> bytes:
    """Return the row of the family `meta` in the restored store.

    Args:
        is_first: the first broker gives out ids of topics, and incarnations of coordinators.
    """
    if key == keys.META_NEXT_SUBSCRIPTION_ID:
        return keys.u64(max(keys.read_u64(value), restored_at_s << _SUBSCRIPTION_BITS))
    if not is_first:
        return value
    if key == keys.META_NEXT_TOPIC_ID:
        serial = max(1, (restored_at_s - _EPOCH_S) * _SERIALS_A_SECOND)
        return keys.u64(max(keys.read_u64(value), min(serial, SERIAL_MAX >> 1)))
    if key.startswith(keys.META_INCARNATION):
        row = records.IncarnationRow.FromString(value)
        row.past.add(incarnation=row.incarnation, store_token=row.store_token)
        # No store has this token: the coordinator's restored store takes a higher incarnation.
        row.store_token = f"restored at {restored_at_s}"
        row.incarnation = max(row.incarnation, restored_at_s * 1_000)
        return row.SerializeToString()
    return value
