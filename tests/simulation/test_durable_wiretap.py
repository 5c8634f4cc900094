"""Words that leave before what they rest on is durable are seen, frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from tests.simulation.durable_wiretap import DurableWiretap
from tests.simulation.planting import replaced
from tests.simulation.protocol_wiretap import ProtocolWiretap
from tests.simulation.short.runner import run_history
from tests.virtual_time import run

from magnetar.testing.envelope import command
from magnetar_coordinator.metadata.records import FAMILIES, META, META_COUNTER, u64
from magnetar_coordinator.parking import Parking
from magnetar_core.ids import TxnID
from magnetar_core.wire import service_pb2 as pb
from magnetar_core.wire import transaction_pb2
from magnetar_storage.memory.engine import MemoryDisk, MemoryStore
from magnetar_storage.store import WriteBatch

SEEDS = 20


def at_once(parking: Any, call: Callable[..., None], *arguments: Any) -> None:
    call(*arguments)


@pytest.mark.sim
@pytest.mark.parametrize("profile", ["transactions", "identities", "sequences"])
def test_who_speaks_before_it_is_durable_is_seen(profile: str) -> None:
    # The follower would see it first.
    with (
        replaced(Parking, "when_durable", at_once),
        replaced(ProtocolWiretap, "follows", False),
    ):
        failures = (
            run_history(seed, profile, checks_servers=False).failure for seed in range(SEEDS)
        )
        found = next((failure for failure in failures if failure is not None), "")
    assert "invariant a: " in found


class Seen(Exception):
    pass


def violation(invariant: str, text: str) -> NoReturn:
    raise Seen(f"{invariant}: {text}")


async def durable_bound(disk: MemoryDisk, bound: int) -> None:
    store = MemoryStore(disk, FAMILIES)
    batch = WriteBatch()
    batch.put(META, META_COUNTER, u64(bound))
    await store.write(batch)
    await store.sync()


def test_a_txn_id_that_would_be_issued_again_is_seen() -> None:
    disk = MemoryDisk()
    run(durable_bound(disk, 8))
    tap = DurableWiretap(lambda link: disk, lambda name: disk, violation)

    def told(counter: int, *, early: bool) -> None:
        asked = transaction_pb2.CommandNewTxn(answer_before_durable=early)
        tap.on_request(1, pb.Frame(commands=[command(asked, counter)]))
        txn_id = TxnID.of(0, 1, counter)
        answer = transaction_pb2.CommandNewTxnResponse(txn_id=txn_id.to_wire())
        tap.on_reply(1, pb.Frame(commands=[command(answer, counter)]))

    told(7, early=True)
    with pytest.raises(Seen, match=r"a: .* no disk has it"):
        told(7, early=False)
    with pytest.raises(Seen, match=r"8: .* would be issued again from 8"):
        told(8, early=True)
