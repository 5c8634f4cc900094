"""Screens that ask before something is changed: they say what will happen, and change only that."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from magnetar import Client, MagnetarError
from magnetar_console import actions
from magnetar_console.terminal.consequences import losses, moves
from magnetar_console.terminal.live_app import LiveApp
from magnetar_console.terminal.paint import lines
from magnetar_console.terminal.words import Part, Parts, counted
from magnetar_core.config import InvalidConfig

CHANGE_KEYS: Final = {
    actions.DRAIN: ("y  drain it", "n  leave it"),
    actions.END_DRAIN: ("y  end the drain", "n  leave it"),
    actions.REBALANCE: ("y  rebalance", "n  leave it"),
}


class ConfirmScreen(ModalScreen[str]):
    """Says what will happen, asks, and does it. The result says what was done.

    Like the page of the console, it does only what it has described: if something else would
    happen by now, it asks again.

    Args:
        question: what is asked.
        yes, no: the keys, with their meanings.
        asking: shown until it is known what will happen.
    """

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; background: ansi_default; }
    ConfirmScreen Static { width: 76; height: auto; max-height: 90%; border: heavy ansi_red;
                           padding: 0 1; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "confirm", show=False),
        Binding("n,escape", "keep", show=False),
    ]
    app: LiveApp

    def __init__(self, question: str, *, yes: str, no: str, asking: str) -> None:
        super().__init__()
        self._question = question
        self._yes = yes
        self._no = no
        self._asking = asking
        self._told: dict[str, Any] | None = None
        self._problem = ""
        self._text = Static()

    def compose(self) -> ComposeResult:
        """Make the only part."""
        yield self._text

    def on_mount(self) -> None:
        """Ask what will happen."""
        self.show()
        self.run_worker(self._look(), exclusive=True)

    def show(self) -> None:
        """Draw what is known."""
        found: list[Parts] = [(Part(self._question, "strong"),), ()]
        if self._problem:
            found += [(Part(self._problem, "bad"),), ()]
        if self._told is None:
            found += [] if self._problem else [(Part(self._asking, "soft"),), ()]
            found.append((Part(self._no, "strong"),))
        else:
            found += self._lines(self._told)
            found += [(), (Part(f"{self._yes}       {self._no}", "strong"),)]
        self._text.update(lines(found))

    @abstractmethod
    async def _foretell(self, client: Client) -> dict[str, Any]:
        """Return the consequences, with their mark as "seen". Raises: MagnetarError."""

    @abstractmethod
    async def _change(self, client: Client, seen: str) -> str:
        """Do it, if the mark is still right. Return what was done. Raises: MagnetarError."""

    @abstractmethod
    def _lines(self, told: dict[str, Any]) -> list[Parts]:
        """Return the consequences as text."""

    def _obstacle(self, told: dict[str, Any]) -> str:
        """Return why it cannot be done; empty: it can."""
        return ""

    async def _look(self) -> None:
        self._told = None
        try:
            told = await self._foretell(await self.app.client())
        except (MagnetarError, InvalidConfig) as error:
            self._problem = self._problem or str(error)
        else:
            obstacle = self._obstacle(told)
            self._problem = obstacle or self._problem
            self._told = None if obstacle else told
        self.show()

    async def _carry_out(self, seen: str) -> None:
        try:
            done = await self._change(await self.app.client(), seen)
        except (MagnetarError, InvalidConfig) as error:
            self._problem = str(error)
            await self._look()
        else:
            self.dismiss(done)

    def action_confirm(self) -> None:
        """Do it, if it was told what will happen."""
        if self._told is not None:
            seen, self._told, self._problem = self._told["seen"], None, ""
            self.run_worker(self._carry_out(seen), exclusive=True)

    def action_keep(self) -> None:
        """Do nothing."""
        self.dismiss("")


class AbortScreen(ConfirmScreen):
    """Aborts a transaction."""

    def __init__(self, txn_id: str) -> None:
        super().__init__(
            f"Abort transaction {txn_id}?",
            yes="y  abort it",
            no="n  keep it",
            asking="asking what will be lost",
        )
        self.txn_id = txn_id

    async def _foretell(self, client: Client) -> dict[str, Any]:
        return await actions.loss(client, {"id": self.txn_id})

    async def _change(self, client: Client, seen: str) -> str:
        body = {"id": self.txn_id, "seen": seen}
        told = await actions.abort(client, body, self.app.viewer)
        return f"transaction {self.txn_id} is {told['status'].lower()}"

    def _lines(self, told: dict[str, Any]) -> list[Parts]:
        return losses(told)

    def _obstacle(self, told: dict[str, Any]) -> str:
        if told["may_be_prepared"]:
            return "It may be prepared, so its database decides: Enter says how."
        return "" if told["status"] == "OPEN" else f"It is {told['status'].lower()} already."


class MovesScreen(ConfirmScreen):
    """Drains a server, ends that, or rebalances.

    Args:
        what: one of magnetar_console.actions.CHANGES.
        kind, member: of a drain: the kind and the name of the server.
    """

    def __init__(self, what: str, kind: str = "", member: str = "") -> None:
        yes, no = CHANGE_KEYS[what]
        name = f"{what} {kind} {member}" if member else f"{what} the cluster"
        super().__init__(
            f"{name[0].upper()}{name[1:]}?", yes=yes, no=no, asking="asking which shards will move"
        )
        self._what = what
        self._body = {"what": what, "kind": kind, "member": member}
        self._name = name

    async def _foretell(self, client: Client) -> dict[str, Any]:
        return await actions.plan(client, self._body)

    async def _change(self, client: Client, seen: str) -> str:
        told = await actions.change(client, {**self._body, "seen": seen}, self.app.viewer)
        return f"{self._name}: {counted(told['moves'], 'shard')} to move"

    def _lines(self, told: dict[str, Any]) -> list[Parts]:
        return moves(self._what, told)
