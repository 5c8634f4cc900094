"""`python -O` leaves assertions out: what guards correctness is none.

Allowed are assertions of a `check` method, which tests call, and those that tell the type checker
what a name is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "core",
    "storage",
    "cluster",
    "broker",
    "kafka",
    "coordinator",
    "client",
    "pipeline",
    "console",
    "cli",
    "examples",
)


def asserts(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Assert]]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = child.name
        if isinstance(child, ast.Assert):
            yield inside, child
        yield from asserts(child, inside)


def tells_a_type(one: ast.Assert) -> bool:
    match one.test:
        case ast.Compare(
            left=ast.Name() | ast.Attribute(), ops=[ast.IsNot()], comparators=[ast.Constant(None)]
        ):
            return True
        case ast.Call(func=ast.Name("isinstance"), args=[ast.Name(), *_]):
            return True
    return False


def guarding(source: str) -> list[int]:
    """Lines of assertions that a server relies on."""
    return [
        one.lineno
        for function, one in asserts(ast.parse(source))
        if function != "check" and (one.msg is not None or not tells_a_type(one))
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_assertion_guards_correctness(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in paths
        if "wire" not in path.parts
        for line in guarding(path.read_text())
    ]
    assert not found, "raise BrokenInvariant, which `python -O` keeps"


@pytest.mark.parametrize(
    ("statement", "guards"),
    [
        ("assert size > 0", True),
        ("assert not self.pending", True),
        ("assert lost_from(directory) is not None", True),
        ("assert found is not None, 'there is one'", True),
        ("assert self._task is not None", False),
        ("assert isinstance(error, MagnetarError)", False),
    ],
)
def test_what_counts_as_guarding(statement: str, guards: bool) -> None:
    assert bool(guarding(f"def work(self):\n    {statement}\n")) is guards
    assert not guarding(f"def check(self):\n    {statement}\n")


def test_no_text_is_taken_from_a_docstring() -> None:
    """Outside of examples, and of where the sources are read instead."""
    found = []
    for folder in FOLDERS[:-1]:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr == "__doc__":
                    found.append(str(path.relative_to(ROOT)))
    assert set(found) == {
        # It sets some, and reads none.
        "core/magnetar_core/errors.py",
        # Without docstrings, a schema does not say what its fields mean.
        "cli/magnetar_cli/json_schema.py",
    }
