"""Rows that change in a restore: what was given out after the backup is not given out again."""

from __future__ import annotations

import pytest

from magnetar_broker import keys
from magnetar_broker.offline.restored_rows import restored_meta
from magnetar_core.membership.placement import SERIAL_MAX
from magnetar_core.wire import record_pb2 as records

NOW_S = 1_800_000_000


@pytest.mark.parametrize("key", [keys.META_NEXT_TOPIC_ID, keys.META_NEXT_SUBSCRIPTION_ID])
def test_ids_rise_with_the_time_of_the_restore(key: bytes) -> None:
    first = restored_meta(key, keys.u64(5), restored_at_s=NOW_S, is_first=True)
    second = restored_meta(key, keys.u64(5), restored_at_s=NOW_S + 1, is_first=True)
    assert keys.read_u64(second) - keys.read_u64(first) >= 1_000
    assert restored_meta(key, second, restored_at_s=NOW_S, is_first=True) == second


def test_topics_have_serial_numbers_left() -> None:
    row = restored_meta(keys.META_NEXT_TOPIC_ID, keys.u64(5), restored_at_s=1 << 40, is_first=True)
    assert keys.read_u64(row) < SERIAL_MAX


def test_the_restored_coordinator_takes_a_higher_incarnation() -> None:
    row = records.IncarnationRow(incarnation=3, store_token="a")
    key = keys.incarnation(1)
    value = restored_meta(key, row.SerializeToString(), restored_at_s=NOW_S, is_first=True)
    found = records.IncarnationRow.FromString(value)
    assert found.incarnation > 1 << 32
    assert [(one.incarnation, one.store_token) for one in found.past] == [(3, "a")]
    assert found.store_token != "a"


def test_other_brokers_give_out_no_topics() -> None:
    value = keys.u64(5)
    assert (
        restored_meta(keys.META_NEXT_TOPIC_ID, value, restored_at_s=NOW_S, is_first=False) == value
    )
