"""Modules that say "Pure." are guarded, and guarded modules say it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPONENTS = ("core", "storage", "cluster", "broker", "coordinator", "client", "cli", "pipeline")


def guarded() -> list[str]:
    """Modules of the contract in pyproject.toml, which `make lint` checks."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in settings["contracts"] if one["name"] == "Pure modules"]
    assert set(contract["forbidden_modules"]) >= {"asyncio", "grpc", "rocksdict", "time", "random"}
    return list(contract["source_modules"])


def claims() -> dict[str, str]:
    """How modules use the word, in their docstrings."""
    found: dict[str, str] = {}
    for component in COMPONENTS:
        for path in sorted((ROOT / component).rglob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            word = re.search(r"\b[Pp]ure\b.?", text)
            if word is not None:
                parts = path.relative_to(ROOT / component).with_suffix("").parts
                found[".".join(parts).removesuffix(".__init__")] = word.group()
    return found


def test_every_module_that_says_pure_is_guarded_and_the_other_way_round() -> None:
    assert sorted(claims()) == sorted(guarded())


def test_pure_is_said_in_one_way() -> None:
    """What is pure in part says what it does instead."""
    assert set(claims().values()) == {"Pure."}


def test_none_is_guarded_twice() -> None:
    assert len(guarded()) == len(set(guarded()))
