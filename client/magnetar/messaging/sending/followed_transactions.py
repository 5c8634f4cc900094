"""The transactions that a producer's next sends to a partition come after (order, k). Pure.

With many transactions at once the list is long, and every send names all of it. So it is put
together once for all sends between two changes, and what most sends need takes no step for each
transaction that they name.

Each transaction gets a number when it enters the list, and numbers only rise. So what is left of a
list that was seen earlier is the beginning of the present one.
Source: docs/design/0001-protocol.md, Order (k).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from magnetar_core.ids import TxnID
from magnetar_core.transport.columns.column import Pair

# What one send can come after, as brokers have it. Older ones are left out.
FOLLOWED_MAX = 100


class Followed(NamedTuple):
    """The list at a moment.

    Attributes:
        txn_ids: the newest is the last one.
        last_number: the number of the newest.
    """

    txn_ids: tuple[TxnID, ...]
    last_number: int


NOBODY = Followed((), 0)


class FollowedTransactions:
    """Transactions of a producer that have ended, and whose ends may be under way to a partition.

    None of them followed another.
    """

    __slots__ = ("_count", "_numbers", "_seen")

    def __init__(self) -> None:
        self._count = 0
        # In the order of the numbers.
        self._numbers: dict[TxnID, int] = {}
        # What now() returns, until something changes.
        self._seen: Followed | None = NOBODY

    def __len__(self) -> int:
        return len(self._numbers)

    def check(self) -> None:
        """Check the invariants."""
        assert list(self._numbers.values()) == sorted(set(self._numbers.values()))
        assert len(self._numbers) <= FOLLOWED_MAX

    def now(self) -> Followed:
        """Return the list as it is."""
        if self._seen is None:
            self._seen = self._look()
        return self._seen

    def _look(self) -> Followed:
        if not self._numbers:
            return NOBODY
        txn_ids = tuple(self._numbers)
        return Followed(txn_ids, self._numbers[txn_ids[-1]])

    def append(self, txn_id: TxnID) -> None:
        """Name a transaction as the newest; the oldest is left out if there are too many."""
        if txn_id in self._numbers:
            self._drop([txn_id])
        self._count += 1
        self._numbers[txn_id] = self._count
        if len(self._numbers) > FOLLOWED_MAX:
            self._drop([next(iter(self._numbers))])
        self._seen = None

    def forget(self, seen: Followed) -> None:
        """Stop naming the transactions that are left of an earlier list."""
        self._drop(self._left_of(seen))

    def forget_settled(self, seen: Followed, settled: Collection[Pair]) -> None:
        """Stop naming the transactions whose ends have reached the broker.

        Args:
            seen: the list that a send named.
            settled: those of it that the broker calls settled.
        """
        left = self._left_of(seen)
        # Most answers say what another one has said before, and then none is left to look for.
        if left and len(settled) < len(seen.txn_ids):
            named = frozenset(settled)
            left = [one for one in left if one in named]
        self._drop(left)

    def _left_of(self, seen: Followed) -> list[TxnID]:
        left = []
        for txn_id, number in self._numbers.items():
            if number > seen.last_number:
                break
            left.append(txn_id)
        return left

    def _drop(self, txn_ids: list[TxnID]) -> None:
        for txn_id in txn_ids:
            if self._numbers.pop(txn_id, None) is not None:
                self._seen = None
