"""A real server process with a fake component: readiness, an orderly end, and a fatal end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2
from tests.core.calls import serving_status

ROOT = Path(__file__).resolve().parents[2]


def start(directory: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fake_server", str(directory), mode],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def health(*arguments: str, port: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "magnetar_cli", "health", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "MAGNETAR_PORT": port},
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_health_is_told_by_exit_status(tmp_path: Path) -> None:
    """As a container's health check asks: in recovery, when it serves, and when it is gone."""
    process = start(tmp_path, "slow")
    assert first_line(process) == "recovering\n"
    # The server's, and that of its metrics, which does not speak gRPC.
    ports = {
        one.laddr.port
        for one in psutil.Process(process.pid).net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    }
    told = {port: health(port=str(port)) for port in ports}
    assert {status for status, _ in told.values()} == {1}
    assert [port for port, (_, text) in told.items() if f"{port} NOT_SERVING" in text]
    process.terminate()
    process.communicate(timeout=10)

    process = start(tmp_path, "plain")
    first_line(process)
    address = json.loads((tmp_path / "ready.json").read_text())["address"]
    assert health(address) == (0, f"{address} SERVING\n")
    process.terminate()
    process.communicate(timeout=10)
    status, text = health(address, "--timeout-s", "1")
    assert status == 1
    assert f"{address} does not answer" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_tells_that_it_is_ready_and_ends_in_order(tmp_path: Path, number: int) -> None:
    process = start(tmp_path, "plain")
    assert first_line(process).startswith("ready: broker fake at 127.0.0.1:")
    ready = json.loads((tmp_path / "ready.json").read_text())
    assert ready["pid"] == process.pid
    with grpc.insecure_channel(ready["address"]) as channel:
        status = serving_status(channel, "magnetar.v1.Broker")
        assert status == health_pb2.HealthCheckResponse.SERVING
    with urllib.request.urlopen(ready["metrics"], timeout=5) as reply:
        assert reply.status == 200
    process.send_signal(number)
    output, log = process.communicate(timeout=10)
    assert process.returncode == 0, log
    assert output == "closed\n"
    assert "Traceback" not in log


def test_a_supervised_server_ends_with_its_supervisor(tmp_path: Path) -> None:
    process = start(tmp_path, "supervised")
    ready = json.loads(first_line(process))
    assert ready["name"] == "fake"
    process.send_signal(signal.SIGINT)  # Ctrl-C is the supervisor's
    with grpc.insecure_channel(ready["address"]) as channel:
        for _ in range(2):
            # A signal is handled before what comes after it; who stops says so.
            status = serving_status(channel, "magnetar.v1.Broker")
            assert status == health_pb2.HealthCheckResponse.SERVING
    assert process.poll() is None
    output, log = process.communicate(timeout=10)
    assert (process.returncode, output) == (0, "closed\n"), log


def test_a_server_can_be_stopped_while_it_recovers(tmp_path: Path) -> None:
    process = start(tmp_path, "slow")
    assert first_line(process) == "recovering\n"
    process.terminate()
    output, log = process.communicate(timeout=10)
    assert (process.returncode, output) == (0, "closed\n"), log


def test_a_failed_store_ends_the_process_at_once(tmp_path: Path) -> None:
    """Rule (b): it is never retried on top of memory that ran ahead."""
    process = start(tmp_path, "fatal")
    first_line(process)
    process.send_signal(signal.SIGUSR1)
    output, log = process.communicate(timeout=10)
    assert process.returncode == 70
    assert "the disk is gone" in log
    assert output == ""
