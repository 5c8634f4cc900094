"""A table of any number of rows, of which only those in sight are drawn.

It fits the terminal: columns have a width, or share what is left. The cursor stays at its row while
others come and go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from magnetar_console.seen import Row
from magnetar_console.terminal.columns import Column, Tab
from magnetar_console.terminal.paint import fitted
from magnetar_console.terminal.words import Part, width_of

CURSOR: Final = Style(reverse=True)
HEADER: Final = Style(bold=True, underline=True)
GAP: Final = 1
# Columns without a width of their own get at least so many characters.
SHARE_CELLS_MIN: Final = 8


class RowsView(ScrollView, can_focus=True):
    """Shows rows, the cursor, and by which column they are sorted."""

    DEFAULT_CSS = """
    RowsView { height: 1fr; background: ansi_default; scrollbar-size-horizontal: 0;
               scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move_pages(-1)", show=False),
        Binding("pagedown", "move_pages(1)", show=False),
        Binding("home", "move_to_end(0)", show=False),
        Binding("end", "move_to_end(1)", show=False),
    ]

    class Moved(Message):
        """The cursor is at another row."""

    def __init__(self) -> None:
        super().__init__(id="rows")
        self._tab: Tab | None = None
        self._keys: Sequence[str] = ()
        self._rows: Sequence[Row] = ()
        self._sort = (0, False)
        self._now_ms = 0
        self._cursor = 0
        self._empty = ""
        self._widest: dict[str, int] = {}

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor; None: there are no rows."""
        return self._keys[self._cursor] if self._keys else None

    @property
    def cursor_row(self) -> Row | None:
        """The row under the cursor; None: there are no rows."""
        return self._rows[self._cursor] if self._rows else None

    def show(
        self,
        tab: Tab,
        rows: Sequence[tuple[str, Row]],
        *,
        sort: tuple[int, bool],
        cursor_key: str | None,
        now_ms: int,
        empty: str,
    ) -> None:
        """Show rows.

        Args:
            rows: with their keys, in order.
            sort: the number of the column that sorts them, and whether the largest is first.
            cursor_key: the row for the cursor; if it is not there, the cursor stays at its place.
            empty: the text where there are no rows.
        """
        changed = tab is not self._tab
        self._tab, self._sort, self._now_ms, self._empty = tab, sort, now_ms, empty
        self._keys = [key for key, _ in rows]
        self._rows = [row for _, row in rows]
        self._widest = {
            column.title: max((width_of(column.cell(row, now_ms)) for row in self._rows), default=0)
            for column in tab.columns
            if column.fits
        }
        place = 0 if changed else self._cursor
        if cursor_key is not None:
            try:
                place = self._keys.index(cursor_key)
            except ValueError:
                pass
        self._cursor = max(0, min(place, len(rows) - 1))
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        self._follow()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a line of what is in sight; the first is the header."""
        width = self.size.width
        if self._tab is None:
            return Strip.blank(width)
        if y == 0:
            return self._strip(self._header(width), HEADER)
        if not self._rows:
            texts = self._empty.split("\n")
            text = texts[y - 2] if 0 <= y - 2 < len(texts) else ""
            return self._strip(fitted((Part(text),), width))
        number = self.scroll_offset.y + y - 1
        if number >= len(self._rows):
            return Strip.blank(width)
        row = self._rows[number]
        cells = [
            fitted(column.cell(row, self._now_ms), cells, right=column.right)
            for column, cells in self._widths(width)
        ]
        return self._strip(_joined(cells, width), CURSOR if number == self._cursor else None)

    def _strip(self, text: Text, style: Style | None = None) -> Strip:
        segments = list(text.render(self.app.console))
        if style is not None:
            segments = list(Segment.apply_style(segments, post_style=style))
        return Strip(segments, self.size.width)

    def _header(self, width: int) -> Text:
        assert self._tab is not None
        place, largest_first = self._sort
        sorted_by = self._tab.columns[place]
        cells = []
        for column, cells_count in self._widths(width):
            mark = ("▼" if largest_first else "▲") if column is sorted_by else ""
            title = f"{column.title}{mark}"
            cells.append(fitted((Part(title),), cells_count, right=column.right))
        return _joined(cells, width)

    def _widths(self, width: int) -> Iterator[tuple[Column, int]]:
        assert self._tab is not None
        shown = shown_columns(self._tab, width)
        shares = sum(column.share for column in shown if not column.width)
        rest = width - sum(map(self._own_width, shown)) - GAP * (len(shown) - 1)
        for column in shown:
            share = rest * column.share // max(1, shares)
            yield column, self._own_width(column) or max(SHARE_CELLS_MIN, share)

    def _own_width(self, column: Column) -> int:
        if not column.fits:
            return column.width
        # With room for the mark of the order.
        return min(column.width, max(len(column.title) + 1, self._widest[column.title]))

    def _follow(self) -> None:
        """Scroll so that the cursor is in sight."""
        in_sight = max(1, self.size.height - 1)
        top = self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, immediate=True)
        elif self._cursor >= top + in_sight:
            self.scroll_to(y=self._cursor - in_sight + 1, animate=False, immediate=True)

    def _move_to(self, place: int) -> None:
        self._cursor = max(0, min(place, len(self._rows) - 1))
        self._follow()
        self.refresh()
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._move_to(self._cursor + by)

    def action_move_pages(self, by: int) -> None:
        """Move the cursor by what is in sight."""
        self._move_to(self._cursor + by * max(1, self.size.height - 2))

    def action_move_to_end(self, end: int) -> None:
        """Move the cursor to the first row, or to the last one."""
        self._move_to(len(self._rows) - 1 if end else 0)


def shown_columns(tab: Tab, width: int) -> list[Column]:
    """Return the columns that a terminal of this width has room for."""
    return [column for column in tab.columns if column.from_width <= width]


def _joined(cells: Sequence[Text], width: int) -> Text:
    made = Text(" " * GAP, end="", no_wrap=True).join(cells)
    made.truncate(width)
    made.pad_right(width - made.cell_len)
    return made
