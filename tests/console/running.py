"""A real `magnetar console`, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environment import without_settings


@contextmanager
def running_console(brokers: str, log: Path, *arguments: str) -> Iterator[str]:
    """Run a console on a port that the system chooses; the value is its address, without a slash.

    Args:
        brokers: addresses of the cluster.
        log: the file for its log.
    """
    ready_file = log.with_suffix(".ready")
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "magnetar_cli", "--broker", brokers),
                *("console", "--port", "0", "--ready-file", str(ready_file)),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=without_settings(),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready: console at http://127.0.0.1:"), log.read_text()
            told = json.loads(ready_file.read_text())
            assert told["address"] == line.split()[-1]
            yield told["address"].rstrip("/")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0, log.read_text()
            assert not ready_file.exists()
            assert "Traceback" not in log.read_text(), log.read_text()
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
