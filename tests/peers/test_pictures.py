"""Each row that has figures gets a drawing, in which every system is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.peers.figures import Figure
from benchmarks.peers.pictures import COLOURS, CURVES, LATENCY_OF, draw_all
from benchmarks.peers.rows import ROWS
from tests.peers.figures import figure


def every_row() -> list[Figure]:
    return [
        figure(
            row=row,
            variant=f"{scale} of them",
            system=system,
            durability=durability,
            scale=scale,
            latency_of=LATENCY_OF.get(row, "commit()"),
            p50_ms=2.0,
            seconds=seconds,
        )
        for row in ROWS
        for scale in (1, 64)
        for system in COLOURS
        for durability in ("synced", "os")
        for seconds in (1.0, 2.0)
    ]


def test_every_row_is_drawn_with_every_system(tmp_path: Path) -> None:
    drawn = list(draw_all(every_row(), tmp_path))
    assert [path.stem for path in drawn] == list(ROWS)
    for path in drawn:
        text = path.read_text()
        for name in ("Magnetar, synced", "Kafka, left to the OS", "Pulsar, synced"):
            assert name in text, path


@pytest.mark.parametrize("row", CURVES)
def test_rows_of_curves_have_a_number_to_draw_over(row: str) -> None:
    assert row in ROWS


def test_the_same_figures_give_the_same_drawing(tmp_path: Path) -> None:
    only = [one for one in every_row() if one.row == "restart"]
    (path,) = draw_all(only, tmp_path)
    before = path.read_bytes()
    list(draw_all(only, tmp_path))
    assert path.read_bytes() == before
