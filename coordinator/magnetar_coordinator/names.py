"""Named sequences: work that counts once, however often it is tried.

A name remembers the last sequence that was committed, and at most one open transaction: that of a
sequence, asked for with a run token. All who bring the same token share it; another token is
another run of the same work, and aborts what the earlier one left. Pure.
Source: docs/design/two_phase_commit.md, Named sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from magnetar_coordinator.transaction import TxnAction
from magnetar_core.errors import SequenceCommitted, SequenceTooOld
from magnetar_core.ids import TxnID


class NamedSequence(NamedTuple):
    """A run of a piece of work."""

    name: str
    sequence: int
    run_token: str


@dataclass(frozen=True, slots=True)
class Name:
    """As it is stored.

    Attributes:
        committed: the last committed sequence; None: none was.
        open: what is open in this name, and in which transaction.
    """

    name: str
    committed: int | None = None
    open: NamedSequence | None = None
    open_txn_id: TxnID | None = None


class Verdict(IntEnum):
    """What to do about an asked-for sequence."""

    BEGIN = 0
    JOIN = 1
    ABORT_AND_BEGIN = 2


def judge(name: Name, asked: NamedSequence) -> Verdict:
    """Changes nothing.

    Raises:
        SequenceCommitted: it is committed, or being committed.
        SequenceTooOld: a later one is.
    """
    if name.committed is not None:
        if asked.sequence == name.committed:
            raise SequenceCommitted(
                f"sequence {asked.sequence} of {name.name!r} is committed", sequence=asked.sequence
            )
        if asked.sequence < name.committed:
            raise SequenceTooOld(
                f"sequence {asked.sequence} of {name.name!r} comes before {name.committed}, which"
                " is committed",
                committed_sequence=name.committed,
            )
    if name.open is None:
        return Verdict.BEGIN
    return Verdict.JOIN if name.open == asked else Verdict.ABORT_AND_BEGIN


def begun(name: Name, asked: NamedSequence, txn_id: TxnID) -> Name:
    """The transaction of this sequence has begun."""
    return replace(name, open=asked, open_txn_id=txn_id)


def fixed(name: Name, action: TxnAction) -> Name:
    """The outcome of its open transaction is fixed."""
    assert name.open is not None
    committed = name.open.sequence if action is TxnAction.COMMIT else name.committed
    return Name(name.name, committed)
