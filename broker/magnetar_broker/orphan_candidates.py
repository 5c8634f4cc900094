"""Which participants hold transactions of which their coordinators may not know. Pure.

A participant that its coordinator knows is told the end. One that was never added, or that made a
transaction up, is not: so coordinators are asked about whatever has been open for a moment, again
and again until they say that they know it, or end it.
Source: docs/design/0001-protocol.md, What nobody else would end; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

Participant = PartitionName | SubscriptionName

# Younger ones are left out: most transactions end before, and their participants are being added.
ORPHAN_AGE_MS_MIN = 500
# Asked about in one answer; the others come in the next ones.
ORPHANS_LISTED_MAX = 10_000
# Of their names too: the coordinator repeats those it knows in one command.
ORPHANS_LISTED_BYTES_MAX = 512 << 10
# Of one, besides its names.
_PLACE_BYTES = 48


class OrphanCandidates:
    """Open transactions by coordinator and participant, without those that are known."""

    def __init__(self) -> None:
        # With the time of the opening; who was asked about last comes last.
        self._unknown: dict[int, dict[tuple[TxnID, Participant], float]] = {}

    def opened(self, txn_id: TxnID, participant: Participant, now_ms: float) -> None:
        """A transaction has begun to write there."""
        self._unknown.setdefault(txn_id.tcid, {})[txn_id, participant] = now_ms

    def known(self, txn_id: TxnID, participant: Participant) -> None:
        """Its coordinator knows that it takes part, or it has ended there."""
        some = self._unknown.get(txn_id.tcid)
        if some is not None:
            some.pop((txn_id, participant), None)

    def tcids(self) -> list[int]:
        return [tcid for tcid, some in self._unknown.items() if some]

    def of(self, tcid: int) -> list[tuple[TxnID, Participant]]:
        """All of a coordinator's."""
        return list(self._unknown.get(tcid, ()))

    def to_ask(
        self, tcid: int, now_ms: float, *, at_once: Callable[[TxnID], bool] = lambda _: False
    ) -> list[tuple[TxnID, Participant]]:
        """About which the coordinator is to be asked now.

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
    """On the wire, at most."""
    size = _PLACE_BYTES + len(participant.topic.encode())
    if isinstance(participant, SubscriptionName):
        size += len(participant.subscription.encode())
    return size
