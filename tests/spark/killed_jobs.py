"""Jobs as people start them, which are killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.sessions import kill_session
from tests.spark.conftest import environment_of_a_user


@contextmanager
def job_of_a_user(
    address: str, arguments: Sequence[str], log: Path, *, pandas: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run `magnetar pipeline ...`, which is killed at the end of the block with its JVM.

    Args:
        address: the broker's.
        log: where it writes its errors.
        pandas: whether it finds pandas.
    """
    with log.open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "magnetar_cli", "--broker", address, "pipeline", *arguments],
            env=environment_of_a_user(pandas=pandas),
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        kill_session(process)
        process.communicate()
