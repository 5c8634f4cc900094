"""Servers are gone when their block ends, with all that they started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from benchmarks.peers import processes
from benchmarks.peers.processes import (
    NotRunning,
    Process,
    ended_by_signals,
    free_ports,
    has_ended,
    listens,
    running,
)

WITHIN_S = 30.0


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def said(log: Path, count: int = 1) -> bool:
    return log.read_text().count("\n") >= count


def test_a_server_ends_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(shell("sleep 1000 & echo $!; wait"), log) as process:
        process.wait_until(lambda: said(log), WITHIN_S)
        pids = [process.pid, int(log.read_text())]
        assert all(map(psutil.pid_exists, pids))
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], WITHIN_S)
    assert not any(map(psutil.pid_exists, pids))


def test_a_server_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TERMINATE_WITHIN_S", 0.1)
    log = tmp_path / "log"
    process = Process(shell("trap '' TERM; echo ready; while :; do sleep 1; done"), log)
    process.wait_until(lambda: said(log), WITHIN_S)
    process.stop()
    assert process.status() == -signal.SIGKILL


def test_a_server_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = Process(shell("echo no such disk; exit 3"), tmp_path / "log")
    with pytest.raises(NotRunning, match=r"status 3:\nno such disk"):
        process.wait_until(lambda: False, WITHIN_S)


def test_a_server_that_is_never_ready_is_not_waited_for(tmp_path: Path) -> None:
    with (
        running(shell("sleep 1000"), tmp_path / "log") as process,
        pytest.raises(NotRunning, match="not ready after 0 s"),
    ):
        process.wait_until(lambda: False, 0.0)


def test_a_killed_server_has_ended_when_the_call_returns(tmp_path: Path) -> None:
    process = Process(shell("sleep 1000"), tmp_path / "log")
    process.check()
    process.kill()
    with pytest.raises(NotRunning, match="status -9"):
        process.check()


def test_a_process_has_ended_before_its_parent_knows() -> None:
    process = subprocess.Popen(shell("read line"), stdin=subprocess.PIPE)
    assert not has_ended(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(process.pid)
    process.communicate()
    assert has_ended(process.pid)


def test_ports_differ_and_nobody_listens_there() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert not any(map(listens, ports))
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listens(server.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_block_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt, match=number.name), ended_by_signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
