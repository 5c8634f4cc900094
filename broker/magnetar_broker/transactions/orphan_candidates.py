"""Participants with open transactions that their coordinators may not know. Pure.

A coordinator tells the end to participants that it knows. It does not know a participant that was
never added, or whose client invented the TxnID. So the broker asks coordinators about every
transaction that has been open for a moment, again and again, until they know it or end it.
Source: docs/design/0001-protocol.md, Orphaned participants; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

Participant = PartitionName | SubscriptionName

# Younger transactions are left out: most of them end before this age, or are still being added.
ORPHAN_AGE_MS_MIN = 500
# How many candidates an answer asks about; later answers ask about the others.
ORPHANS_LISTED_MAX = 10_000
# Limit of their names, too: the coordinator repeats all that it knows in a single command.
ORPHANS_LISTED_BYTES_MAX = 512 << 10
# Bytes of a candidate, besides its names.
_PLACE_BYTES = 48


class OrphanCandidates:
    """Open transactions by coordinator and participant, without those that coordinators know."""

    def __init__(self) -> None:
        # The values are the times of opening; the candidate that was asked about last comes last.
        self._unknown: dict[int, dict[tuple[TxnID, Participant], float]] = {}

    def opened(self, txn_id: TxnID, participant: Participant, now_ms: float) -> None:
        """Note that a transaction has begun to write at a participant."""
        some = self._unknown.get(txn_id[0] >> 48)
        if some is None:
            some = self._unknown[txn_id.tcid] = {}
        some[txn_id, participant] = now_ms

    def known(self, participant: Participant, txn_id: TxnID) -> None:
        """Note that the coordinator knows the participant, or the transaction has ended there."""
        some = self._unknown.get(txn_id[0] >> 48)
        if some is not None:
            some.pop((txn_id, participant), None)

    def of(self, tcid: int) -> list[tuple[TxnID, Participant]]:
        """Return all candidates of a coordinator."""
        return list(self._unknown.get(tcid, ()))

    def to_ask(
        self, tcid: int, now_ms: float, *, at_once: Callable[[TxnID], bool] = lambda _: False
    ) -> list[tuple[TxnID, Participant]]:
        """Return the candidates that the coordinator must be asked about now.

        Args:
            at_once: whether to ask about a transaction however short it has been open.
        """
        some = self._unknown.get(tcid)
        if not some:
            return []
        due: list[tuple[TxnID, Participant]] = []
        byte_count = 0
        for place, opened_ms in some.items():
            if now_ms - opened_ms >= ORPHAN_AGE_MS_MIN or at_once(place[0]):
                byte_count += _size_of(place[1])
                if byte_count > ORPHANS_LISTED_BYTES_MAX or len(due) == ORPHANS_LISTED_MAX:
                    break
                due.append(place)
        for place in due:
            some[place] = some.pop(place)
        return due


def _size_of(participant: Participant) -> int:
    """Return the largest possible size on the wire, in bytes."""
    size = _PLACE_BYTES + len(participant.topic.encode())
    if isinstance(participant, SubscriptionName):
        size += len(participant.subscription.encode())
    return size
