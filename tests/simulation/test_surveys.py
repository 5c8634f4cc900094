"""Cuts beside everything else: they hold, and who judges them notices when they do not."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.mutants.planting import planted
from tests.simulation.history import History, Violation
from tests.simulation.short.draft import Draft
from tests.simulation.short.fault_drawing import draw_faults
from tests.simulation.short.lookers import surveyors
from tests.simulation.short.producers import transactions
from tests.simulation.short.runner import Outcome, run_script
from tests.simulation.surveys import SeenCut, check_cuts

from magnetar import Cut
from magnetar_core.cuts import cuts as core_cuts
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
    cut = Cut(core_cuts.Cut("", 1, {"t": TopicCut(1, partitions)}))
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


def test_damaged_messages_that_were_given_up_are_missing_from_cuts() -> None:
    """Histories with surveyors and damaged rows failed, and nothing was wrong."""
    history = history_of([None, T1, T2, None], [T1, T2])
    history.given_up = {("t", 0): {0}, ("t", 1): {1}}
    check_cuts(history, [seen_cut(history, (0, 4), (0, 2), without=((0, 0), (1, 1)))])
    with pytest.raises(Violation, match="torn"):
        check_cuts(history, [seen_cut(history, (0, 4), (0, 2), without=((0, 0), (1, 0)))])


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


def cuts(seed: int) -> Outcome:
    """Transactions and cuts beside servers that fail, and clocks that jump."""
    draft = Draft(Random(f"cuts/{seed}"))
    draft.broker_count = draft.coordinator_count = 2
    for _ in range(4):
        transactions(draft)
    for _ in range(2):
        surveyors(draft)
    draw_faults(draft, 15, {"crash": 2.0, "link": 0.5, "partition": 0.5, "clock jump": 1.0})
    return run_script(draft.finish(str(seed), "cuts", ()), checks_servers=False)


def test_cuts_hold_while_servers_fail() -> None:
    outcomes = [cuts(seed) for seed in range(2)]
    for outcome in outcomes:
        assert outcome.failure is None, outcome.traceback
        assert outcome.counts["cuts"] > 2
    assert sum(outcome.active["cut read again"] for outcome in outcomes) > 1


@pytest.mark.parametrize("name", ["cut-awaits-nothing", "cut-is-not-read"])
def test_planted_bugs_are_found(name: str) -> None:
    with planted(name):
        for seed in range(SEEDS_MAX):
            failure = cuts(seed).failure
            if failure is not None and failure.startswith("Violation"):
                return
    raise AssertionError("no seed has found it")
