"""The probe of invariant 10 at the end of a history finds a transaction that others wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
from tests.simulation.planting import replaced
from tests.simulation.short.catalogue import make_script
from tests.simulation.short.runner import run_script
from tests.simulation.short.script import Fault

from magnetar_broker.topics.partition import Partition
from magnetar_broker.transactions.transaction_index import Outcome
from magnetar_broker.transactions.waiting_ends import AskedEnd

# Both parties of the probe begin at this coordinator, which is away until the faults end.
AWAY = Fault(1, 1, 0.05, "away", {"server": "coordinator", "seconds": 25.0, "silent": True})
# It asks so often that an answer is on its way at that moment, and held up.
ASKS_OFTEN = {"watermark_interval_ms": 2}


def commits_wait() -> AbstractContextManager[None]:
    """A commit comes into effect later, while something else is open on the partition."""
    original = Partition.end

    def end(self: Partition, asked: AskedEnd) -> bool:
        others = self.index.open.keys() - {asked.end.txn_id}
        if others and asked.end.outcome is Outcome.COMMITTED:
            asyncio.get_running_loop().call_later(3.0, end_late, self, asked)
            return False
        return original(self, asked)

    def end_late(partition: Partition, asked: AskedEnd) -> None:
        if original(partition, asked):
            asked.done()

    return replaced(Partition, "end", end)


@pytest.mark.parametrize(
    ("plant", "finding"),
    [(nullcontext, None), (commits_wait, "s beside an open transaction")],
)
def test_only_an_open_transaction_that_others_wait_for_is_found(
    plant: Callable[[], AbstractContextManager[None]], finding: str | None
) -> None:
    """Short seed 7165: what held a coordinator up has ended with the faults."""
    for seed in (6, 14, 18):
        script = make_script(seed, "coordinator away")
        script = replace(
            script,
            faults=(AWAY,),
            settings={**script.settings, "coordinator": ASKS_OFTEN},
            flags={**script.flags, "probe": True},
        )
        with plant():
            outcome = run_script(script)
        if finding is None:
            assert outcome.failure is None, f"{outcome.failure}\n{outcome.traceback}"
            assert outcome.active["10"]
        else:
            assert outcome.failure is not None
            assert finding in outcome.failure
