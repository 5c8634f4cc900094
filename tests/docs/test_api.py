"""The pages of the API have no entry without a text."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "api"
_ENTRY = re.compile(r"^\.\. auto(class|exception|function|module):: (\S+)$", re.MULTILINE)
# docs/conf.py leaves them out.
NOT_SHOWN = {"from_wire", "to_wire"}


def entries() -> Iterator[tuple[str, Any]]:
    """What the pages name, a module's public names included."""
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
    magnetar = importlib.import_module("magnetar")
    named = {name.rpartition(".")[2] for name, _ in entries()}
    assert [each for each in magnetar.__all__ if each not in named] == []
