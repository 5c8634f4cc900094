"""Bounds: where a source begins and ends. Pure.

Source: Spark, Structured Streaming + Kafka Integration Guide; docs/spark.md has the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from magnetar_spark.errors import OptionError
from magnetar_spark.offsets import EARLIEST, Places
from magnetar_spark.options.given import GivenOptions


class Bound(Enum):
    """Form in which an option gives the beginning or the end of a read."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True)
class BoundOption:
    """Option that says where to begin, or to end.

    Attributes:
        option: the option's name, for errors.
        places: for OFFSETS, offsets, with -2 for the first and -1 for the end; for TIMES,
            milliseconds.
        time_ms: for TIME, milliseconds since the Unix epoch.
        latest_when_absent: whether to begin at the end when no message is that new; otherwise that
            is an error.
    """

    option: str
    bound: Bound
    places: Places | None = None
    time_ms: int = 0
    latest_when_absent: bool = False


def bound_option(options: GivenOptions, which: str, default: Bound) -> BoundOption:
    """Return where to begin or to end.

    The most particular option counts, as in Spark's Kafka source: a time, times, then offsets.

    Args:
        which: "starting" or "ending".
        default: what counts when no option is given.
    Raises:
        OptionError: an option cannot be understood.
    """
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy.lower() not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy is 'error' or 'latest', not {strategy!r}"
        )
    # An end that no message has reached is the end that there is.
    lenient = which == "ending" or strategy.lower() == "latest"
    by_time, by_times = f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    by_offset = f"{which}Offsets"
    text = options.text(by_time)
    if text is not None:
        time_ms = options.whole(by_time, text)
        return BoundOption(by_time, Bound.TIME, time_ms=time_ms, latest_when_absent=lenient)
    text = options.text(by_times)
    if text is not None:
        times = options.places(by_times, text, '{"flights": {"0": 1357000000000}}')
        if any(one < 0 for some in times.values() for one in some.values()):
            raise OptionError(f"{by_times}: a time is in milliseconds since 1970, from 0")
        return BoundOption(by_times, Bound.TIMES, times, latest_when_absent=lenient)
    text = options.text(by_offset)
    if text is None:
        return BoundOption(by_offset, default)
    if text.strip().lower() in (Bound.EARLIEST.value, Bound.LATEST.value):
        return BoundOption(by_offset, Bound(text.strip().lower()))
    places = options.places(by_offset, text, '{"flights": {"0": 23, "1": -2}}')
    refused = EARLIEST if which == "ending" else None
    for some in places.values():
        for one in some.values():
            if one < EARLIEST or one == refused:
                raise OptionError(f"{by_offset}: {one} is not an offset to begin or end at")
    return BoundOption(by_offset, Bound.OFFSETS, places)
