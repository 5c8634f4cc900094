"""Mistakes that every test of whole cuts has to find."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.messaging.reader import RangeReader
from magnetar_coordinator.transactions.transaction_table import TransactionTable


def nothing_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts do not wait for commits that are decided and not finished."""
    monkeypatch.setattr(TransactionTable, "unfinished_up_to", lambda self, stamp: [])


def everything_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take all that lies below the ends of a cut."""
    init = RangeReader.__init__

    def without_cut(self: RangeReader, *args: Any, **how: Any) -> None:
        init(self, *args, **{**how, "cut": None})

    monkeypatch.setattr(RangeReader, "__init__", without_cut)
