"""A data directory belongs to a server of a cluster, and to versions that can read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import ClusterMismatch
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.memory import MemoryDisk, MemoryStore
from magnetar_storage.store import WriteBatch
from magnetar_storage.store_identity import FORMAT, KEY, check_store_identity

OWN: dict[str, Any] = {
    "kind": "broker",
    "member": "broker-0",
    "membership_version": 3,
    "cluster_hash": "abc",
}


def opened(stored: StoreIdentity | None, **changes: Any) -> StoreIdentity | None:
    """Open a store with this row; returns the row to be written."""

    async def scenario() -> bytes | None:
        store = MemoryStore(MemoryDisk(), ["meta"])
        if stored is not None:
            batch = WriteBatch()
            batch.put("meta", KEY, stored.SerializeToString())
            await store.write(batch)
        return await check_store_identity(store, "meta", **{**OWN, **changes})

    row = asyncio.run(scenario())
    return None if row is None else StoreIdentity.FromString(row)


STORED = StoreIdentity(
    format=FORMAT, kind="broker", member="broker-0", membership_version=3, cluster_hash="abc"
)


def test_a_new_store_is_marked_and_then_opens_without_a_write() -> None:
    assert opened(None) == STORED
    assert opened(STORED) is None


def test_members_change_with_a_higher_version() -> None:
    changed = opened(STORED, membership_version=4, cluster_hash="def")
    assert changed is not None
    assert (changed.membership_version, changed.cluster_hash) == (4, "def")


def test_without_members_nothing_is_compared_and_nothing_is_lost() -> None:
    assert opened(STORED, membership_version=1, cluster_hash="") is None
    unmarked = StoreIdentity(format=FORMAT, kind="broker", member="broker-0")
    assert opened(unmarked) == STORED


@pytest.mark.parametrize(
    ("stored", "changes", "error", "complaint"),
    [
        ({"format": FORMAT + 1}, {}, InvalidConfig, "start the version that wrote it"),
        ({}, {"kind": "coordinator"}, InvalidConfig, "belongs to the broker 'broker-0'"),
        ({}, {"member": "broker-1"}, InvalidConfig, "a directory of its own"),
        ({}, {"cluster_hash": "def"}, ClusterMismatch, "version 3 of the members"),
        (
            {},
            {"cluster_hash": "def", "membership_version": 2},
            ClusterMismatch,
            "raise the version",
        ),
    ],
)
def test_what_belongs_elsewhere_is_refused(
    stored: dict[str, Any], changes: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    row = StoreIdentity()
    row.CopyFrom(STORED)
    for name, value in stored.items():
        setattr(row, name, value)
    with pytest.raises(error, match=complaint):
        opened(row, **changes)
