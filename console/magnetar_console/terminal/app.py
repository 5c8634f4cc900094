"""The program of `magnetar top`: tables, keys, and screens above them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from magnetar_console import actions
from magnetar_console.hub import Hub
from magnetar_console.looks.view import View
from magnetar_console.seen import Picture, Row
from magnetar_console.terminal.cluster_tabs import SERVERS_TAB, SHARDS_TAB
from magnetar_console.terminal.columns import Tab, matches
from magnetar_console.terminal.confirming import AbortScreen, ConfirmScreen, MovesScreen
from magnetar_console.terminal.details import details_of
from magnetar_console.terminal.live_app import CLUSTER_VIEW, LiveApp
from magnetar_console.terminal.paint import line, lines
from magnetar_console.terminal.rows_view import RowsView, shown_columns
from magnetar_console.terminal.screens import DetailsScreen, HelpScreen
from magnetar_console.terminal.status import freshness, problems, servers_away
from magnetar_console.terminal.tabs import TABS
from magnetar_console.terminal.transaction_tabs import ENDED_TAB, TRANSACTIONS_TAB
from magnetar_console.terminal.words import Part, Parts, count
from magnetar_core.clock import Clock

# Ages grow although no answer comes.
DRAW_S: Final = 1.0
KEYS: Final = "Enter details  / filter  s r sort  Space pause  {actions}? keys  q quit"
ACTIONS: Final = {
    TRANSACTIONS_TAB.name: "a abort  ",
    SERVERS_TAB.name: "d drain  b rebalance  ",
    SHARDS_TAB.name: "b rebalance  ",
}


@dataclass(slots=True)
class Choice:
    """Choices of a person for a tab."""

    sort: tuple[int, bool]
    filter: str = ""
    cursor_key: str | None = None


class Top(LiveApp):
    """Shows a cluster in a terminal.

    Args:
        brokers: the addresses of the cluster, for people.

    Attributes:
        done: what was changed, in sentences.
    """

    TITLE = "magnetar top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Static { height: auto; }
    #status, #tabs, #facts, #keys { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #about { height: 2; }
    #problems { max-height: 4; }
    #filter { height: 1; border: none; padding: 0; background: ansi_default; }
    #filter:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False),
        *(Binding(str(n), f"tab({n - 1})", show=False) for n in range(1, len(TABS) + 1)),
        Binding("tab,right", "turn(1)", show=False),
        Binding("shift+tab,left", "turn(-1)", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "clear", show=False),
        Binding("s", "sort(1)", show=False),
        Binding("S,upper_s", "sort(-1)", show=False),
        Binding("r", "reverse", show=False),
        Binding("space", "pause", show=False),
        Binding("enter", "details", show=False),
        Binding("a", "abort", show=False),
        Binding("d", "drain", show=False),
        Binding("b", "rebalance", show=False),
        Binding("question_mark", "help", show=False),
    ]

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        *,
        brokers: str,
        viewer: str,
        allow_actions: bool,
        period_s: float,
    ) -> None:
        super().__init__(hub, clock, viewer=viewer, allow_actions=allow_actions, period_s=period_s)
        self.theme = "ansi-dark"
        self.done: list[str] = []
        self._brokers = brokers
        self._status = Static(id="status")
        self._titles = Static(id="tabs")
        self._facts = Static(id="facts")
        self._problems = Static(id="problems")
        self._filter = Input(id="filter", placeholder="a text; Enter keeps it, Esc ends it")
        self._rows = RowsView()
        self._about = Static(id="about")
        self._message = Static(id="message")
        self._keys = Static(id="keys")
        self._tab: Tab = TRANSACTIONS_TAB
        self._watched: View | None = None
        self._answers: dict[str, bool | None] = {}
        self._choices = {tab.name: Choice(tab.sort) for tab in TABS}

    def compose(self) -> ComposeResult:
        """Make the parts of the main screen."""
        yield from (self._status, self._titles, self._facts, self._problems)
        yield from (self._filter, self._rows)
        yield from (self._about, self._message, self._keys)

    def on_mount(self) -> None:
        """Begin to look."""
        self._filter.display = False
        self._rows.focus()
        self.run_worker(self._read(CLUSTER_VIEW), group="cluster")
        self._watch_tab()
        self.set_interval(DRAW_S, self.draw)
        self.draw()

    def _watch_tab(self) -> None:
        view = self._tab.view
        if view == self._watched:
            return
        self._watched = view
        if view == CLUSTER_VIEW:
            # It is read in any case.
            self.workers.cancel_group(self, "tab")
        else:
            self.run_worker(self._read(view), group="tab", exclusive=True)

    async def _read(self, view: View) -> None:
        async with aclosing(self.channel(view).pictures()) as pictures:
            async for picture in pictures:
                if view == CLUSTER_VIEW:
                    self._note_answers(picture)
                if not self.paused or view not in self.pictures:
                    self.pictures[view] = picture
                    self.draw()

    def _note_answers(self, cluster: Picture) -> None:
        """Look again when a server is away or back: a look that waited for it has a long pause."""
        servers = cluster.tables.get("servers", {})
        answers = {key: one["answers"] for key, one in servers.items()}
        if self._answers != answers and self._watched not in (None, CLUSTER_VIEW):
            self.channel(self._watched).look_soon()
        self._answers = answers

    def draw(self) -> None:
        """Draw what was seen last, at the present time."""
        if not self.is_running:
            return
        if isinstance(self.screen, DetailsScreen):
            self.screen.show()
        picture = self.pictures.get(self._tab.view)
        choice = self._choices[self._tab.name]
        tables = picture.tables if picture else {}
        everything = self._tab.rows(tables)
        rows = self._sorted(everything, choice)
        found = freshness(picture, self.now_ms, self.period_s, paused=self.paused)
        away = servers_away(self.cluster)
        status: Parts = (Part("magnetar top", "strong"), Part(f"  {self._brokers}   "), *found)
        if away:
            status = (*status, Part("   "), *away)
        self._status.update(line(status))
        self._titles.update(line(self._tab_titles()))
        facts = list(self._tab.facts(tables, self.now_ms)) if tables else []
        if choice.filter:
            told = f"{count(len(rows))} of {count(len(everything))} match {choice.filter!r}"
            facts = [Part(told, "warn"), Part("   "), *facts]
        self._facts.update(line(facts))
        wrong = problems(picture)
        self._problems.update(lines(wrong))
        self._problems.display = bool(wrong)
        self._rows.show(
            self._tab,
            rows,
            sort=choice.sort,
            cursor_key=choice.cursor_key,
            now_ms=self.now_ms,
            empty=self._empty(picture, choice),
        )
        choice.cursor_key = self._rows.cursor_key
        self._draw_about()
        self._message.update(line(self.message))
        self._message.display = bool(self.message)
        keys = KEYS.format(actions=ACTIONS.get(self._tab.name, "") if self.allow_actions else "")
        self._keys.update(line((Part(keys, "soft"),)))

    def _draw_about(self) -> None:
        row = self._rows.cursor_row
        about = self._tab.about(row, self.now_ms) if row is not None else ()
        self._about.update(lines([about]))

    def _tab_titles(self) -> Parts:
        parts: list[Part] = []
        for number, tab in enumerate(TABS, 1):
            title = f"{number} {tab.name}"
            parts += [Part(title, "chosen" if tab is self._tab else ""), Part(" ")]
        return tuple(parts)

    def _empty(self, picture: Picture | None, choice: Choice) -> str:
        if picture is None:
            return ""
        if not picture.tables:
            return "Nothing has been seen yet. The cluster is asked again and again."
        return "No row has this text. Esc ends the filter." if choice.filter else self._tab.empty

    def _sorted(self, rows: Any, choice: Choice) -> Sequence[tuple[str, Row]]:
        place, largest_first = choice.sort
        order = self._tab.columns[place].order
        found = [(key, row) for key, row in rows.items() if matches(row, choice.filter)]
        found.sort(key=lambda one: one[0])
        found.sort(key=lambda one: order(one[1]), reverse=largest_first)
        return found

    def on_rows_view_moved(self) -> None:
        """Show all about the row under the cursor."""
        self._choice.cursor_key = self._rows.cursor_key
        self.message = ()
        self._draw_about()

    @property
    def _choice(self) -> Choice:
        return self._choices[self._tab.name]

    @property
    def _is_main(self) -> bool:
        return len(self.screen_stack) == 1

    def action_tab(self, number: int) -> None:
        """Show another table."""
        if not self._is_main:
            return
        self._tab = TABS[number]
        self._filter.value = self._choice.filter
        self._watch_tab()
        self.say()

    def action_turn(self, by: int) -> None:
        """Show the next table, or the one before."""
        self.action_tab((TABS.index(self._tab) + by) % len(TABS))

    def action_sort(self, by: int) -> None:
        """Sort by the next column that is shown, or by the one before."""
        if not self._is_main:
            return
        shown = shown_columns(self._tab, self._rows.size.width)
        present = self._tab.columns[self._choice.sort[0]]
        place = shown.index(present) if present in shown else -1
        column = shown[(place + by) % len(shown)]
        self._choice.sort = (self._tab.columns.index(column), column.right)
        self.say()

    def action_reverse(self) -> None:
        """Turn the order round."""
        place, largest_first = self._choice.sort
        self._choice.sort = (place, not largest_first)
        self.say()

    def action_filter(self) -> None:
        """Let the person write a filter."""
        if self._is_main:
            self._filter.display = True
            self._filter.focus()

    def action_clear(self) -> None:
        """End the filter."""
        self._filter.value = ""
        self._choice.filter = ""
        self._leave_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is written."""
        self._choice.filter = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        """Keep the filter, and return to the table."""
        self._leave_filter()

    def _leave_filter(self) -> None:
        self._filter.display = False
        self._rows.focus()
        self.say()

    def action_details(self) -> None:
        """Show all about the row under the cursor."""
        key, row = self._rows.cursor_key, self._rows.cursor_row
        if not self._is_main or key is None or row is None:
            return
        details = details_of(self._tab, key, row)
        self.message = ()
        self.push_screen(
            DetailsScreen(details, self.channel(details.view), self._chosen_transaction())
        )

    def action_help(self) -> None:
        """Show the keys."""
        if not isinstance(self.screen, HelpScreen | ConfirmScreen):
            self.push_screen(HelpScreen())

    def _chosen_transaction(self) -> str | None:
        is_of_transactions = self._tab in (TRANSACTIONS_TAB, ENDED_TAB)
        return self._rows.cursor_key if is_of_transactions else None

    def action_abort(self) -> None:
        """Ask whether to abort the transaction that is shown, or under the cursor."""
        if isinstance(self.screen, HelpScreen | ConfirmScreen):
            return
        txn_id = self._chosen_transaction()
        if isinstance(self.screen, DetailsScreen):
            txn_id = self.screen.txn_id
        if not self.allow_actions:
            self.say("It can only look. Start it with --allow-actions to abort.", "warn")
        elif txn_id is None:
            self.say("Choose a transaction first: key 1.", "warn")
        else:
            self.push_screen(AbortScreen(txn_id), self._after_change)

    def action_drain(self) -> None:
        """Ask whether to drain the server under the cursor, or to end that."""
        row = self._rows.cursor_row
        if self._may_change_members() and self._tab is SERVERS_TAB and row is not None:
            if not row["member"]:
                self.say("Servers keep their shards here, or do not tell of members.", "warn")
                return
            what = actions.END_DRAIN if row["draining"] else actions.DRAIN
            self.push_screen(MovesScreen(what, row["kind"], row["member"]), self._after_change)

    def action_rebalance(self) -> None:
        """Ask whether to rebalance the cluster."""
        if self._may_change_members():
            self.push_screen(MovesScreen(actions.REBALANCE), self._after_change)

    def _may_change_members(self) -> bool:
        """Return whether to ask; tell what is missing if not."""
        if not self._is_main:
            return False
        if not self.allow_actions:
            self.say("It can only look. Start it with --allow-actions to change it.", "warn")
            return False
        if self._tab not in (SERVERS_TAB, SHARDS_TAB):
            self.say("Servers and shards are changed in their tables: keys 6 and 7.", "warn")
            return False
        return True

    def _after_change(self, told: str | None) -> None:
        if told:
            self.done.append(told)
            self.say(f"Done: {told}.", "strong")
