"""Senders of messages in transactions that come without a command of ours. Pure."""

from __future__ import annotations

from typing import NamedTuple

from magnetar_core.access.grants import Rights


class Sender(NamedTuple):
    """Client of another protocol.

    Attributes:
        origin: the client's machine.
        rights: what the sender may do; None: there is no access control.
        session: it has no conversation of ours.
    """

    origin: str
    rights: Rights | None = None
    session: None = None
