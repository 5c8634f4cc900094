"""Drawings of what was measured: medians, with whiskers from the least to the greatest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results import Line, Result, gathered

SIZE_INCHES = (7.0, 4.2)
# Text stays text, and the same figures give the same file.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
OURS, CEILING, SECOND, THIRD = "#0b6e99", "#9a9a9a", "#c8553d", "#5a8f3c"


def draw_all(results: Sequence[Result], directory: Path) -> Iterator[Path]:
    """Draw what there are figures for; yield the files."""
    lines = gathered(results)
    with matplotlib.rc_context(STYLE):
        for name, draw in DRAWINGS.items():
            figure = Figure(figsize=SIZE_INCHES, layout="constrained")
            if draw(figure.subplots(), lines):
                path = directory / f"{name}.svg"
                figure.savefig(path, metadata={"Date": None})
                yield path


def _draw_transactions(axes: Axes, lines: Sequence[Line]) -> bool:
    for workload, label, colour in (
        ("bare transactions", "bare conversation", CEILING),
        ("transactions", "Magnetar", OURS),
    ):
        chosen = [
            line for line in lines if _is(line, workload) and line.median("per_s") is not None
        ]
        _curve(axes, chosen, "per_s", label, colour)
    _label_concurrency(axes, lines, "transactions")
    axes.set_ylabel("transactions/s")
    axes.set_ylim(bottom=0)
    return _with_legend(axes)


def _draw_latency(axes: Axes, lines: Sequence[Line]) -> bool:
    for latency_of, colour in (("commit()", OURS), ("commit to visible", SECOND)):
        chosen = [line for line in lines if _is(line, "transactions", latency_of)]
        _curve(axes, chosen, "p50_ms", f"{latency_of}, p50", colour)
        _curve(axes, chosen, "p99_ms", f"{latency_of}, p99", colour, dashed=True)
    _label_concurrency(axes, lines, "transactions")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("ms")
    return _with_legend(axes)


def _draw_streams(axes: Axes, lines: Sequence[Line]) -> bool:
    """A bar for each way of producing and consuming, and the ceilings across."""
    bars = [one for one in lines if _is(one, "produce") or _is(one, "consume")]
    # A fixed rate does not measure throughput.
    bars = [one for one in bars if one.first.latency_of is None]
    names = [one.first.name for one in bars]
    colours = [OURS if one.first.workload == "produce" else THIRD for one in bars]
    axes.barh(names, [_median(one, "mb_per_s") for one in bars], color=colours)
    axes.errorbar(
        [_median(one, "mb_per_s") for one in bars],
        names,
        xerr=_whiskers(bars, "mb_per_s"),
        fmt="none",
        ecolor="black",
        capsize=3,
    )
    ceilings = {name for one in bars for name in one.first.ceilings}
    for line, style in zip(
        (one for one in lines if one.first.name in ceilings), ("--", ":"), strict=False
    ):
        rate = _median(line, "mb_per_s")
        axes.axvline(rate, color="black", linestyle=style, label=line.first.workload)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("MB/s of payload (the bare ones: in pieces of 256 KiB)")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return bool(bars)


def _draw_recovery(axes: Axes, lines: Sequence[Line]) -> bool:
    for kind, colour in (("broker", OURS), ("coordinator", SECOND)):
        for latency_of, dashed in (("reading the store", False), ("kill to answer", True)):
            chosen = [
                line
                for line in lines
                if _is(line, "recovery", latency_of) and line.first.variant.startswith(kind)
            ]
            _curve(axes, chosen, "p50_ms", f"{kind}, {latency_of}", colour, dashed=dashed)
    axes.set_xscale("log")
    # The servers tell whole milliseconds: 0 is possible.
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("entries stored")
    axes.set_ylabel("ms")
    return _with_legend(axes)


# By the file's name; each says whether there was anything to draw.
DRAWINGS: dict[str, Callable[[Axes, Sequence[Line]], bool]] = {
    "transactions": _draw_transactions,
    "latency": _draw_latency,
    "streams": _draw_streams,
    "recovery": _draw_recovery,
}


def _is(line: Line, workload: str, latency_of: str | None = None) -> bool:
    return line.first.workload == workload and latency_of in (None, line.first.latency_of)


def _curve(
    axes: Axes,
    lines: Sequence[Line],
    attribute: str,
    label: str,
    colour: str,
    *,
    dashed: bool = False,
) -> None:
    """Medians over the lines' scale; lines without one are left out."""
    points = sorted(
        ((line.first.scale, line) for line in lines if line.first.scale is not None),
        key=lambda point: point[0],
    )
    if not points:
        return
    scaled = [line for _, line in points]
    axes.errorbar(
        [scale for scale, _ in points],
        [_median(one, attribute) for one in scaled],
        yerr=_whiskers(scaled, attribute),
        label=label,
        color=colour,
        linestyle="--" if dashed else "-",
        marker="o",
        markersize=4,
        capsize=3,
    )


def _median(line: Line, attribute: str) -> float:
    found = line.median(attribute)
    assert found is not None
    return found


def _whiskers(lines: Sequence[Line], attribute: str) -> list[list[float]]:
    """From each median down to the least, and up to the greatest; of two rows."""
    values = [(line.values(attribute), _median(line, attribute)) for line in lines]
    return [
        [middle - min(found) for found, middle in values],
        [max(found) - middle for found, middle in values],
    ]


def _label_concurrency(axes: Axes, lines: Sequence[Line], workload: str) -> None:
    found = {line.first.scale for line in lines if _is(line, workload)}
    scales = sorted(one for one in found if one is not None)
    axes.set_xscale("log", base=2)
    axes.set_xticks(scales, [str(one) for one in scales])
    axes.set_xlabel("transactions at once")


def _with_legend(axes: Axes) -> bool:
    drawn = bool(axes.get_legend_handles_labels()[0])
    if drawn:
        axes.legend(frameon=False)
    return drawn
