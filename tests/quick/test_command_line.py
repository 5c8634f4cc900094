"""`python -m benchmarks.quick`: what it shows, keeps and returns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from benchmarks.quick import __main__ as command_line
from benchmarks.quick.child import ChildFailed
from benchmarks.quick.figures import PROCESSES, Measured
from benchmarks.quick.kept import from_json
from benchmarks.quick.recording import stacks_file
from benchmarks.quick.work import WORKLOADS
from click.testing import CliRunner, Result
from tests.quick.figures import measured

ROOT = Path(__file__).parents[2]
ONE = ("--only", "produce-100")
# A message or two of each workload.
LITTLE = ("--share", "0.0001")


class Rounds:
    """Stands for `run_round`: each round is slower than the first by its factor."""

    def __init__(self, *factors: float) -> None:
        self.factors = list(factors)
        self.asked: list[list[str]] = []

    def run_round(
        self,
        names: Sequence[str],
        *,
        share: float,
        data_dir: Path | None,
        on_measured: Callable[[Measured], None],
    ) -> list[Measured]:
        self.asked.append(list(names))
        slow = self.factors.pop(0)
        found = [measured(name, cpu_s=(0.3 * slow, 0.2 * slow, 0.1 * slow)) for name in names]
        for one in found:
            on_measured(one)
        return found


def ran(monkeypatch: pytest.MonkeyPatch, rounds: Rounds, *arguments: str) -> Result:
    monkeypatch.setattr(command_line, "run_round", rounds.run_round)
    return CliRunner().invoke(command_line.main, arguments)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The figures of five even rounds."""
    file = tmp_path / "kept.json"
    found = ran(monkeypatch, Rounds(*[1.0] * 5), "--kept", str(file), "--keep")
    assert found.exit_code == 0, found.output
    assert f"Kept in {file}." in found.output
    assert "No figures are kept" not in found.output
    return file


def test_help_lists_the_workloads() -> None:
    found = CliRunner().invoke(command_line.main, ["--help"])
    assert found.exit_code == 0
    for name, workload in WORKLOADS.items():
        (line,) = [one for one in found.output.splitlines() if one.split()[:1] == [name]]
        assert line.endswith(workload.about)


def test_what_is_kept_is_compared_with(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(*[1.0] * 5)
    found = ran(monkeypatch, rounds, "--kept", str(kept))
    assert found.exit_code == 0
    assert "Nothing moved." in found.output
    assert rounds.asked == [list(WORKLOADS)] * 5


def test_something_slower_fails(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(monkeypatch, Rounds(1.3, 1.4, 1.5), "--kept", str(kept), *ONE, "--rounds", "3")
    assert found.exit_code == 1
    assert "slower: produce-100: client 1.40" in found.output


def test_something_faster_does_not_fail(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(monkeypatch, Rounds(0.5, 0.5, 0.5), "--kept", str(kept), *ONE, "--rounds", "3")
    assert found.exit_code == 0
    assert "faster: produce-100: client 0.50" in found.output


def test_the_limit_can_be_chosen(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--kept", str(kept), *ONE, "--rounds", "3")
    for limit, status in (("30", 1), ("50", 0)):
        rounds = Rounds(1.3, 1.4, 1.5)
        assert ran(monkeypatch, rounds, *options, "--limit-percent", limit).exit_code == status


def test_without_kept_figures_it_says_how_to_keep_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.json"
    found = ran(monkeypatch, Rounds(9.0, 9.0, 9.0), "--kept", str(file), *ONE, "--rounds", "3")
    assert found.exit_code == 0
    assert "--keep keeps those of a run" in found.output
    assert not file.exists()


def test_comparing_keeps_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.read_bytes()
    ran(monkeypatch, Rounds(2.0, 2.0, 2.0), "--kept", str(kept), *ONE, "--rounds", "3")
    assert kept.read_bytes() == before


def test_keeping_replaces_figures_of_another_format(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write_text('{"format": 0}')
    found = ran(monkeypatch, Rounds(*[1.0] * 5), "--kept", str(kept), "--keep")
    assert found.exit_code == 0
    assert from_json(kept.read_text()).workloads[: len(WORKLOADS)] == list(WORKLOADS)


def test_unusable_figures_are_told_before_anything_is_measured(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write_text('{"format": 0}')
    rounds = Rounds()
    found = ran(monkeypatch, rounds, "--kept", str(kept))
    assert found.exit_code == 2
    assert "has format 0" in found.output
    assert rounds.asked == []


@pytest.mark.parametrize("option", [ONE, ("--rounds", "2"), LITTLE, ("--profile", "there")])
def test_only_whole_runs_are_kept(
    option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.json"
    rounds = Rounds()
    found = ran(monkeypatch, rounds, "--kept", str(file), "--keep", *option)
    assert found.exit_code == 2
    assert rounds.asked == []
    assert not file.exists()


def test_less_work_is_not_judged(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(monkeypatch, Rounds(9.0, 9.0, 9.0), "--kept", str(kept), "--rounds", "3", *LITTLE)
    assert found.exit_code == 0
    assert "not judged" in found.output


def test_a_workload_that_is_gone_is_told(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.write_text(kept.read_text().replace("produce-1024", "produce-2048"))
    found = ran(monkeypatch, Rounds(1.0, 1.0, 1.0), "--kept", str(kept), "--rounds", "3", *ONE)
    assert "no longer measured: produce-2048." in found.output


def test_json_has_all_rows(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--kept", str(kept), "--rounds", "3", *ONE, "--json")
    found = ran(monkeypatch, Rounds(2.0, 2.0, 2.0), *options)
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert [row["measure"] for row in told["rows"]] == [*PROCESSES, "all three"]
    assert {row["verdict"] for row in told["rows"]} == {"slower"}
    assert told["kept"]["rows"]["produce-100"]["client"] == [3.0] * 5
    assert told["today"]["rows"]["produce-100"]["client"] == [6.0] * 3


def test_a_round_that_fails_is_no_verdict(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds()

    def fail(*_: object, **__: object) -> list[Measured]:
        raise ChildFailed("its last words")

    monkeypatch.setattr(rounds, "run_round", fail)
    found = ran(monkeypatch, rounds, "--kept", str(kept))
    assert found.exit_code == 2
    assert "its last words" in found.output


def real(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_real_round_of_a_little_work(tmp_path: Path) -> None:
    """The servers are real; their speed is not checked."""
    nowhere = tmp_path / "kept.json"
    found = real("--rounds", "1", *LITTLE, "--kept", str(nowhere), "--json")
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert {row["workload"] for row in told["rows"]} >= {*WORKLOADS}
    for name in WORKLOADS:
        row = told["today"]["rows"][name]
        for process in PROCESSES[:2]:
            assert row[process][0] > 0
    assert "workloads (100 %), produce-1024" in found.stderr


def may_look(profiler: str) -> bool:
    """Whether py-spy may look at processes here."""
    found = subprocess.run(
        [profiler, "dump", "--pid", str(os.getpid())], capture_output=True, check=False
    )
    return found.returncode == 0


def test_a_real_profile(tmp_path: Path) -> None:
    profiler = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    assert profiler is not None
    if not may_look(profiler):
        pytest.skip("py-spy may not look at processes here")
    found = real("--only", "transactions-1", "--share", "0.01", "--profile", str(tmp_path))
    assert found.returncode == 0, found.stderr
    for process in PROCESSES:
        assert stacks_file(tmp_path, "transactions-1", process).exists()
    page = (tmp_path / "top.md").read_text()
    assert page.startswith("## transactions-1: small transactions, one at once")
    assert page in found.stdout
