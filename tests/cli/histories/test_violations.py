"""What servers must not do is reported as such, with the line that says it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.histories.recorded import Recorded

from magnetar_cli.check.history.judging import STATUS_OF_VERDICT, Report, Verdict

Change = Callable[[dict[str, Any]], None]


Violation = tuple[str, Mapping[str, object], Change, str]


def keeps_less(event: dict[str, Any]) -> None:
    event["kept"] = [[writer, count - 1] for writer, count in event["kept"]]


def keeps_nothing_and_aborts(event: dict[str, Any]) -> None:
    event.update(is_commit=False, kept=[], is_counted=False)


def other_outcome(event: dict[str, Any]) -> None:
    event["is_commit"] = not event["is_commit"]


def one_further(field: str) -> Change:
    def change(event: dict[str, Any]) -> None:
        event[field] += 1

    return change


def same_txn_id_again(event: dict[str, Any]) -> None:
    tcid, incarnation, counter = event["txn_id"].split(":")
    event["txn_id"] = f"{tcid}:{incarnation}:{int(counter) - 1}"


# The event, what is changed in it, the rule that is broken.
VIOLATIONS: Mapping[str, Violation] = {
    "an end that keeps too little": (
        "EndApplied",
        {"is_commit": True, "participant": ["orders", 1, 1]},
        keeps_less,
        "rule g|invariant",
    ),
    "a participant that does not do what was decided": (
        "EndApplied",
        {"is_commit": True},
        keeps_nothing_and_aborts,
        "invariant",
    ),
    "another outcome": ("OutcomeTold", {"is_commit": True}, other_outcome, "invariant 7"),
    "a marker at another place": ("MarkerWritten", {}, one_further("offset"), "invariant 4"),
    "a plain message at another place": ("PlainSent", {}, one_further("offset"), "invariant 4"),
    "a write with a gap": ("Wrote", {}, one_further("first_index"), "invariant 4"),
    "a TxnID twice": ("Opened", {"txn_id": "0:1:1"}, same_txn_id_again, "invariant 8"),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_is_reported_with_its_line(
    recorded: Recorded, tmp_path: Path, violation: str
) -> None:
    event, members, change, rule = VIOLATIONS[violation]
    name, place = recorded.find(event, **members)
    report = recorded.with_event(name, place, change).judged(tmp_path)
    check_blamed(report, name, place, rule)


@pytest.mark.parametrize(
    ("cause", "answer"),
    [("Decided", "OutcomeTold"), ("Wrote", "WriteConfirmed"), ("Opened", "ParticipantsConfirmed")],
)
def test_an_answer_before_its_group_is_durable_is_reported(
    recorded: Recorded, tmp_path: Path, cause: str, answer: str
) -> None:
    """Rule a. The answer comes right behind its cause, and all numbers are in order."""
    name, answered = recorded.find(answer)
    txn_id = json.loads(recorded.files[name][answered])["txn_id"]
    _, place = recorded.find(cause, txn_id=txn_id)
    report = recorded.moved(name, answered, place + 1).judged(tmp_path)
    check_blamed(report, name, place + 1, "rule a")


@pytest.mark.parametrize(
    ("event", "members"), [("Decided", {"is_commit": True}), ("Opened", {}), ("MarkerWritten", {})]
)
def test_an_event_that_did_not_happen_is_missed(
    recorded: Recorded, tmp_path: Path, event: str, members: dict[str, object]
) -> None:
    name, place = recorded.find(event, **members)
    report = recorded.without_event(name, place).judged(tmp_path)
    assert report.verdict is Verdict.VIOLATION, report


def check_blamed(report: Report, name: str, place: int, rule: str) -> None:
    assert report.verdict is Verdict.VIOLATION, report
    assert STATUS_OF_VERDICT[report.verdict] == 17
    blamed = report.refused[0]
    kind, number = blamed.at.server.split()
    assert name.startswith(f"{kind}-{number}.")
    assert blamed.at.line == place, report
    assert any(blamed.rule.startswith(one) for one in rule.split("|")), blamed
    assert report.before, "the lines that matter"
