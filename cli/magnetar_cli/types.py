"""Parameters that several commands take."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

import click

from magnetar_core.durations import parse_duration_ms

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_UNITS_BYTES = {"": 1, "k": 10**3, "ki": 1 << 10, "m": 10**6, "mi": 1 << 20}
_UNITS_BYTES |= {"g": 10**9, "gi": 1 << 30, "t": 10**12, "ti": 1 << 40}


class Duration(click.ParamType[int]):
    """A number with a unit, as milliseconds: 500ms, 30s, 15m, 12h, 7d."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """A number with an optional unit, as bytes: 500M, 2GiB."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]i?|)b?", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a size; write 1000, 500M or 2GiB", param, ctx)
        return round(float(match[1]) * _UNITS_BYTES[match[2]])


class Time(click.ParamType[int]):
    """A time in ISO 8601, as milliseconds since the Unix epoch; local unless it says otherwise."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return _time_ms(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time; write 2026-01-31T12:00:00", param, ctx)


class TxnIdType(click.ParamType[str]):
    """A TxnID as the tables show it; stays text, so that nothing is imported for --help."""

    name = "txnid"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        from magnetar_core.ids import TxnID

        try:
            return str(TxnID.parse(str(value)))
        except ValueError as error:
            self.fail(f"{error}; `magnetar transactions list` shows those that are open")


class Place(NamedTuple):
    """Where a cursor is to go: one of these is set."""

    position: str | None = None
    offset: int | None = None
    append_time_ms: int | None = None


def place_of(text: str) -> Place:
    """earliest, latest, an offset, or a time in ISO 8601.

    Raises:
        click.BadParameter: none of these.
    """
    if text in ("earliest", "latest"):
        return Place(position=text)
    if re.fullmatch(r"\d+", text):
        return Place(offset=int(text))
    try:
        return Place(append_time_ms=_time_ms(text))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset nor a time as 2026-01-31T12:00:00"
        ) from None


def _time_ms(text: str) -> int:
    """Raises: ValueError, when it is no time."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
