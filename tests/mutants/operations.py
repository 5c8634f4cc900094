"""Operations on the syntax tree of one function, each of which makes a mistake.

An operation says its place by a pattern: an expression or the beginning of a statement in Python,
in which `...` stands for anything: `self._check(...)`, `raise Gone(...)`, `if timeout_ms: ...`,
`self.next_index += ...`. The place must be there exactly once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

_T = TypeVar("_T")
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    "is": ast.Is,
    "is not": ast.IsNot,
    "in": ast.In,
    "not in": ast.NotIn,
}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class PlaceMissing(Exception):
    """The place of an operation is not there exactly once."""


class Operation(Protocol):
    """Changes the syntax tree of a definition."""

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        """Change it in place; the nodes that are concerned, with the lines of the source.

        The definition itself: all of it is concerned.

        Raises:
            PlaceMissing: a pattern fits no place, or several.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """The statement of the pattern is forgotten."""

    pattern: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        place = _statement(scope, self.pattern)
        node = place.node
        _remove(place)
        return [node]


@dataclass(frozen=True, slots=True)
class Without:
    """A part is forgotten: an operand of `and` or `or`, an element of a display, an argument.

    Attributes:
        pattern: of the part; `name=...` for an argument that is given by its name.
    """

    pattern: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        place = _part(scope, self.pattern)
        node, parent = place.node, place.parent
        del place.items[place.index]
        if isinstance(parent, ast.Dict):
            del parent.keys[place.index]
        if isinstance(parent, ast.BoolOp) and len(parent.values) == 1:
            _replace(scope, parent, parent.values[0])
        return [node]


@dataclass(frozen=True, slots=True)
class Put:
    """An expression stands in the place of another one."""

    expression: str
    instead_of: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        node = _expression(scope, self.instead_of)
        _replace(scope, node, _parse_expression(self.expression))
        return [node]


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison has another operator."""

    pattern: str
    operator: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        node = _expression(scope, self.pattern)
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            raise PlaceMissing(f"`{self.pattern}` is not one comparison")
        node.ops = [_COMPARISONS[self.operator]()]
        return [node]


@dataclass(frozen=True, slots=True)
class Negate:
    """A condition is the wrong way round."""

    pattern: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        node = _expression(scope, self.pattern)
        _replace(scope, node, opposite(node))
        return [node]


@dataclass(frozen=True, slots=True)
class Always:
    """A condition is not looked at, and counts as true."""

    pattern: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        return Put("True", self.pattern).apply(scope)


@dataclass(frozen=True, slots=True)
class Never:
    """A condition is not looked at, and counts as false."""

    pattern: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        return Put("False", self.pattern).apply(scope)


@dataclass(frozen=True, slots=True)
class ReturnEarly:
    """The function returns at once, or before the statement of the pattern.

    Attributes:
        when: under this condition only.
    """

    value: str = ""
    before: str = ""
    when: str = ""

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        statement = f"return {self.value}".rstrip()
        if self.when:
            statement = f"if {self.when}: {statement}"
        return Insert(statement, before=self.before).apply(scope)


@dataclass(frozen=True, slots=True)
class Insert:
    """A statement is there too much: before or behind another one, or as the first one."""

    statement: str
    before: str = ""
    after: str = ""

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        (statement,) = ast.parse(self.statement).body
        if self.before or self.after:
            place = _statement(scope, self.before or self.after)
            place.body.insert(place.index + (0 if self.before else 1), statement)
            return [scope]
        if not isinstance(scope, FUNCTIONS):
            raise PlaceMissing("only a function has a first statement")
        scope.body.insert(1 if ast.get_docstring(scope, clean=False) is not None else 0, statement)
        return [scope]


@dataclass(frozen=True, slots=True)
class Swap:
    """Two statements change their places."""

    first: str
    second: str

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        one, other = _statement(scope, self.first), _statement(scope, self.second)
        nodes = [one.node, other.node]
        other.body[other.index], one.body[one.index] = nodes
        return list(nodes)


@dataclass(frozen=True, slots=True)
class Move:
    """A statement stands in another place: before or behind another one."""

    pattern: str
    before: str = ""
    after: str = ""

    def apply(self, scope: ast.stmt) -> list[ast.AST]:
        place = _statement(scope, self.pattern)
        other = _statement(scope, self.before or self.after)
        node, target = place.node, other.node
        _remove(place)
        index = other.body.index(target) + (0 if self.before else 1)
        other.body.insert(index, node)
        return [node, target]


def opposite(node: ast.expr) -> ast.expr:
    """The negation, as somebody would write it."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _OPPOSITES[type(node.ops[0])]()
        return ast.Compare(left=node.left, ops=[other], comparators=node.comparators)
    return ast.UnaryOp(op=ast.Not(), operand=node)


@dataclass(frozen=True, slots=True)
class Place:
    """Of a statement in a body."""

    body: list[ast.stmt]
    index: int

    @property
    def node(self) -> ast.stmt:
        return self.body[self.index]


@dataclass(frozen=True, slots=True)
class _Part:
    parent: ast.AST
    items: list[ast.AST]
    index: int

    @property
    def node(self) -> ast.AST:
        return self.items[self.index]


def statements(scope: ast.AST) -> Iterator[Place]:
    """All below a definition, each where it stands."""
    for node in ast.walk(scope):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield from (Place(body, index) for index in range(len(body)))


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Those of a statement itself, without those of statements in its bodies."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        if isinstance(child, ast.expr):
            yield child
        yield from expressions(child)


def _statement(scope: ast.stmt, pattern: str) -> Place:
    wanted = parse_pattern(pattern)
    if isinstance(wanted, ast.stmt):
        found = [one for one in statements(scope) if matches(wanted, one.node)]
    else:
        found = [
            one
            for one in statements(scope)
            if any(matches(wanted, part) for part in expressions(one.node))
        ]
    return _single(found, pattern)


def _remove(place: Place) -> None:
    del place.body[place.index]
    if not place.body:
        place.body.append(ast.Pass())


def _expression(scope: ast.stmt, pattern: str) -> ast.expr:
    wanted = parse_pattern(pattern)
    found = [one for one in ast.walk(scope) if isinstance(one, ast.expr) and matches(wanted, one)]
    return _single(found, pattern)


def _part(scope: ast.stmt, pattern: str) -> _Part:
    name = pattern.removesuffix("=...")
    wanted = None if name != pattern else parse_pattern(pattern)
    found = []
    for parent in ast.walk(scope):
        for field in ("values", "elts", "args", "keywords", "type_params", "decorator_list"):
            items = getattr(parent, field, None)
            if not isinstance(items, list):
                continue
            for index, item in enumerate(items):
                if wanted is None:
                    fits = isinstance(item, ast.keyword) and item.arg == name
                else:
                    fits = matches(wanted, item)
                if fits:
                    found.append(_Part(parent, items, index))
    return _single(found, pattern)


def _single(found: list[_T], pattern: str) -> _T:
    if len(found) != 1:
        raise PlaceMissing(f"`{pattern}` matches {len(found)} places")
    return found[0]


def _replace(scope: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
                return
            if isinstance(value, list):
                for index, item in enumerate(value):
                    if item is old:
                        value[index] = new
                        return
    raise AssertionError("the node is not below the definition")


def _parse_expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def parse_pattern(text: str) -> ast.expr | ast.stmt:
    """An expression, or a statement."""
    (statement,) = ast.parse(text).body
    return statement.value if isinstance(statement, ast.Expr) else statement


def _is_anything(pattern: object) -> bool:
    if isinstance(pattern, ast.Expr):
        pattern = pattern.value
    return isinstance(pattern, ast.Constant) and pattern.value is ...


def matches(pattern: object, node: object) -> bool:
    """Whether a node, or a field of one, is what the pattern says."""
    if _is_anything(pattern):
        return node is not None
    if isinstance(pattern, list):
        if not isinstance(node, list):
            return False
        if pattern and _is_anything(pattern[-1]):
            pattern, node = pattern[:-1], node[: len(pattern) - 1]
        return len(pattern) == len(node) and all(map(matches, pattern, node))
    if type(pattern) is not type(node):
        return False
    if not isinstance(pattern, ast.AST):
        return pattern == node
    # What follows `...` in a call are arguments of any name; behind a body there may be an else.
    left_out = {"ctx", "type_comment", "kind"}
    if isinstance(pattern, ast.Call) and pattern.args and _is_anything(pattern.args[-1]):
        left_out.add("keywords")
    body = getattr(pattern, "body", None)
    if isinstance(pattern, ast.stmt) and body and _is_anything(body[-1]):
        left_out |= {"orelse", "finalbody", "handlers"}
    return all(
        matches(value, getattr(node, field))
        for field, value in ast.iter_fields(pattern)
        if field not in left_out
    )
