"""`make` with PYTHON=...: .venv is made with that program, or the message says what is wrong."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def choose(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "choose_python.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@functools.cache
def working_pythons() -> list[str]:
    command = [str(ROOT / "tools" / "find_pythons.sh")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.splitlines()


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_that_works_is_taken() -> None:
    chosen = choose(sys.executable)
    assert (chosen.returncode, chosen.stdout) == (0, f"{sys.executable}\n")


def test_without_a_name_any_that_works_is_taken() -> None:
    chosen = choose()
    assert chosen.returncode == 0, chosen.stderr
    assert choose(chosen.stdout.strip()).returncode == 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        # As pyenv's programs do for versions that are not chosen.
        ("echo 'command not found' >&2; exit 127", "PYTHON={} does not start."),
        (
            'case "$2" in *platform*) echo 3.9.2;; *) exit 1;; esac',
            "PYTHON={} is Python 3.9.2, and Magnetar needs 3.11 or later.",
        ),
        (None, "PYTHON={} was not found."),
    ],
    ids=["does not start", "too old", "absent"],
)
def test_a_program_that_is_no_use_is_named_with_the_reason(
    tmp_path: Path, script: str | None, message: str
) -> None:
    name = str(tmp_path / "python3.12")
    if script is not None:
        program(Path(name), script)
    chosen = choose(name)
    assert (chosen.returncode, chosen.stdout) == (1, "")
    assert message.format(name) in chosen.stderr
    for line in working_pythons():
        assert line.split(" ", 1)[1] in chosen.stderr, "those that work are listed"
