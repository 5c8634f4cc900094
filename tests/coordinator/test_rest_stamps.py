"""`magnetar check` notices stamps that a coordinator would give again."""

from __future__ import annotations

import pytest
from tests.coordinator.fakes import P0, SILENCE, World, end_command
from tests.virtual_time import run

from magnetar_coordinator.metadata.records import FAMILIES, META, META_STAMP_BOUND, u64
from magnetar_coordinator.offline.check import check_coordinator
from magnetar_storage.memory.engine import MemoryStore
from magnetar_storage.offline.findings import Findings
from magnetar_storage.store import WriteBatch


async def found(world: World, bound: int | None) -> list[str]:
    """The kinds of damage, in a store whose bound was changed."""
    store = MemoryStore(world.disk, FAMILIES)
    if bound is not None:
        batch = WriteBatch()
        batch.put(META, META_STAMP_BOUND, u64(bound))
        await store.write(batch)
        await store.sync()
    findings = Findings()
    await check_coordinator(store, findings)
    await store.close()
    return [one.check for one in findings.kept if one.is_damage]


@pytest.mark.parametrize("is_live", [False, True])
def test_a_stamp_at_the_bound_would_be_given_again(is_live: bool) -> None:
    async def scenario() -> None:
        world = await World().start()
        if is_live:
            world.broker.answer = lambda name, body: SILENCE if name.startswith("end_txn") else None
        txn_id = await world.client.new(P0)
        stamp = (await world.client.ask(end_command(txn_id, wait_finished=not is_live))).stamp
        world.crash()
        assert await found(world, None) == []
        assert await found(world, stamp + 1) == []
        assert await found(world, stamp) == ["record" if is_live else "outcome"]

    run(scenario())
