"""Conversations of a broker's group members, and their rights to be members."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from magnetar_core.errors import MagnetarError
from magnetar_core.server.commands import CommandSession, Complaint
from magnetar_core.wire import group_pb2


class MemberSessions:
    """Conversations of members that spoke since the start.

    Args:
        turn_out: removes a member that lost its rights, by group and member id.
    """

    def __init__(self, turn_out: Callable[[str, str, MagnetarError], None]) -> None:
        self._turn_out = turn_out
        self._sessions: dict[tuple[str, str], CommandSession] = {}
        # Of those who joined since the start, and with access control.
        self._complaints: dict[tuple[str, str], Complaint] = {}

    def joined(
        self,
        group: str,
        member_id: str,
        session: CommandSession | None,
        complaint: Complaint | None,
    ) -> None:
        """Note a member that has joined.

        Args:
            session: None for a unary call: others may have the member's conversation.
            complaint: returns why it may no longer be a member; None: there is no access control.
        """
        if complaint is not None:
            self._complaints[group, member_id] = complaint
        self.heard(group, member_id, session)

    def heard(self, group: str, member_id: str, session: CommandSession | None) -> None:
        """Note on which conversation a member spoke last."""
        if session is None:
            return
        key = (group, member_id)
        earlier = self._sessions.get(key)
        if earlier is not None and earlier is not session:
            earlier.forget(key)
        self._sessions[key] = session
        session.while_allowed(
            key, self._complaints.get(key), partial(self._turn_out, group, member_id)
        )

    def word(self, group: str, member_id: str) -> Callable[[], None] | None:
        """Return a function that tells a member of a change; None: it has no conversation."""
        session = self._sessions.get((group, member_id))
        if session is None:
            return None
        change = group_pb2.CommandGroupChange(group=group, member_id=member_id)
        return partial(session.push, change)

    def gone(self, group: str, member_id: str) -> None:
        """Forget a member that has left."""
        key = (group, member_id)
        session = self._sessions.pop(key, None)
        self._complaints.pop(key, None)
        if session is not None:
            session.forget(key)
