"""Thirteen ordinary mistakes, each of which can be made in many places of any function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.mutants.operations import FUNCTIONS, PlaceMissing, opposite

# Only people read what these write.
_SILENT_CALLS = ("debug", "info", "warning", "error", "exception", "log")
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SWAPPED |= {"append": "appendleft", "popleft": "pop", "add": "discard", "discard": "add"}

# What a definition says of itself.
_UNCALLED = ("decorator_list", "annotation", "returns", "type_params", "args")

# Changes a place of a definition, and returns the node that is concerned.
Change = Callable[[], ast.AST]


def places(scope: ast.stmt) -> Iterator[tuple[str, Change]]:
    """All places of a function at which an operator can be used, in the order of the source.

    Those of functions within it are left out: they are places of these.
    """
    for parent, field, index, node in list(_nodes(scope)):
        for name, new in _expressions(node):
            yield name, _replacing(parent, field, index, node, new)
        if isinstance(node, ast.Call):
            yield from _arguments(node)
        if isinstance(node, ast.stmt):
            yield from _statements(parent, field, index, node)


@dataclass(frozen=True, slots=True)
class Sampled:
    """An operator at one of its places in a function, counted from 0."""

    operator: str
    place: int

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        changes = [change for name, change in places(scope) if name == self.operator]
        if self.place >= len(changes):
            raise PlaceMissing(f"`{self.operator}` has {len(changes)} places")
        return [changes[self.place]()]


def _nodes(
    scope: ast.AST,
) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(scope):
        if field in _UNCALLED and not isinstance(scope, ast.Call):
            continue
        items = value if isinstance(value, list) else [value]
        for at, item in enumerate(items):
            if not isinstance(item, ast.AST) or _is_silent(item):
                continue
            if isinstance(item, (*FUNCTIONS, ast.ClassDef, ast.JoinedStr)):
                continue
            yield scope, field, at if isinstance(value, list) else None, item
            yield from _nodes(item)


def _is_silent(node: ast.AST) -> bool:
    """A docstring or a log line."""
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if isinstance(call, ast.Constant):
        return True
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _SILENT_CALLS
    )


def _replacing(
    parent: ast.AST, field: str, index: int | None, node: ast.AST, new: Callable[[], ast.AST]
) -> Change:
    def change() -> ast.AST:
        if index is None:
            setattr(parent, field, new())
        else:
            getattr(parent, field)[index] = new()
        return node

    return change


def _expressions(node: ast.AST) -> Iterator[tuple[str, Callable[[], ast.AST]]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _BOUNDS.get(type(node.ops[0]))
        if other is not None:
            yield "move a bound by one", lambda: _compare(node, other())
        else:
            yield "turn a comparison round", lambda: opposite(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "turn a comparison round", lambda: node.operand
    if isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            yield "forget an operand", lambda at=at: _operands(node, at)  # type: ignore[misc]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        operator = _ARITHMETIC[type(node.op)]
        yield (
            "swap an operator",
            lambda: ast.BinOp(left=node.left, op=operator(), right=node.right),
        )
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield "turn a constant round", lambda: ast.Constant(value=not value)
        elif isinstance(value, int | float):
            yield "count one more", lambda: ast.Constant(value=value + 1)
    if isinstance(node, ast.IfExp):
        yield "take the other branch", lambda: node.orelse
    if isinstance(node, ast.comprehension) and node.ifs:
        yield "forget a filter", lambda: _unfiltered(node)


def _arguments(node: ast.Call) -> Iterator[tuple[str, Change]]:
    function = node.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in _SWAPPED:
        yield "call the neighbour", lambda: _renamed(node, _SWAPPED[name])
    for at, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "forget an argument", lambda at=at: _drop(node.keywords, at, node)  # type: ignore[misc]


def _statements(
    parent: ast.AST, field: str, index: int | None, node: ast.stmt
) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.If | ast.While) and not isinstance(
        node.test, ast.Compare | ast.Constant | ast.UnaryOp
    ):
        yield (
            "turn a condition round",
            _replacing(node, "test", None, node.test, lambda: opposite(node.test)),
        )
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Delete | ast.Raise):
        yield "leave a statement out", _replacing(parent, field, index, node, ast.Pass)
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
        yield "leave a statement out", _replacing(parent, field, index, node, ast.Pass)
    if isinstance(node, ast.Return) and _is_something(node.value):
        yield (
            "return nothing",
            _replacing(node, "value", None, node, lambda: ast.Constant(value=None)),
        )
    if isinstance(node, ast.Break | ast.Continue):
        yield "leave a statement out", _replacing(parent, field, index, node, ast.Pass)


def _is_something(value: ast.expr | None) -> bool:
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def _compare(node: ast.Compare, operator: ast.cmpop) -> ast.Compare:
    return ast.Compare(left=node.left, ops=[operator], comparators=node.comparators)


def _operands(node: ast.BoolOp, at: int) -> ast.expr:
    left = [one for index, one in enumerate(node.values) if index != at]
    return left[0] if len(left) == 1 else ast.BoolOp(op=node.op, values=left)


def _unfiltered(node: ast.comprehension) -> ast.comprehension:
    return ast.comprehension(
        target=node.target, iter=node.iter, ifs=node.ifs[1:], is_async=node.is_async
    )


def _renamed(node: ast.Call, name: str) -> ast.AST:
    if isinstance(node.func, ast.Attribute):
        node.func.attr = name
    elif isinstance(node.func, ast.Name):
        node.func.id = name
    return node


def _drop(items: list[ast.keyword], at: int, node: ast.AST) -> ast.AST:
    del items[at]
    return node
