"""The pages of the API have no entry without a text."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import magnetar
from magnetar import dual_write

PAGES = Path(__file__).parents[2] / "docs" / "api"
_ENTRY = re.compile(r"^\.\. auto(class|exception|function|module):: (\S+)$", re.MULTILINE)
# docs/conf.py leaves them out.
NOT_SHOWN = {"from_wire", "to_wire"}


def entries() -> Iterator[tuple[str, Any]]:
    """Yield the entries of the pages, with a module's public names."""
    for page in sorted(PAGES.glob("*.md")):
        for kind, name in _ENTRY.findall(page.read_text()):
            if kind == "module":
                module = importlib.import_module(name)
                yield from ((f"{name}.{each}", getattr(module, each)) for each in module.__all__)
            else:
                package, _, attribute = name.rpartition(".")
                yield name, getattr(importlib.import_module(package), attribute)


def own_text(thing: Any) -> str:
    text = inspect.cleandoc(thing.__doc__ or "")
    name = getattr(thing, "__name__", "")
    made_by_python = dataclasses.is_dataclass(thing) and text.startswith(f"{name}(")
    return "" if made_by_python else text


def members(thing: type) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(thing):
        if name.startswith("_") or name in NOT_SHOWN:
            continue
        if not any(
            name in base.__dict__ for base in thing.__mro__ if "magnetar" in base.__module__
        ):
            continue
        if issubclass(thing, enum.Enum) and isinstance(member, enum.Enum):
            continue
        if inspect.isroutine(member) or isinstance(member, property):
            yield name, member


def test_every_entry_has_a_text() -> None:
    found = list(entries())
    assert len(found) > 100, "the pages name nothing that this test finds"
    empty = [name for name, thing in found if not own_text(thing)]
    for name, thing in found:
        if inspect.isclass(thing):
            empty += [f"{name}.{each}" for each, it in members(thing) if not inspect.getdoc(it)]
    assert empty == []


def test_the_root_of_the_sdk_is_in_the_pages() -> None:
    named = {name.rpartition(".")[2] for name, _ in entries()}
    assert [each for each in magnetar.__all__ if each not in named] == []


def examples(text: str) -> Iterator[str]:
    """Programs in a docstring: indented behind an empty line."""
    for part in re.findall(r"(?:^|\n)\n((?:(?: {4}.*)?\n?)+)", text + "\n"):
        program = textwrap.dedent(part).strip()
        if program:
            yield program


def test_programs_in_docstrings_name_what_is_there() -> None:
    """Each is Python, and calls methods that the classes of the API have, with their arguments."""
    by_variable = {
        "client": magnetar.Client,
        "consumer": magnetar.Consumer,
        "orders": magnetar.GroupConsumer,
        "writer": dual_write.DualWriter,
        "unit": dual_write.Unit,
    }
    checked = 0
    for name, thing in entries():
        texts = [own_text(thing)]
        if inspect.isclass(thing):
            texts += [inspect.getdoc(member) or "" for _, member in members(thing)]
        for program in (each for text in texts for each in examples(text)):
            tree = compile(
                program, name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            )
            for call in ast.walk(tree):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                    continue
                if not isinstance(call.func.value, ast.Name):
                    continue
                kind = by_variable.get(call.func.value.id)
                if kind is not None:
                    method = inspect.signature(getattr(kind, call.func.attr))
                    named = {each.arg: None for each in call.keywords if each.arg}
                    method.bind_partial(None, *call.args, **named)
                    checked += 1
    assert checked > 8, "the docstrings have no programs that this test finds"
