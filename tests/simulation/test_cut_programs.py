"""Cuts beside everything else: they hold, and who judges them notices when they do not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.mutants.planting import planted
from tests.simulation.cut_programs import SeenCut, check_cuts
from tests.simulation.history import History, Violation
from tests.simulation.plan import Plan
from tests.simulation.world import World

from magnetar import Cut
from magnetar_core.cuts import cuts
from magnetar_core.cuts.cuts import PartitionCut, TopicCut
from magnetar_core.ids import TxnID

T1, T2 = TxnID(0, 1), TxnID(0, 2)
SEEDS_MAX = 12


def history_of(*partitions: list[TxnID | None]) -> History:
    """What is there at the end: the transactions of the messages of each partition of "t"."""
    history = History(lambda: 0.0, lambda error: None)
    for number, txn_ids in enumerate(partitions):
        for offset, txn_id in enumerate(txn_ids):
            history.seen_txn[("t", number), offset] = txn_id
    return history


def seen_cut(
    history: History, *ranges: tuple[int, int], without: tuple[Any, ...] = (), decided: Any = ()
) -> SeenCut:
    """A cut that has these ranges of offsets, but for the transactions and positions named."""
    partitions = tuple(PartitionCut(1, first, first, end) for first, end in ranges)
    cut = Cut(cuts.Cut("", 1, {"t": TopicCut(1, partitions)}))
    messages = {
        (place, offset): txn_id
        for (place, offset), txn_id in history.seen_txn.items()
        if ranges[place[1]][0] <= offset < ranges[place[1]][1]
        and txn_id not in without
        and (place[1], offset) not in without
    }
    return SeenCut(cut, messages, frozenset(decided))


def test_whole_transactions_and_all_plain_messages_are_a_cut() -> None:
    history = history_of([None, T1, T2, None], [T1, T2])
    check_cuts(history, [seen_cut(history, (0, 4), (0, 2), decided=[T1, T2])])
    check_cuts(history, [seen_cut(history, (0, 3), (0, 2), without=(T2,), decided=[T1])])
    check_cuts(history, [seen_cut(history, (0, 1), (0, 0))])
    # Retention had removed the first part of T1 when the cut was taken.
    check_cuts(history, [seen_cut(history, (2, 4), (0, 2), decided=[T1])])


@pytest.mark.parametrize(
    ("ranges", "how", "complaint"),
    [
        (((0, 4), (0, 0)), {"without": (T2,)}, "torn"),
        (((0, 4), (0, 2)), {"without": ((1, 1),)}, "torn"),
        (((0, 4), (0, 2)), {"without": (T2,), "decided": [T2]}, "decided before"),
        (((0, 4), (0, 2)), {"without": ((0, 3),)}, "plain"),
    ],
)
def test_what_is_no_cut_is_noticed(ranges: Any, how: dict[str, Any], complaint: str) -> None:
    history = history_of([None, T1, T2, None], [T1, T2])
    with pytest.raises(Violation, match=complaint):
        check_cuts(history, [seen_cut(history, *ranges, **how)])


def world(seed: int) -> World:
    """A run that goes on until cuts were read again."""
    plan = Plan(
        programs={"atomic": 3, "plain": 1, "surveyor": 1, "observer": 1, "inspector": 1},
        fault_weights={
            "broker crash": 1.0,
            "coordinator crash": 1.0,
            "link": 0.5,
            "partition": 0.5,
            "clock jump": 1.0,
            "duplicate": 0.5,
        },
        fault_period_s=0.3,
        broker_count=2,
        coordinator_count=2,
        transactions_min=60,
        crashes_min=2,
    )
    made = World(f"cuts/{seed}", plan=plan)
    made.occurred = lambda: made.provoked["cut read again"] > 1
    return made


@pytest.mark.parametrize("seed", range(2))
def test_cuts_hold_while_servers_fail(seed: int) -> None:
    run = world(seed)
    result = run.run()
    assert result.counts["cuts"] > 2
    assert any(seen.messages for seen in run.cuts)


@pytest.mark.parametrize("name", ["cut-awaits-nothing", "cut-is-not-read"])
def test_planted_bugs_are_found(name: str) -> None:
    with planted(name):
        for seed in range(SEEDS_MAX):
            try:
                world(seed).run()
            except Violation:
                return
    raise AssertionError("nobody noticed")
