"""The command line makes a plan of its options, and fails when a measurement did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from benchmarks.peers import __main__ as command_line
from benchmarks.peers.conversation import ClientFailed
from benchmarks.peers.figures import Figure, from_json, to_json
from benchmarks.peers.plan import QUICK, Plan
from benchmarks.peers.processes import NotRunning
from benchmarks.peers.rows import ROWS
from benchmarks.peers.system import System
from click.testing import CliRunner, Result
from tests.peers.figures import figure
from tests.peers.servers import plan


class Measuring:
    """Stands for `fetch` and `measure`."""

    def __init__(self, *found: Figure | ClientFailed | NotRunning) -> None:
        self.found = found
        self.fetched: list[str] = []
        self.plans: list[Plan] = []
        self.systems: list[str] = []
        self.rows: list[str] = []

    def fetch(self, peers: Sequence[str]) -> None:
        self.fetched += peers

    def measure(
        self, plan: Plan, systems: Sequence[System], rows: Sequence[str]
    ) -> Iterator[Figure | ClientFailed]:
        self.plans.append(plan)
        self.systems += [system.choice for system in systems]
        self.rows += rows
        for one in self.found:
            if isinstance(one, NotRunning):
                raise one
            yield one


def ran(monkeypatch: pytest.MonkeyPatch, measuring: Measuring, *arguments: str) -> Result:
    monkeypatch.setattr(command_line, "fetch", measuring.fetch)
    monkeypatch.setattr(command_line, "measure", measuring.measure)
    return CliRunner().invoke(command_line.main, arguments)


def test_everything_is_measured_unless_something_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring()
    assert ran(monkeypatch, measuring).exit_code == 0
    assert measuring.fetched == ["kafka", "pulsar"]
    assert measuring.systems == list(command_line.SYSTEMS)
    assert measuring.rows == list(ROWS)


def test_magnetar_alone_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring()
    ran(monkeypatch, measuring, "--systems", "magnetar-synced", "--only", "consume")
    assert measuring.fetched == []
    assert measuring.rows == ["consume"]


def test_quick_leaves_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = Measuring()
    ran(monkeypatch, measuring, "--quick", "--rounds", "4", "--at-once", "64")
    ran(monkeypatch, measuring, "--rounds", "4")
    quick, usual = measuring.plans
    assert (quick.rounds, quick.at_once) == (4, (64,))
    assert quick.seconds == QUICK["seconds"]
    assert quick.stored_messages == QUICK["stored_messages"]
    assert (usual.rounds, usual.seconds, usual.repeat) == (4, 5.0, 3)


def test_quick_names_only_what_a_plan_has() -> None:
    assert QUICK.keys() <= {name for name in Plan.__slots__}
    assert plan().client_s == 25.0


def test_figures_are_kept_and_shown_when_a_server_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    measuring = Measuring(figure(), NotRunning("its last words"))
    result = ran(monkeypatch, measuring, "--json", str(kept))
    assert result.exit_code == 1
    assert "its last words" in result.output
    assert "Kafka" in result.output
    assert from_json(kept.read_text()) == [figure()]


def test_a_failed_measurement_is_told_and_fails_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ran(monkeypatch, Measuring(ClientFailed("it hung"), figure()))
    assert result.exit_code == 1
    assert "it hung" in result.output
    assert "measurements failed: 1" in result.output


def test_kept_figures_are_shown_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(to_json([figure(system="pulsar")]))
    result = CliRunner().invoke(command_line.main, ["table", str(kept)])
    assert result.exit_code == 0
    assert "Pulsar" in result.output


def test_kept_figures_are_drawn(tmp_path: Path) -> None:
    kept, drawn = tmp_path / "kept.json", tmp_path / "drawn"
    kept.write_text(to_json([figure()]))
    result = CliRunner().invoke(command_line.main, ["plot", str(kept), "--out", str(drawn)])
    assert result.exit_code == 0
    assert [one.name for one in drawn.iterdir()] == ["produce.svg"]
