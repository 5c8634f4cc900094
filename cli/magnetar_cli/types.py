"""Parameter types and options that several commands use."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

import click

from magnetar_core.durations import parse_duration_ms

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return a decorator that adds options to a command; its help shows them in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

watch_option = click.option("--watch", is_flag=True, help="Repeat every second, until Ctrl-C.")

# How messages are written as lines, in the output or in the input.
message_format_option = with_options(
    click.option(
        "--format",
        "message_format",
        type=click.Choice(["value", "json"]),
        default="value",
        show_default=True,
        help="The form of a message in a line: its value, or all of it as JSON.",
    ),
    click.option("--json", "message_format", flag_value="json", help="Short for --format json."),
)

_UNITS_BYTES = {"": 1, "k": 10**3, "ki": 1 << 10, "m": 10**6, "mi": 1 << 20}
_UNITS_BYTES |= {"g": 10**9, "gi": 1 << 30, "t": 10**12, "ti": 1 << 40}


class Duration(click.ParamType[int]):
    """A number with a unit, converted to milliseconds: 500ms, 30s, 15m, 12h, 7d."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert the text."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ms(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    """A number with an optional unit, converted to bytes: 500M, 2GiB."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert the text."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]i?|)b?", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a size; write 1000, 500M or 2GiB", param, ctx)
        return round(float(match[1]) * _UNITS_BYTES[match[2]])


class Separator(click.ParamType[bytes]):
    r"""The text between key and value, with escape sequences as kcat has them: \t, \\, \xHH."""

    name = "text"
    HELP = r"A tab is \t, a backslash \\, and any byte \xHH."
    _ESCAPE = re.compile(rb"\\(t|\\|x[0-9A-Fa-f]{2}|)")

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> bytes:
        """Convert the text."""
        if isinstance(value, bytes):
            return value
        # What is not UTF-8 on the command line stays as it is.
        given = str(value).encode(errors="surrogateescape")
        if any(not one for one in self._ESCAPE.findall(given)):
            self.fail(
                f"a backslash in {value!r} is not followed by a known character. {self.HELP}",
                param,
                ctx,
            )
        found = self._ESCAPE.sub(self._meant, given)
        if not found:
            self.fail("it is empty; give a text, such as ':'", param, ctx)
        if b"\n" in found:
            self.fail(
                "it has a newline, which ends a line; --format json allows newlines in keys "
                "and values"
            )
        return found

    @staticmethod
    def _meant(escape: re.Match[bytes]) -> bytes:
        what = escape[1]
        if what.startswith(b"x"):
            return bytes.fromhex(what[1:].decode())
        return b"\t" if what == b"t" else b"\\"


class Time(click.ParamType[int]):
    """A time in ISO 8601, converted to milliseconds since the Unix epoch; local without a zone."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert the text."""
        if isinstance(value, int):
            return value
        try:
            return _time_ms(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time; write 2026-01-31T12:00:00", param, ctx)


class TxnIdType(click.ParamType[str]):
    """A TxnID as tables show it. It stays text, so that --help imports nothing."""

    name = "txnid"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Check the text."""
        from magnetar_core.ids import TxnID

        try:
            return str(TxnID.parse(str(value)))
        except ValueError as error:
            self.fail(f"{error}; `magnetar transactions list` shows those that are open")


class Place(NamedTuple):
    """The target of a cursor; exactly one attribute is set."""

    position: Literal["earliest", "latest"] | None = None
    offset: int | None = None
    append_time_ms: int | None = None


def place_of(text: str) -> Place:
    """Convert earliest, latest, an offset, or a time in ISO 8601.

    Raises:
        click.BadParameter: the text is something else.
    """
    match text:
        case "earliest" | "latest":
            return Place(position=text)
    if re.fullmatch(r"\d+", text):
        return Place(offset=int(text))
    try:
        return Place(append_time_ms=_time_ms(text))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a position; write earliest, latest, an offset, or a time such as "
            "2026-01-31T12:00:00"
        ) from None


def _time_ms(text: str) -> int:
    """Raises: ValueError, when it is not a time."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
