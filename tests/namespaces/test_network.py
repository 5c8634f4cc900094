"""Namespaces lose packets in the direction that they are told, and leave nothing behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.namespaces import network
from tests.namespaces.services import ROOT, environment


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    reason = network.missing()
    if reason:
        pytest.skip(reason)


def test_all_processes_go_with_the_one_that_was_started() -> None:
    # Whatever runs inside has the pipe open.
    run = subprocess.Popen(
        network.inside("sh", "-c", "sleep 3600 & echo started; wait"), stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    with run.stdout as said:
        assert said.readline() == b"started\n"
        run.kill()
        run.wait()
        assert said.read() == b""


def test_a_cut_loses_what_goes_one_way_or_both_ways() -> None:
    done = subprocess.run(
        network.inside(sys.executable, "-m", "tests.namespaces.cuts"),
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        # Which of the machine's own packets arrive, and which of the other's.
        "before: out True, in True",
        "hears nothing: out True, in False",
        "says nothing: out False, in True",
        "cut off: out False, in False",
        "cut off from another: out True, in True",
        "healed: out True, in True",
    ]


def test_a_program_with_a_tmp_of_its_own_may_lie_in_the_other(tmp_path: Path) -> None:
    """As with an environment that somebody tries in /tmp."""
    program = shutil.copy("/bin/ls", tmp_path / "program")
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "kept").touch()
    listing = network.with_own_tmp(tmp_path / "volume", [str(program), "/tmp", network.OWN_VOLUME])
    # As a run has it: its /run is nobody else's.
    own_run = ("sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh")
    done = subprocess.run(
        network.inside(*own_run, *listing), capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [f"{network.OWN_VOLUME}:", "kept", "/tmp:"], done.stderr
