"""The models of the protocol hold, and name code that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.spec.runs import RUNS
from tests.spec.runs.run import Run
from tests.spec.tlc import ROOT, SPEC, check

CITED = re.compile(r"\\\* (\w+/[\w/]+\.py)(?:: ([\w, ]+))?$", re.M)
PLANTED = re.compile(r'Has\("(\w+)"\)')
DEFINED = re.compile(r"^(\w+)(?:\([\w, ]+\))? ==", re.M)
# Trace.tla describes no protocol, and is searched with recorded histories: see test_traces.py.
MODULES = sorted(path.stem for path in SPEC.glob("*.tla") if path.stem != "Trace")


@pytest.mark.parametrize("run", [one for one in RUNS if one.is_small], ids=lambda run: run.name)
def test_a_model_holds_and_its_mistakes_are_found(tlc: Path, run: Run, tmp_path: Path) -> None:
    finding = check(tlc, run, tmp_path)
    assert finding.is_expected(run), finding.output


@pytest.mark.parametrize("module", MODULES)
def test_a_model_names_code_that_exists(module: str) -> None:
    cited = CITED.findall(_text(module))
    assert cited
    for path, names in cited:
        source = (ROOT / path).read_text()
        for name in names.split(", ") if names else ():
            assert re.search(rf"\b{name}\b", source), f"{path} has no {name}"


@pytest.mark.parametrize("module", MODULES)
def test_every_mistake_is_planted_in_a_run(module: str) -> None:
    planted = set(PLANTED.findall(_text(module)))
    assert planted == {run.mistake for run in RUNS if run.module == module} - {"none"}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_small_run_without_a_mistake(module: str) -> None:
    assert any(one.is_small and not one.finds for one in RUNS if one.module == module)


def test_names_of_runs_are_unique_and_their_formulas_exist() -> None:
    assert len({run.name for run in RUNS}) == len(RUNS)
    for run in RUNS:
        asked = {*run.invariants, *run.properties, *filter(None, (run.constraint, run.finds))}
        assert asked <= set(DEFINED.findall(_text(run.module))), run.name


def _text(module: str) -> str:
    return (SPEC / f"{module}.tla").read_text()


def test_the_page_shows_what_the_models_say() -> None:
    page = (ROOT / "docs/protocol/model.md").read_text()
    shown = [one for one in re.findall(r"```text\n(.*?)```", page, re.S) if " ==\n" in one]
    assert shown
    for action in shown:
        assert any(action in _text(module) for module in MODULES), action
