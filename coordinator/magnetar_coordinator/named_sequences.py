"""Named sequences: work that counts once, however often it is tried.

A name remembers the last sequence that was committed, and at most one open transaction: that of a
sequence, asked for with a run token. All who bring the same token share it; another token is
another run of the same work, and aborts what the earlier one left. A fingerprint tells other work
that comes under the same number from a repeat. Pure.
Source: docs/design/0002-two-phase-commit.md, Named sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from magnetar_coordinator.transaction import TxnAction
from magnetar_core.errors import SequenceCommitted, SequenceDiffers, SequenceTooOld
from magnetar_core.ids import TxnID


class NamedSequence(NamedTuple):
    """A run of a piece of work; without a fingerprint its content is not known (yet)."""

    name: str
    sequence: int
    run_token: str
    fingerprint: str = ""

    def is_same_run(self, other: NamedSequence) -> bool:
        return self[:3] == other[:3]


@dataclass(frozen=True, slots=True)
class NamedSequenceState:
    """As it is stored.

    Attributes:
        committed: the last committed sequence; None: none was.
        open: what is open in this name, and in which transaction.
        fingerprint: of the content of the last committed sequence; empty: none was given.
    """

    name: str
    committed: int | None = None
    open: NamedSequence | None = None
    open_txn_id: TxnID | None = None
    fingerprint: str = ""


class SequenceVerdict(IntEnum):
    """What to do about an asked-for sequence."""

    BEGIN = 0
    JOIN = 1
    ABORT_AND_BEGIN = 2


def judge(name: NamedSequenceState, asked: NamedSequence) -> SequenceVerdict:
    """Changes nothing.

    Raises:
        SequenceCommitted: it is committed, or being committed.
        SequenceDiffers: so is another content under this number; or the run has begun with another.
        SequenceTooOld: a later one is.
    """
    if name.committed is not None:
        if asked.sequence == name.committed:
            if asked.fingerprint and name.fingerprint:
                _require_same(asked, name.fingerprint, "is committed")
            known = {"fingerprint": name.fingerprint} if name.fingerprint else {}
            raise SequenceCommitted(
                f"sequence {asked.sequence} of {name.name!r} is committed",
                sequence=asked.sequence,
                **known,
            )
        if asked.sequence < name.committed:
            raise SequenceTooOld(
                f"sequence {asked.sequence} of {name.name!r} comes before {name.committed}, which"
                " is committed",
                committed_sequence=name.committed,
            )
    if name.open is None:
        return SequenceVerdict.BEGIN
    if not name.open.is_same_run(asked):
        return SequenceVerdict.ABORT_AND_BEGIN
    if asked.fingerprint and name.open.fingerprint:
        _require_same(asked, name.open.fingerprint, "is open in this run")
    return SequenceVerdict.JOIN


def _require_same(asked: NamedSequence, fingerprint: str, state: str) -> None:
    if asked.fingerprint != fingerprint:
        raise SequenceDiffers(
            f"sequence {asked.sequence} of {asked.name!r} {state} with another content:"
            f" {fingerprint!r}, and this is {asked.fingerprint!r}",
            sequence=asked.sequence,
            fingerprint=fingerprint,
        )


def joined(name: NamedSequenceState, asked: NamedSequence) -> NamedSequenceState:
    """One more takes part in the open run: what it consists of may be known by now."""
    assert name.open is not None
    if not asked.fingerprint or name.open.fingerprint:
        return name
    return replace(name, open=asked)


def begun(name: NamedSequenceState, asked: NamedSequence, txn_id: TxnID) -> NamedSequenceState:
    """The transaction of this sequence has begun."""
    return replace(name, open=asked, open_txn_id=txn_id)


def fixed(name: NamedSequenceState, action: TxnAction, fingerprint: str) -> NamedSequenceState:
    """The outcome of its open transaction is fixed.

    Args:
        fingerprint: of the content, if only the commit tells it; empty otherwise.
    """
    assert name.open is not None
    if action is not TxnAction.COMMIT:
        return replace(name, open=None, open_txn_id=None)
    return NamedSequenceState(
        name.name, name.open.sequence, fingerprint=fingerprint or name.open.fingerprint
    )
