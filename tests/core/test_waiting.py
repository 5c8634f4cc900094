"""A loop that waits for tasks lets the callbacks run that end the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPONENTS = (
    "core",
    "storage",
    "cluster",
    "broker",
    "kafka",
    "coordinator",
    "client",
    "console",
    "pipeline",
)


def loops_around_gather(source: str) -> Iterator[int]:
    """Lines of loops whose every wait is a gather.

    From Python 3.12 on, a gather of what is done returns without a turn of the event loop. A loop
    that goes on until done-callbacks have emptied what it gathers then never ends.
    """
    for loop in ast.walk(ast.parse(source)):
        if isinstance(loop, ast.While):
            waits = [node.value for node in ast.walk(loop) if isinstance(node, ast.Await)]
            if waits and all(ast.unparse(wait).startswith("asyncio.gather(") for wait in waits):
                yield loop.lineno


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_loop_waits_by_gather_alone(component: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / component).rglob("*.py"))
        for line in loops_around_gather(path.read_text())
    ]
    assert not found


def test_such_a_loop_would_be_found() -> None:
    source = (
        "async def close(self):\n    while self._tasks:\n        await asyncio.gather(*self._tasks)"
    )
    assert list(loops_around_gather(source)) == [2]
