"""The calibration, the processes of a round, and profiles."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from benchmarks.quick import calibration
from benchmarks.quick.child import ChildFailed, lines_of
from benchmarks.quick.circumstances import commit, figures_of
from benchmarks.quick.profiles import Top, section, tops
from benchmarks.quick.round import from_line, to_line
from benchmarks.servers import cpu_s
from tests.quick.figures import measured

STACKS = """\
run (runner.py);work (work.py);send (client.py) 6
run (runner.py);work (work.py) 2
run (runner.py);work (work.py);send (client.py);work (work.py) 2
"""


def test_a_pass_is_the_same_work_everywhere() -> None:
    assert calibration.one_pass() == calibration.CHECKSUM


def test_calibration_is_the_median_of_its_passes() -> None:
    times: Iterator[float] = iter([0.0, 1.0, 10.0, 13.0, 20.0, 29.0])
    found = calibration.pass_s(3, work=lambda: calibration.CHECKSUM, clock=lambda: next(times))
    assert found == 3.0


def test_calibration_notices_that_it_does_something_else() -> None:
    with pytest.raises(AssertionError, match="not what it was: 0"):
        calibration.pass_s(work=lambda: 0)


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_during_calibration(enabled: bool) -> None:
    seen: list[bool] = []

    def work() -> int:
        seen.append(gc.isenabled())
        return calibration.CHECKSUM

    was_enabled = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        calibration.pass_s(2, work=work)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert seen == [False, False]


def test_the_processor_time_of_a_process_is_what_its_own_clock_says() -> None:
    before_s = time.process_time()
    found_s = cpu_s(os.getpid())
    assert before_s - 0.01 <= found_s <= time.process_time() + 0.01


def test_the_processor_time_of_a_process_that_is_gone_is_an_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises((OSError, psutil.NoSuchProcess)):
        cpu_s(process.pid)


def test_what_a_round_says_is_what_it_measured() -> None:
    assert from_line(to_line(measured())) == measured()


def module(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that a child finds."""
    (directory / "said_by_a_child.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    return "said_by_a_child"


def test_a_child_says_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, "import sys\nprint(*sys.argv[1:], sep='\\n')", monkeypatch)
    assert list(lines_of(name, "one", "two")) == ["one\n", "two\n"]


def test_a_child_that_fails_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module(tmp_path, "print('one')\nraise SystemExit('the last words')", monkeypatch)
    said = lines_of(name)
    assert next(said) == "one\n"
    with pytest.raises(ChildFailed, match="status 1:\nthe last words"):
        next(said)


def test_a_child_that_nobody_listens_to_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has servers to end, and a directory to remove."""
    text = """\
import os, sys, time
from benchmarks.peers.processes import ended_by_signals
with ended_by_signals():
    try:
        print(os.getpid(), flush=True)
        while True:
            time.sleep(0.05)
    except KeyboardInterrupt:
        open(sys.argv[1], "w").write("removed")
"""
    ended = tmp_path / "ended"
    said = lines_of(module(tmp_path, text, monkeypatch), str(ended))
    pid = int(next(said))
    said.close()
    assert ended.read_text() == "removed"
    assert not psutil.pid_exists(pid)


def test_figures_say_where_they_come_from() -> None:
    found = figures_of([[measured(calibration_s=0.01)], [measured(calibration_s=0.03)]])
    assert found.calibration_ms == pytest.approx(20.0)
    assert found.cores == os.cpu_count()
    assert found.python.endswith(sys.version.split()[0])
    assert found.workloads == ["produce-100"]


def test_the_commit_says_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=one", "-c", "user.email=one@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    assert commit(tmp_path / "nowhere") == "unknown"
    git("init", "--quiet")
    file = tmp_path / "file"
    file.write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    clean = commit(tmp_path)
    file.write_text("two")
    assert commit(tmp_path) == f"{clean} with changes"
    assert " " not in clean


def test_the_top_functions_of_stacks() -> None:
    """A function that calls itself counts once."""
    assert tops(STACKS) == [
        Top(function="send (client.py)", own=0.6, total=0.8),
        Top(function="work (work.py)", own=0.4, total=1.0),
        Top(function="run (runner.py)", own=0.0, total=1.0),
    ]


def test_a_process_that_did_nothing_has_no_top() -> None:
    assert tops("") == []


def test_a_page_of_the_top() -> None:
    page = section("produce-100", {"client": 0.75}, {"client": STACKS})
    assert "takes 75% of its processor time" in page
    assert "| 60.0 | 80.0 | send (client.py) |" in page
