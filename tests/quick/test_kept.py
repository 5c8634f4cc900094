"""Kept figures come back as they were, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks.quick.figures import Key
from benchmarks.quick.kept import FORMAT, Unusable, from_json, to_json
from tests.quick.figures import figures

FIGURES = figures(
    {
        ("produce-100", "client"): (1.0, 2.5),
        ("produce-100", "broker"): (0.0, 0.25),
        ("commits-100 / produce-100", "elapsed time"): (0.75, 1.25),
    }
)


def changed(**others: Any) -> str:
    return json.dumps({**json.loads(to_json(FIGURES)), **others})


def test_figures_come_back() -> None:
    assert from_json(to_json(FIGURES)) == FIGURES


def test_rows_come_back_in_order() -> None:
    assert list(from_json(to_json(FIGURES)).rows) == list(FIGURES.rows)
    assert FIGURES.workloads == ["produce-100", "commits-100 / produce-100"]


def test_noise_is_not_kept() -> None:
    text = to_json(figures({("produce-100", "client"): (1.2345678,)}))
    assert from_json(text).rows == {Key("produce-100", "client"): (1.2346,)}


def test_each_row_has_a_line() -> None:
    assert sum("[" in line for line in to_json(FIGURES).splitlines()) == len(FIGURES.rows)


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1, "1", None])
def test_another_format_is_refused(other: object) -> None:
    with pytest.raises(Unusable, match=f"format {other}, and this program has {FORMAT}"):
        from_json(changed(format=other))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        changed(rows=[]),
        changed(rows={"produce-100": [1.0]}),
        changed(rows={"produce-100": {"client": 1.0}}),
        changed(rows={"produce-100": {"client": []}}),
        changed(rows={"produce-100": {"client": ["fast"]}}),
        changed(rows={"produce-100": {"client": [float("nan")]}}),
        changed(rows={"produce-100": {"client": [float("inf")]}}),
        changed(rows={"produce-100": {"client": [1.0, -1.0]}}),
        changed(cores=None),
    ],
)
def test_damaged_figures_are_refused(text: str) -> None:
    with pytest.raises(Unusable, match="is damaged"):
        from_json(text)
