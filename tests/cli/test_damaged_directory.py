"""A data directory that is damaged, or gone: the server says what to do, and doing that helps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.running import MAGNETAR, Standalone, running_standalone

from magnetar_cli.errors import STATUS_OF_KIND
from magnetar_core.error_kinds import ErrorKind

pytestmark = pytest.mark.chaos


def produced(standalone: Standalone, topic: str) -> None:
    standalone.run("topics", "create", topic)
    standalone.run("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(20)))


def copied(directory: Path, standalone: Path) -> Path:
    """The data as a kill would leave it."""
    (directory / "copy").mkdir()
    shutil.copytree(
        standalone / "data", directory / "copy" / "data", ignore=shutil.ignore_patterns("LOCK")
    )
    return directory / "copy"


def magnetar(*arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [*MAGNETAR, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_log_that_was_cut_short_is_refused_until_somebody_accepts_the_loss(
    tmp_path: Path,
) -> None:
    with running_standalone(tmp_path) as standalone:
        produced(standalone, "before")
        produced(standalone, "after")
        copy = copied(tmp_path, tmp_path)
    broker = copy / "data" / "broker"
    log = max(broker.glob("*.log"), key=lambda file: file.name)
    os.truncate(log, log.stat().st_size - 1)

    refusal = magnetar("standalone", "--data-dir", str(copy / "data"), "--port", "0", status=1)
    assert "can be read up to byte" in refusal
    assert f"magnetar storage accept-loss {broker.resolve()}" in refusal
    assert "was synced up to byte" in magnetar("storage", "accept-loss", "--dry-run", str(broker))
    assert "kept-1" in magnetar("storage", "accept-loss", "--yes", str(broker))
    assert "nothing is missing" in magnetar("storage", "accept-loss", "--yes", str(broker))

    with running_standalone(copy) as standalone:
        assert standalone.json("topics", "describe", "before")["partitions"][0]["ledger_id"] == 2
        consumed = standalone.lines("consume", "before", "--until-end")
        assert consumed == [str(number) for number in range(20)]
        produced(standalone, "anew")
        skipped = standalone.run("topics", "skip-damaged", "anew", "--yes")
        assert b"everything can be read" in skipped.stdout + skipped.stderr


def test_a_file_of_values_that_is_missing_is_refused_until_a_person_accepts_the_loss(
    tmp_path: Path,
) -> None:
    with running_standalone(tmp_path) as standalone:
        produced(standalone, "small")
        standalone.run("topics", "create", "large")
        standalone.run("produce", "large", stdin=b"x" * 5_000 + b"\n")
        copy = copied(tmp_path, tmp_path)
    broker = copy / "data" / "broker"
    (broker / "000001.values").unlink()

    refusal = magnetar("standalone", "--data-dir", str(copy / "data"), "--port", "0", status=1)
    assert "000001.values is missing" in refusal
    assert f"magnetar storage accept-loss {broker.resolve()}" in refusal
    assert "000001.values is missing" in magnetar("storage", "accept-loss", "--yes", str(broker))
    assert "nothing is missing" in magnetar("storage", "accept-loss", "--yes", str(broker))

    with running_standalone(copy) as standalone:
        assert standalone.json("topics", "describe", "small")["partitions"][0]["ledger_id"] == 2
        consumed = standalone.lines("consume", "small", "--until-end")
        assert consumed == [str(number) for number in range(20)]
        said = standalone.run(
            "consume", "large", "--until-end", status=STATUS_OF_KIND[ErrorKind.DATA_LOST]
        )
        assert b"skip-damaged" in said.stderr
        standalone.run("topics", "skip-damaged", "large", "--yes")
        produced(standalone, "anew")
        standalone.run("produce", "large", stdin=b"more\n")
        assert standalone.lines("consume", "large", "--until-end") == ["more"]


def test_a_broker_whose_directory_has_vanished_serves_nobody(tmp_path: Path) -> None:
    with running_standalone(tmp_path) as standalone:
        produced(standalone, "before")
        copy = copied(tmp_path, tmp_path)
    broker = copy / "data" / "broker"
    shutil.rmtree(broker)
    with running_standalone(copy) as standalone:
        refusal = standalone.run("topics", "list", status=10).stderr.decode()
        assert "store is empty" in refusal
    assert "accept-loss --everything" in (copy / "log").read_text()
    magnetar("storage", "accept-loss", "--everything", "--yes", str(broker))
    with running_standalone(copy) as standalone:
        produced(standalone, "anew")
        assert len(standalone.lines("consume", "anew", "--until-end")) == 20
