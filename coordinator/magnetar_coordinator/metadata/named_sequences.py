"""Named sequences: work that counts once, however often it is tried.

A name remembers the last committed sequence, and an open transaction, if any, of a sequence which
a client began with a run token. All clients with the same token share the transaction;
another token is another run of the same work, and aborts the transaction of the earlier run. A
fingerprint distinguishes other work under the same number from a repeat. Pure.
Source: docs/design/0002-two-phase-commit.md, Named sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from magnetar_coordinator.metadata.transaction import TxnAction
from magnetar_core.errors import SequenceCommitted, SequenceDiffers, SequenceTooOld
from magnetar_core.ids import TxnID


class NamedSequence(NamedTuple):
    """A run of a piece of work; without a fingerprint its content is not known (yet)."""

    name: str
    sequence: int
    run_token: str
    fingerprint: str = ""

    def is_same_run(self, other: NamedSequence) -> bool:
        """Return whether both have the same name, sequence and run token."""
        return self[:3] == other[:3]


@dataclass(frozen=True, slots=True)
class NamedSequenceState:
    """State of a name, as it is stored.

    Attributes:
        committed: the last committed sequence; None: none was.
        open: the open sequence of this name, and the TxnID of its transaction.
        fingerprint: fingerprint of the last committed sequence's content; empty: none was given.
    """

    name: str
    committed: int | None = None
    open: NamedSequence | None = None
    open_txn_id: TxnID | None = None
    fingerprint: str = ""


class SequenceVerdict(IntEnum):
    """Reaction to a requested sequence."""

    BEGIN = 0
    JOIN = 1
    ABORT_AND_BEGIN = 2


def judge(name: NamedSequenceState, asked: NamedSequence) -> SequenceVerdict:
    """Return the reaction to a requested sequence; changes nothing.

    Raises:
        SequenceCommitted: the sequence is committed, or being committed.
        SequenceDiffers: another content is committed under this number; or the run has begun with
            another content.
        SequenceTooOld: a later sequence is committed.
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
    """Add a client to the open run; its request may tell the content's fingerprint."""
    assert name.open is not None
    if not asked.fingerprint or name.open.fingerprint:
        return name
    return replace(name, open=asked)


def begun(name: NamedSequenceState, asked: NamedSequence, txn_id: TxnID) -> NamedSequenceState:
    """Note that the transaction of this sequence has begun."""
    return replace(name, open=asked, open_txn_id=txn_id)


def fixed(name: NamedSequenceState, action: TxnAction, fingerprint: str) -> NamedSequenceState:
    """Note that the outcome of its open transaction is fixed.

    Args:
        fingerprint: fingerprint of the content, if only the commit tells it; empty otherwise.
    """
    assert name.open is not None
    if action is not TxnAction.COMMIT:
        return replace(name, open=None, open_txn_id=None)
    return NamedSequenceState(
        name.name, name.open.sequence, fingerprint=fingerprint or name.open.fingerprint
    )
