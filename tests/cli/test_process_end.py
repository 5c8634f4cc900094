"""How the process of a command ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit
import sys
import threading

import {module}
from magnetar_cli import main


class Last:
    def __del__(self):
        print("taken down", flush=True)


def work():
    threading.main_thread().join()
    print("the thread")


last = Last()
atexit.register(print, "atexit")
threading.Thread(target=work).start()
sys.argv = ["magnetar", *{arguments}]
main()
"""


@pytest.mark.parametrize(("arguments", "status"), [(("--version",), 0), (("no-such-command",), 2)])
def test_no_thread_of_the_object_store_is_there_when_the_interpreter_is_taken_down(
    arguments: tuple[str, ...], status: int
) -> None:
    """It was: a command at an object store that had done its work ended with SIGABRT, one in ten
    on a busy machine.
    """
    with_threads = ended(PROGRAM.format(module="obstore", arguments=arguments))
    without = ended(PROGRAM.format(module="json", arguments=arguments))
    assert with_threads.returncode == without.returncode == status
    assert without.stdout == f"{with_threads.stdout}taken down\n"
    assert with_threads.stdout.endswith("the thread\natexit\n")
    assert with_threads.stderr == without.stderr


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
