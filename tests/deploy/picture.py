"""Draws what the dashboard shows: the same panels and queries, plotted without Grafana."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.deploy.queries import DASHBOARD

Answers = Callable[[str], list[dict[str, Any]]]
# By legend: when, and how much.
Lines = dict[str, tuple[list[float], list[float]]]
COLUMNS = 24
# Grid units to inches.
ACROSS, DOWN = 0.62, 0.36
INK, FAINT, PAPER = "#d8d9da", "#3a3d44", "#181b1f"
COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff")


def draw(answers: Answers, start_s: float, end_s: float, path: Path) -> None:
    """Draw all panels over one time.

    Args:
        answers: the series of an expression.
        start_s, end_s: the time to show, seconds since 1970.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    rows = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels) + 1
    figure = pyplot.figure(figsize=(COLUMNS * ACROSS, rows * DOWN), facecolor=PAPER)
    figure.text(0.008, 1 - 0.6 / rows, dashboard["title"], color=INK, size=15, weight="bold")
    for panel in panels:
        place = panel["gridPos"]
        top, left = place["y"] + 1, place["x"] / COLUMNS
        if panel["type"] == "row":
            figure.text(0.008, 1 - (top + 0.75) / rows, panel["title"], color=INK, size=10)
            continue
        axes = figure.add_axes(
            (
                left + 0.034,
                1 - (top + place["h"] - (0.2 if panel["type"] == "stat" else 1.7)) / rows,
                place["w"] / COLUMNS - 0.042,
                (place["h"] - (1.4 if panel["type"] == "stat" else 3.2)) / rows,
            ),
            facecolor=PAPER,
        )
        axes.set_title(panel["title"], color=INK, size=9, loc="left")
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if panel["type"] == "stat":
            _draw_tile(axes, panel, unit, answers)
        else:
            _draw_lines(axes, _points(panel, answers), unit, start_s, end_s)
    figure.savefig(path, dpi=75, facecolor=PAPER)
    pyplot.close(figure)


def _points(panel: dict[str, Any], answers: Answers) -> Lines:
    lines = {}
    for target in panel["targets"]:
        expr = target["expr"].replace("$__rate_interval", "30s")
        for series in answers(expr):
            name = re.sub(
                r"\{\{(\w+)\}\}",
                lambda found, labels=series["metric"]: labels.get(found[1], ""),  # type: ignore[misc]
                target["legendFormat"],
            )
            points = [(at_s, float(text)) for at_s, text in series["values"]]
            points = [(at_s, value) for at_s, value in points if not math.isnan(value)]
            lines[name] = ([at_s for at_s, _ in points], [value for _, value in points])
    return lines


def _draw_tile(axes: Any, panel: dict[str, Any], unit: str, answers: Answers) -> None:
    values = [line[1][-1] for line in _points(panel, answers).values() if line[1]]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    value = values[0] if values else math.nan
    is_high = len(steps) > 1 and value >= steps[1]["value"]
    text = _with_unit(value, unit)
    color = COLORS[4] if is_high else COLORS[0]
    axes.text(0.5, 0.45, text, color=color, size=20, ha="center", va="center")
    axes.set_axis_off()


def _draw_lines(axes: Any, lines: Lines, unit: str, start_s: float, end_s: float) -> None:
    lines = {name: line for name, line in lines.items() if line[0]}
    for (name, (at_s, values)), color in zip(sorted(lines.items()), COLORS * 3, strict=False):
        axes.plot([one - start_s for one in at_s], values, color=color, label=name, linewidth=1.2)
    highest = max((max(values) for _, values in lines.values()), default=0.0)
    axes.set_ylim(0, highest * 1.1 or 1)
    axes.set_xlim(0, end_s - start_s)
    axes.tick_params(colors=INK, labelsize=7)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.yaxis.set_major_formatter(lambda value, _: _with_unit(value, unit))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} s")
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    if lines:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            ncols=3,
            fontsize=7,
            labelcolor=INK,
            frameon=False,
        )


def _with_unit(value: float, unit: str) -> str:
    suffix = {"s": " s", "ops": "/s", "bytes": "B", "Bps": "B/s"}.get(unit, "")
    if unit == "s":
        return f"{value * 1_000:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{suffix}"
    return f"{value:.3g} {suffix}".replace(" /s", "/s").strip()
