"""Each task, callback and timer of the SDK has an owner that answers for its death (invariant 11).

What is started otherwise than by magnetar.link.runtime ends in the log of the event loop alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import magnetar

CLIENT = Path(magnetar.__file__).parent
# What begins work that nobody waits for. The runtime has functions of the same names.
STARTING = {
    "add_done_callback",
    "call_at",
    "call_later",
    "call_soon",
    "call_soon_threadsafe",
    "create_task",
    "ensure_future",
    "run_coroutine_threadsafe",
}
OWNING = {"runtime", "deadlines", "_runtime", "_deadlines"}
# The places that start work otherwise, with the reason.
OTHERWISE = {
    "link/runtime.py": "it gives everything an owner",
    "link/deadlines.py": "one timer for all deadlines, each of which has an owner",
    "blocking/loop_thread.py": "another thread waits for the result",
    "blocking/workers.py": "it sets the result of a future, for which somebody waits",
    "dual_write/here.py": "the caller awaits the task; if that is cancelled, its failure is logged",
    "dual_write/pool.py": "a unit awaits its task; the pool ends the other, which logs failures",
    "open_client.py": "it sets a future, for which a task with an owner waits",
    "groups/processing.py": "whoever starts the task awaits or cancels it; a signal sets an event",
    "messaging/receiving/read_ahead.py": "whoever starts the task awaits or cancels it",
    "messaging/receiving/several_readings.py": "whoever starts the tasks awaits or cancels them",
}
# Servers for tests have a loop of their own, and are no part of the SDK.
MODULES = sorted(
    str(path.relative_to(CLIENT))
    for path in CLIENT.rglob("*.py")
    if not path.is_relative_to(CLIENT / "testing")
)


def started_otherwise(source: str) -> Iterator[str]:
    """The calls that start work, and do not ask the runtime to do it."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value).rpartition(".")[2]
        if node.func.attr in STARTING and owner not in OWNING:
            yield f"line {node.lineno}: {ast.unparse(node.func)}"


@pytest.mark.parametrize("module", MODULES)
def test_only_the_runtime_starts_work(module: str) -> None:
    found = list(started_otherwise((CLIENT / module).read_text()))
    if module in OTHERWISE:
        assert found, f"{module} starts nothing any more: take it from the list"
    else:
        assert not found


def test_work_without_an_owner_is_found() -> None:
    source = "self._runtime.call_soon(f)\nasyncio.get_running_loop().call_soon(f)\nt.create_task(f)"
    assert list(started_otherwise(source)) == [
        "line 2: asyncio.get_running_loop().call_soon",
        "line 3: t.create_task",
    ]
