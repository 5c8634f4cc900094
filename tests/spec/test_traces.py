"""Recorded histories of the real servers are behaviours of the model."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.spec.following import follow
from tests.spec.plays import PLANS
from tests.spec.recording import Noted, Recorded
from tests.spec.tlc import SPEC
from tests.spec.traces import (
    LEFT_OUT,
    NOT_IN_THE_MODEL,
    RECORDS,
    RECOVERIES,
    translate,
)
from tests.spec.txn_numbers import OUTSIDE
from tests.spec.values import written

from magnetar_core.history import events
from magnetar_core.history.events import COORDINATOR, EVENTS, Life, Server
from magnetar_core.ids import TxnID

TC = Life(Server(COORDINATOR, 0), 1)
# Steps of Commit.tla that no event stands for, and that no record needs: outcomes that are
# forgotten, data that is lost, and a watermark that was not stored, which is a planted mistake.
UNSEEN = {"Forget", "Lose", "CrashParticipant"}


@cache
def recorded(name: str) -> Recorded:
    return PLANS[name].record()


def test_a_history_is_a_behaviour_of_the_model(tlc: Path, tmp_path: Path) -> None:
    found = follow(tlc, translate(recorded("commit")), tmp_path)
    assert found.refused is None, found.output
    assert not found.violated, found.output


def test_every_event_is_translated_or_known_not_to_be() -> None:
    known = [*RECORDS, *RECOVERIES, *LEFT_OUT, *NOT_IN_THE_MODEL]
    assert sorted(one.__name__ for one in known) == sorted(one.__name__ for one in EVENTS)


def test_the_histories_have_all_kinds_of_records() -> None:
    kinds = {record["kind"] for name in PLANS for record in translate(recorded(name)).records}
    assert kinds == set(re.findall(r'e\.kind = "([\w ]+)" ->', (SPEC / "Trace.tla").read_text()))


def test_every_step_of_the_model_has_its_place_in_a_trace() -> None:
    model, trace = ((SPEC / f"{name}.tla").read_text() for name in ("Commit", "Trace"))
    steps = re.search(r"^Next ==\n(.*?)\n\n", model, re.M | re.S)
    assert steps is not None
    named = set(re.findall(r"\b([A-Z]\w+)\b", steps[1])) - {"E", "Clients", "Partitions"}
    named -= {"Txns", "Participants"}
    unseen = {one for one in named if not re.search(rf"\b{one}\b", trace)}
    assert unseen == UNSEEN


def test_txn_ids_are_small_numbers_also_after_a_restart() -> None:
    first, second = (TxnID.of(0, 1, counter) for counter in (0, 1_000_000))
    recovered = events.CoordinatorRecovered(1, 1_000_000, (), ((1, 999_999),))
    after = Life(TC.server, 2)
    history = Recorded(
        (
            Noted(TC, events.CoordinatorRecovered(1, 0, (), ())),
            Noted(TC, events.CounterReserved(1_000_000)),
            Noted(TC, events.Opened(first, ())),
            Noted(after, recovered),
            Noted(after, events.CounterReserved(2_000_000)),
            Noted(after, events.Opened(second, ())),
            Noted(after, events.TxnTold(TxnID.of(0, 1, 5), True)),
        ),
        {},
    )
    translated = translate(history)
    assert translated.places == (1, 2, 3, 4, 5, 6)
    assert [one.get("txn") for one in translated.records] == [None, 0, None, None, 2, OUTSIDE]
    assert [one.get("bound") for one in translated.records if "bound" in one] == [2, 4]
    assert translated.records[2]["next"] == 2
    assert translated.records[2]["lost"] == {1}
    assert translated.constants["Reserved"] == 2
    assert translated.constants["Transactions"] == 4


def test_values_are_written_as_tla_has_them() -> None:
    value = {"kind": "ended", "early": True, "txns": frozenset({2, 1}), "found": {"end": 0}}
    assert (
        written(value)
        == '[kind |-> "ended", early |-> TRUE, txns |-> {1, 2}, found |-> [end |-> 0]]'
    )
