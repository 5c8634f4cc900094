"""Screens above the tables: details, and help."""

from __future__ import annotations

from contextlib import aclosing
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from magnetar_console.channel import Channel
from magnetar_console.seen import Picture
from magnetar_console.terminal.details import Details
from magnetar_console.terminal.live_app import LiveApp
from magnetar_console.terminal.paint import line, lines
from magnetar_console.terminal.status import freshness, problems, servers_away
from magnetar_console.terminal.words import Part

HELP: Final = (
    ("1 to 7, Tab, ← →", "another table"),
    ("↑ ↓ PgUp PgDn Home End", "another row"),
    ("Enter", "all about this row, what is missing first"),
    ("/   Esc", "filter by a text; without the filter"),
    ("s   S", "sort by the next column; by the one before"),
    ("r", "turn the order round"),
    ("Space", "keep the screen as it is; go on"),
    ("a", "abort the transaction (--allow-actions)"),
    ("d   b", "drain the server, or end that; rebalance (the same)"),
    ("q   Ctrl-C", "end"),
)
WORDS: Final = (
    ("may be prepared", "two-phase: only its database knows the outcome"),
    ("PENDING_ACK", "acknowledged by transactions that are open"),
    ("away", "no answer; rows are as old as the first line says"),
)


class DetailsScreen(Screen[None]):
    """Shows all about one row."""

    DEFAULT_CSS = """
    DetailsScreen { background: ansi_default; }
    DetailsScreen VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; margin: 1 0 0 0; }
    DetailsScreen #details-problems { height: auto; max-height: 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,backspace", "back", show=False),
    ]
    app: LiveApp

    def __init__(self, details: Details, channel: Channel, txn_id: str | None) -> None:
        super().__init__()
        self.details = details
        self.txn_id = txn_id
        self._channel = channel
        self._status = Static()
        self._problems = Static(id="details-problems")
        self._text = Static()
        self._message = Static()
        self._keys = Static()
        self._picture: Picture | None = None

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield from (self._status, self._problems)
        with VerticalScroll(id="details-scroll"):
            yield self._text
        yield from (self._message, self._keys)

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one("#details-scroll").focus()
        self.run_worker(self._read())
        self.show()

    async def _read(self) -> None:
        async with aclosing(self._channel.pictures()) as pictures:
            async for picture in pictures:
                if not self.app.paused or self._picture is None:
                    self._picture = picture
                    self.show()

    def show(self) -> None:
        """Draw what was seen last, at the present time."""
        now_ms = self.app.now_ms
        status = freshness(self._picture, now_ms, self.app.period_s, paused=self.app.paused)
        away = servers_away(self.app.cluster)
        self._status.update(
            line(
                (
                    *(Part(self.details.title, "strong"), Part("   "), *status),
                    *((Part("   "), *away) if away else ()),
                )
            )
        )
        wrong = problems(self._picture)
        self._problems.update(lines(wrong))
        self._problems.display = bool(wrong)
        keys = "Esc back  ↑↓ scroll  Space pause  "
        keys += (
            "a abort  ? keys  q quit"
            if self.txn_id and self.app.allow_actions
            else "? keys  q quit"
        )
        self._keys.update(line((Part(keys, "soft"),)))
        self._message.update(line(self.app.message))
        self._message.display = bool(self.app.message)
        if self._picture is not None and self._picture.tables:
            width = self.size.width - 1
            found = self.details.lines(self._picture.tables, now_ms, width)
            self._text.update(lines(found))

    def action_back(self) -> None:
        """Return to the table."""
        self.app.say()
        self.dismiss(None)


class HelpScreen(ModalScreen[None]):
    """Shows the keys."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: ansi_default; }
    HelpScreen Static { width: 76; height: auto; border: round ansi_default; padding: 0 1;
                        background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,question_mark,space", "dismiss", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Make the only part."""
        found = [(Part(f"{keys:<24}", "strong"), Part(what)) for keys, what in HELP]
        yield Static(
            lines(
                [
                    (Part("Keys", "strong"),),
                    (),
                    *found,
                    (),
                    *((Part(f"{word:<24}", "strong"), Part(what)) for word, what in WORDS),
                    (),
                    (Part("Esc: back", "soft"),),
                ]
            ),
            id="help",
        )

    async def action_dismiss(self, result: None = None) -> None:
        """Return to the table."""
        self.dismiss(result)
