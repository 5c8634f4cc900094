"""A data directory belongs to a server of a cluster, and to versions that can read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import ClusterMismatch
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
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
    format=FORMAT,
    kind="broker",
    member="broker-0",
    membership_version=3,
    cluster_hash="abc",
    brokers=["broker-0"],
)
THREE = ["broker-0", "broker-1", "broker-2"]


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


def with_brokers(stored: StoreIdentity, names: list[str]) -> StoreIdentity:
    row = StoreIdentity()
    row.CopyFrom(stored)
    del row.brokers[:]
    row.brokers.extend(names)
    return row


NEXT = {"membership_version": 4, "cluster_hash": "def"}


def test_brokers_are_added_at_the_end() -> None:
    grown = opened(STORED, brokers=THREE, **NEXT)
    assert grown is not None
    assert list(grown.brokers) == THREE
    with pytest.raises(ClusterMismatch, match="raise the version"):
        opened(STORED, brokers=THREE, cluster_hash="def")


@pytest.mark.parametrize(
    ("brokers", "complaint"),
    [
        (["broker-0", "broker-2"], "has lost broker-1.*broker number 2 of the list"),
        (["broker-0", "broker-1"], "has lost broker-2.*broker number 3 of the list"),
        (["broker-0", "broker-2", "broker-1"], "has moved broker-1.*broker number 2"),
        (["broker-9", *THREE], "has moved broker-0.*broker number 1"),
        (["broker-0", "broker-9", "broker-2"], "has lost broker-1"),
    ],
    ids=["middle", "last", "order", "front", "another"],
)
@pytest.mark.parametrize("kind", ["broker", "coordinator"])
def test_a_list_that_lost_or_moved_a_broker_is_refused(
    kind: str, brokers: list[str], complaint: str
) -> None:
    """Who keeps a shard is computed from the list: its rows would be looked for elsewhere."""
    stored = with_brokers(STORED, THREE)
    stored.kind = kind
    with pytest.raises(InvalidConfig, match=complaint):
        opened(stored, kind=kind, brokers=brokers, **NEXT)


@pytest.mark.parametrize("kind", ["broker", "coordinator"])
def test_one_of_several_does_not_start_without_the_list(kind: str) -> None:
    stored = with_brokers(STORED, THREE)
    stored.kind = kind
    with pytest.raises(InvalidConfig, match="broker-0, broker-1, broker-2, and the list"):
        opened(stored, kind=kind, cluster_hash="")


def test_a_store_that_a_person_made_in_place_of_a_lost_one_takes_the_list_as_it_is() -> None:
    made = with_brokers(STORED, [])
    assert opened(made) == STORED
    grown = opened(made, brokers=["broker-1", "broker-0"], **NEXT)
    assert grown is not None
    assert list(grown.brokers) == ["broker-1", "broker-0"]


def test_a_coordinator_keeps_the_list_that_it_saw() -> None:
    older = with_brokers(STORED, [])
    older.kind = "coordinator"
    assert opened(older, kind="coordinator", cluster_hash="") is None
    seen = opened(older, kind="coordinator", brokers=["broker-0"])
    assert seen is not None
    assert list(seen.brokers) == ["broker-0"]
    assert opened(seen, kind="coordinator", cluster_hash="") is None
