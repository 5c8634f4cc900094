"""Which histories come to the lines that a mutant changes, and in which order to try them.

A history that executes none of them takes the same steps as without the mistake.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.mutants.baseline import Baseline
from tests.mutants.histories import History
from tests.mutants.mutant import ROOT, Mutant, find
from tests.mutants.operations import FUNCTIONS

# Seeds that no baseline has.
FURTHER_SEEDS_FROM = 1_000_000
FURTHER_KINDS_MAX = 3
_PRODUCT = ("core", "storage", "cluster", "broker", "coordinator", "client")

Lines = dict[Path, set[int]]


class Choice(NamedTuple):
    """A history to run.

    Attributes:
        number: in the baseline, when it is there.
        took: told how long it ran.
    """

    history: History
    number: int | None
    took: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Reach:
    """Numbers of the baseline's histories that execute what is changed, the best ones first."""

    numbers: list[int]


def reach(mutant: Mutant, baseline: Baseline) -> Reach:
    """Those come first that take rare ways through the changed function."""
    touched = changed_lines(mutant)
    if touched is None or _is_imported(touched.changed, baseline):
        return Reach(list(range(len(baseline.ran))))
    mask = 0
    for lines in _masks(touched.changed, baseline):
        mask |= lines
    numbers = [number for number in range(len(baseline.ran)) if mask >> number & 1]
    ways = _masks(touched.around, baseline)
    groups: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        way = sum(1 << bit for bit, lines in enumerate(ways) if lines >> number & 1)
        groups[way].append(number)
    # A turn of each way, the rarest first; then the next turn.
    queues = sorted(groups.values(), key=lambda one: (len(one), one[0]))
    turns = range(max(map(len, queues), default=0))
    return Reach([queue[turn] for turn in turns for queue in queues if turn < len(queue)])


def further(there: Reach, baseline: Baseline) -> Iterator[History]:
    """Histories without end of the kinds that come there most often for their time."""
    spent: Counter[tuple[str, str]] = Counter()
    for ran in baseline.ran:
        spent[ran.history.kind, ran.history.of] += ran.cpu_seconds  # type: ignore[assignment]
    times = Counter(baseline.ran[number].history[:2] for number in there.numbers)
    rates = sorted((-times[kind] / max(spent[kind], 0.001), kind) for kind in times)
    kinds = [kind for _, kind in rates[:FURTHER_KINDS_MAX]]
    if not kinds:
        return
    for seed in count(FURTHER_SEEDS_FROM):
        for kind in kinds:
            yield History(*kind, seed)


def _is_imported(lines: Lines, baseline: Baseline) -> bool:
    """Nobody but an import executes them."""
    return not any(_masks(lines, baseline)) and any(
        not numbers.isdisjoint(baseline.imported.get(str(file.relative_to(ROOT)), ()))
        for file, numbers in lines.items()
    )


def _masks(lines: Lines, baseline: Baseline) -> list[int]:
    found = []
    for file, numbers in lines.items():
        by_line = baseline.lines.get(str(file.relative_to(ROOT)), {})
        found += [by_line[number] for number in sorted(numbers) if number in by_line]
    return found


class Touched(NamedTuple):
    """Lines that an operation touches, and those of the function around them."""

    changed: Lines
    around: Lines


def changed_lines(mutant: Mutant) -> Touched | None:
    """Lines of which every history that the mistake can concern executes one.

    For a name of a module or class: the functions that speak of it. None: nobody can say which.
    """
    tree = _tree(mutant.source)
    function = find(tree, mutant.qualified_name)
    if not isinstance(function, FUNCTIONS):
        speaking = _users(mutant.qualified_name.rpartition(".")[2])
        return None if speaking is None else Touched(speaking, speaking)
    changed: set[int] = set()
    for node in mutant.mutated.nodes:
        line = getattr(node, "lineno", None)
        found = _statement(tree, line) if line is not None else None
        if found is None or isinstance(found[0], FUNCTIONS):
            changed |= _body(function)
        else:
            changed |= found[1]
    return Touched({mutant.source: changed}, {mutant.source: _body(function)})


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _body(function: ast.stmt) -> set[int]:
    assert isinstance(function, FUNCTIONS)
    return set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))


def _function(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost one, with its header and decorators."""
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= line <= (node.end_lineno or 0) and (
                found is None or node.lineno >= found.lineno
            ):
                found = node
    return found


def _statement(tree: ast.Module, line: int) -> tuple[ast.stmt, set[int]] | None:
    """The innermost statement at a line, and those of its lines that are executed with it.

    Of one with a body these are the lines of its head.
    """
    found: ast.stmt | None = None
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            continue
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in decorators)])
        end = node.end_lineno or node.lineno
        if not first <= line <= end:
            continue
        body = getattr(node, "body", None)
        if isinstance(body, list) and line < body[0].lineno:
            end = body[0].lineno - 1
        # Who walks a tree from the top comes to inner ones later.
        if isinstance(node, ast.stmt):
            found, lines = node, set(range(first, end + 1))
        elif found is not None and line < node.body[0].lineno:
            lines = set(range(first, end + 1))
    return (found, lines) if found is not None else None


@cache
def _users(name: str) -> Lines | None:
    """Lines of the functions that speak of a name; None: a module or class does so itself."""
    result: Lines = defaultdict(set)
    for component in _PRODUCT:
        for path in (ROOT / component).rglob("*.py"):
            if "wire" in path.parts or name not in path.read_text():
                continue
            tree = _tree(path)
            for node in ast.walk(tree):
                if not _speaks(node, name):
                    continue
                line = node.value.lineno if isinstance(node, ast.keyword) else node.lineno  # type: ignore[attr-defined]
                function = _function(tree, line)
                if function is None:
                    return None
                result[path] |= _body(function)
    return dict(result)


def _speaks(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.keyword) and node.arg == name
