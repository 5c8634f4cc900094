"""`make lint` guards every module and room that says "Pure.", and the word is used in one way."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from pure_contract import pure_modules

ROOT = Path(__file__).parents[2]
COMPONENTS = (
    "core",
    "storage",
    "cluster",
    "broker",
    "kafka",
    "coordinator",
    "client",
    "cli",
    "console",
    "pipeline",
)
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


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


def test_every_module_and_room_that_says_pure_is_guarded() -> None:
    (contract,) = [one for one in SETTINGS["contracts"] if one["type"] == "pure"]
    assert set(contract["forbidden_modules"]) >= {"asyncio", "grpc", "rocksdict", "time", "random"}
    assert sorted(claims()) == pure_modules(SETTINGS["root_packages"])
    assert {"magnetar_coordinator.metadata", "magnetar_broker.topics.topic_directory"} <= set(
        claims()
    )


def test_pure_is_said_in_one_way() -> None:
    """What is pure in part says what it does instead."""
    assert set(claims().values()) == {"Pure."}


def lint(folder: Path, sources: dict[str, str]) -> str:
    """What the contract says of a package with these modules."""
    for name, source in {"__init__": "", **sources}.items():
        path = folder / "sample" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    config = folder / "contracts.toml"
    config.write_text(
        "[tool.importlinter]\n"
        'root_packages = ["sample"]\n'
        "include_external_packages = true\n"
        f"contract_types = {SETTINGS['contract_types']}\n"
        "[[tool.importlinter.contracts]]\n"
        'name = "Sample"\ntype = "pure"\nforbidden_modules = ["asyncio"]\n'
    )
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", config],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert ("Sample BROKEN" in done.stdout) == (done.returncode == 1), done.stdout + done.stderr
    assert ("Sample KEPT" in done.stdout) == (done.returncode == 0), done.stdout + done.stderr
    return done.stdout


def test_an_import_of_a_pure_module_is_followed(tmp_path: Path) -> None:
    waiting = "import asyncio\n"
    through = "import sample.waiting\n"
    assert "KEPT" in lint(tmp_path, {"waiting": waiting, "plain": through})
    assert "BROKEN" in lint(tmp_path, {"plain": f'"""Decides. Pure."""\n{through}'})


def test_all_of_a_pure_room_is_guarded(tmp_path: Path) -> None:
    room = {"room/__init__": '"""Decisions. Pure."""\n', "room/waiting": "import asyncio\n"}
    assert "BROKEN" in lint(tmp_path, room)
    assert "KEPT" in lint(tmp_path, {"room/__init__": '"""Decisions."""\n'})
