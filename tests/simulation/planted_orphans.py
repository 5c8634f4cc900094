"""Planted bugs of TxnIDs that were made up, and of what nobody else would end. See `planted`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.simulation.planting import replaced

from magnetar_broker.transactions.issued import Issued
from magnetar_broker.transactions.orphan_candidates import OrphanCandidates


def held_never_asked() -> AbstractContextManager[None]:
    """The broker waits for the watermark to cover what nobody else will end (rule f)."""
    return replaced(OrphanCandidates, "to_ask", lambda *_: [])


def made_up_taken() -> AbstractContextManager[None]:
    """The broker does not ask whether a TxnID was issued (rule f)."""
    return replaced(Issued, "check", lambda *_: None)


PLANTS = (held_never_asked, made_up_taken)
