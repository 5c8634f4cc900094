"""What operations make of a function, and what they refuse."""

from __future__ import annotations

import ast

import pytest
from tests.mutants.mutant import find
from tests.mutants.operations import (
    Always,
    Compare,
    Insert,
    LeaveOut,
    Move,
    Negate,
    Never,
    Operation,
    PlaceMissing,
    Put,
    ReturnEarly,
    Swap,
    Without,
)
from tests.mutants.operators import Sampled, places

_SOURCE = """\
def put(self, thing, *, limit=3):
    '''Put it in.'''
    if thing > limit and not self.closed:
        raise ValueError("too much")
    self.check(thing, at=1)
    self.things.append(thing)
    for one in self.others:
        one.note(thing)
    else:
        self.counted += 1
    return max(thing, limit)
"""


def _changed(operation: Operation, source: str = _SOURCE) -> set[str]:
    """Lines that are there behind it only, and with a minus those that were there before only."""
    tree = ast.parse(source)
    before = ast.unparse(tree).splitlines()
    definition = find(tree, "put")
    assert definition is not None
    assert operation.apply(definition)
    after = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
    new = {one.strip() for one in after if one not in before}
    return new | {f"- {one.strip()}" for one in before if one not in after}


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        (LeaveOut("self.check(...)"), {"- self.check(thing, at=1)"}),
        (LeaveOut("self.counted += ..."), {"- self.counted += 1", "pass"}),
        (
            LeaveOut("if thing > limit and not self.closed: ..."),
            {"- if thing > limit and (not self.closed):", "- raise ValueError('too much')"},
        ),
        (LeaveOut("raise ValueError(...)"), {"- raise ValueError('too much')", "pass"}),
        (
            Without("not self.closed"),
            {"- if thing > limit and (not self.closed):", "if thing > limit:"},
        ),
        (Without("at=..."), {"- self.check(thing, at=1)", "self.check(thing)"}),
        (
            Put("2", "max(thing, ...)"),
            {"- return max(thing, limit)", "return 2"},
        ),
        (
            Compare("thing > limit", ">="),
            {
                "- if thing > limit and (not self.closed):",
                "if thing >= limit and (not self.closed):",
            },
        ),
        (
            Negate("thing > limit"),
            {
                "- if thing > limit and (not self.closed):",
                "if thing <= limit and (not self.closed):",
            },
        ),
        (
            Negate("not self.closed"),
            {"- if thing > limit and (not self.closed):", "if thing > limit and self.closed:"},
        ),
        (
            Always("thing > limit"),
            {"- if thing > limit and (not self.closed):", "if True and (not self.closed):"},
        ),
        (
            Never("... and not self.closed"),
            {"- if thing > limit and (not self.closed):", "if False:"},
        ),
        (ReturnEarly("0", before="self.check(...)"), {"return 0"}),
        (ReturnEarly(when="self.closed"), {"if self.closed:", "return"}),
        (Insert("self.more()", after="self.check(...)"), {"self.more()"}),
        (Swap("self.check(...)", "self.things.append(...)"), set()),
        (Move("self.check(...)", after="one.note(...)"), {"self.check(thing, at=1)"}),
    ],
)
def test_operations(operation: Operation, changes: set[str]) -> None:
    found = _changed(operation)
    if isinstance(operation, Move):
        # It stands deeper now.
        assert found == changes | {f"- {change}" for change in changes}
    else:
        assert found == changes


def test_statements_change_their_places() -> None:
    tree = ast.parse(_SOURCE)
    Swap("self.check(...)", "self.things.append(...)").apply(tree.body[0])
    lines = [one.strip() for one in ast.unparse(tree).splitlines()]
    at = lines.index("self.things.append(thing)")
    assert lines[at + 1] == "self.check(thing, at=1)"


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (LeaveOut("self.nothing(...)"), "`self.nothing(...)` matches 0 places"),
        (Put("0", "thing"), "`thing` matches 5 places"),
        (Compare("self.closed", "<"), "`self.closed` is not one comparison"),
        (Without("of=..."), "`of=...` matches 0 places"),
        (Sampled("return nothing", 1), "`return nothing` has 1 places"),
    ],
)
def test_a_place_that_is_not_there_once_is_refused(operation: Operation, said: str) -> None:
    with pytest.raises(PlaceMissing) as failure:
        _changed(operation)
    assert str(failure.value) == said


def test_operators_have_places() -> None:
    definition = ast.parse(_SOURCE).body[0]
    found = sorted(name for name, _ in places(definition))
    assert found == [
        "call the neighbour",
        "call the neighbour",
        "count one more",
        "count one more",
        "forget an argument",
        "forget an operand",
        "forget an operand",
        "leave a statement out",
        "leave a statement out",
        "leave a statement out",
        "leave a statement out",
        "leave a statement out",
        "move a bound by one",
        "return nothing",
        "turn a comparison round",
        "turn a condition round",
    ]
    for name in sorted(set(found)):
        for place in range(found.count(name)):
            assert _changed(Sampled(name, place)), (name, place)
