"""Conversations of coordinators with this broker, for messages that they did not ask for."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession
from magnetar_core.wire import transaction_pb2


class CoordinatorSessions:
    """The latest conversation of each coordinator, by TCID.

    A conversation is that of a coordinator once the token of its store was heard there.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, CommandSession] = {}

    def note(self, tcid: int, session: CommandSession | None) -> None:
        """Note that a coordinator has sent a command."""
        if session is not None:
            self._sessions[tcid] = session

    def is_of(self, tcid: int, session: CommandSession | None) -> bool:
        """Return whether a conversation is that of a coordinator."""
        return session is not None and self._sessions.get(tcid) is session

    def is_linked(self, tcid: int) -> bool:
        """Return whether a coordinator is there now, as far as its connection says."""
        session = self._sessions.get(tcid)
        return session is not None and not session.closed

    def abort_expelled(self, tcid: int, txn_ids: Iterable[TxnID]) -> None:
        """Ask a coordinator to abort those transactions that are OPEN. Lost while it is away."""
        session = self._sessions.get(tcid)
        if session is not None:
            word = transaction_pb2.CommandAbortExpelled(
                txn_ids=[txn_id.to_wire() for txn_id in txn_ids]
            )
            session.push(word)
