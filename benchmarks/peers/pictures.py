"""Drawings of the comparison: a bar for each line, in the colour of its system.

Bars are medians, and whiskers go from the least to the greatest round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from benchmarks.peers.figures import Figure, Line, gathered
from benchmarks.peers.rows import ROWS
from benchmarks.peers.system import DURABILITIES, SYNCED
from benchmarks.plots import STYLE

WIDTH_INCHES = 8.0
BAR_INCHES = 0.24
MARGINS_INCHES = 1.2
COLOURS = {"magnetar": "#0b6e99", "kafka": "#c8553d", "pulsar": "#5a8f3c"}
LEFT_TO_THE_OS_ALPHA = 0.5
CALM = "#b4b4b4"
# The row that README.md shows: with a transaction that hangs, and without.
WAITING, HANGS = "hanging", "one transaction hangs"
# Of these rows it is the latency that is compared, on a logarithmic axis.
LATENCY_OF = {
    WAITING: "send to receive",
    "tailing": "send to receive",
    "restart": "kill to first produce",
}
# Rows that are drawn as curves, with a point for each variant, and the label of the axis.
CURVES = {
    "transactions": "transactions at once",
    "growth-partitions": "partitions",
    "growth-producers": "producers",
    "growth-open": "open transactions beside 16 at once",
}


def draw_all(figures: Sequence[Figure], directory: Path) -> Iterator[Path]:
    """Draw each row that there are figures for; yield the files."""
    lines = gathered(figures)
    with matplotlib.rc_context(STYLE):
        for row in dict.fromkeys(line.first.row for line in lines):
            chosen = [line for line in lines if line.first.row == row]
            path = directory / f"{row}.svg"
            draw = _waits if row == WAITING else _curves if row in CURVES else _bars
            drawing = draw(chosen)
            drawing.savefig(path, metadata={"Date": None})
            yield path


def _waits(lines: Sequence[Line]) -> Drawing:
    """Draw the latency of messages by system: without a transaction that hangs, and with one."""
    systems = list(dict.fromkeys(_whose(line) for line in lines))
    drawing = Drawing(
        figsize=(WIDTH_INCHES, MARGINS_INCHES + 3 * BAR_INCHES * len(systems)),
        layout="constrained",
    )
    axes: Axes = drawing.subplots()
    for line in lines:
        hangs = line.first.variant == HANGS
        bar = axes.barh(
            systems.index(_whose(line)) + (0.19 if hangs else -0.19),
            _middle(line),
            height=0.36,
            color=COLOURS[line.first.system] if hangs else CALM,
        )
        about = "another client's transaction hangs" if hangs else "no transaction hangs"
        axes.bar_label(bar, [f"{_middle(line):,.0f} ms, {about}"], padding=4)
    axes.set_yticks(range(len(systems)), systems)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    # Room for what stands behind the longest bar.
    axes.set_xlim(right=2 * max(map(_middle, lines)))
    axes.set_xlabel("ms from send to receive, median (less is better)")
    return drawing


def _bars(lines: Sequence[Line]) -> Drawing:
    """Rates, or median latencies."""
    row = lines[0].first.row
    drawing = Drawing(
        figsize=(WIDTH_INCHES, MARGINS_INCHES + BAR_INCHES * len(lines)), layout="constrained"
    )
    axes: Axes = drawing.subplots()
    for place, line in enumerate(lines):
        values = _values(line)
        middle = _middle(line)
        axes.barh(place, middle, color=COLOURS[line.first.system], alpha=_alpha(line))
        whiskers = [[middle - min(values)], [max(values) - middle]]
        axes.errorbar([middle], [place], xerr=whiskers, fmt="none", ecolor="black", capsize=2)
    axes.set_yticks(range(len(lines)), [_name(line) for line in lines])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    if row in LATENCY_OF:
        axes.set_xscale("log")
        axes.set_xlabel(f"{LATENCY_OF[row]}, ms, median (less is better)")
    else:
        axes.set_xlabel(f"{ROWS[row].unit}/s (more is better)")
    axes.xaxis.set_major_formatter("{x:,.0f}" if row not in LATENCY_OF else "{x:g}")
    axes.set_title(row)
    return drawing


def _curves(lines: Sequence[Line]) -> Drawing:
    """Rates over what the row varies; dashed where durability is left to the OS."""
    row = lines[0].first.row
    drawing = Drawing(figsize=(WIDTH_INCHES, 4.5), layout="constrained")
    axes: Axes = drawing.subplots()
    series = dict.fromkeys(
        (line.first.system, line.first.durability, line.first.way) for line in lines
    )
    for system, durability, way in series:
        points = [
            (line.first.scale or 0, line)
            for line in lines
            if (line.first.system, line.first.durability, line.first.way)
            == (system, durability, way)
        ]
        points.sort(key=lambda point: point[0])
        middles = [_middle(line) for _, line in points]
        axes.errorbar(
            [scale for scale, _ in points],
            middles,
            yerr=[
                [_middle(line) - min(_values(line)) for _, line in points],
                [max(_values(line)) - _middle(line) for _, line in points],
            ],
            label=f"{system.capitalize()}, {DURABILITIES[durability]}, {way}",
            color=COLOURS[system],
            linestyle="-" if durability == SYNCED else "--",
            marker="o",
            markersize=4,
            capsize=3,
        )
    scales = sorted({line.first.scale or 0 for line in lines})
    axes.set_xscale("log")
    axes.set_xticks(scales, [f"{one:,}" for one in scales], minor=False)
    axes.set_xlabel(CURVES[row])
    axes.set_ylabel(f"{ROWS[row].unit}/s")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False)
    return drawing


def _values(line: Line) -> list[float]:
    """One for each round."""
    name = LATENCY_OF.get(line.first.row)
    if name is None:
        return line.values("per_s")
    return [one.latencies_ms[name]["p50"] for one in line.rounds]


def _middle(line: Line) -> float:
    name = LATENCY_OF.get(line.first.row)
    return line.median("per_s") if name is None else line.latency_ms(name, "p50")


def _alpha(line: Line) -> float:
    return 1.0 if line.first.durability == SYNCED else LEFT_TO_THE_OS_ALPHA


def _whose(line: Line) -> str:
    return f"{line.first.system.capitalize()}, {DURABILITIES[line.first.durability]}"


def _name(line: Line) -> str:
    return f"{line.first.variant}: {_whose(line)}, {line.first.way}"
