r"""Order of a producer's transactions on a partition: which follow others, and wait (rule k).

A transaction is *settled* here when it has ended and all transactions that it followed are settled.
Its followers wait until it is settled, not only ended: an aborted transaction shows no messages,
but the transactions that it followed may still show theirs, which come before. A transaction that
has ended and is not settled *passes on* the transactions that it followed.

    open --end--> passes on --what it followed is settled--> settled
      \______________________end______________________________/

Waiting calls are made from a queue, one after the other and some thousand in a turn of the event
loop: so a chain of any length ends without nested calls, and other tasks have their turn. Pure.
Source: docs/design/0001-protocol.md, Order (k).
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, KeysView, Sequence

from magnetar_broker.transactions.transaction_index import (
    End,
    KeptWriter,
    OpenTransaction,
    TransactionIndex,
    Writer,
)
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant

log = logging.getLogger(__name__)

Call = Callable[[], None]

CALLS_IN_A_TURN_MAX = 1_000


class Order:
    """Knows which transaction follows which on a partition, and calls those that waited.

    Args:
        index: the transactions that are open here, and those that have ended.
        in_another_turn: makes a call in a later turn of the event loop.
    """

    def __init__(self, index: TransactionIndex, in_another_turn: Callable[[Call], None]) -> None:
        self._index = index
        self._in_another_turn = in_another_turn
        # For each transaction that passes on: the unsettled transactions that it followed.
        # Insertion order, as below.
        self._passing: dict[TxnID, dict[TxnID, None]] = {}
        # For each followed transaction: the transactions that pass it on.
        self._heirs: dict[TxnID, list[TxnID]] = {}
        # Waiting calls, by the transaction that they wait for.
        self._parked: dict[TxnID, list[Call]] = {}
        self._ready: deque[Call] = deque()
        self._calling = False

    def check(self) -> None:
        """Check the invariants."""
        assert not self._passing.keys() & self._index.open.keys()
        for txn_id, followed in self._passing.items():
            assert txn_id in self._index.ended
            assert followed
            for one in followed:
                assert self.is_unsettled(one)
                assert txn_id in self._heirs[one]
        # Otherwise these calls would never be made.
        assert all(self.is_unsettled(txn_id) for txn_id in self._parked)

    def is_unsettled(self, txn_id: TxnID) -> bool:
        return bool(self.unsettled((txn_id,)))

    def unsettled(self, txn_ids: Iterable[TxnID]) -> list[TxnID]:
        """Return the transactions that are not settled here, in their order."""
        opened, passing = self._index.open, self._passing
        return [one for one in txn_ids if one in opened or one in passing]

    def unsettled_of(self, named: Sequence[tuple[int, int]]) -> list[TxnID]:
        """Return the named transactions that are not settled here, in their order.

        Args:
            named: most and least bits of TxnIDs. A send may name a hundred.
        """
        if not named:
            return []
        opened, passing = self._index.open, self._passing
        # Mostly it is none of them, which takes no step of Python for each to find out.
        if opened.keys().isdisjoint(named) and passing.keys().isdisjoint(named):
            return []
        return [TxnID(*one) for one in named if one in opened or one in passing]

    @property
    def passing(self) -> KeysView[TxnID]:
        """The transactions that have ended here and pass on."""
        return self._passing.keys()

    def to_follow(self, txn_id: TxnID, writer_id: int, named: Sequence[TxnID]) -> tuple[TxnID, ...]:
        """Return the transactions that a writer's first message makes its transaction follow.

        Args:
            named: the transactions that the message names.
        Raises:
            InvalidArgument: one of them itself waits for `txn_id`: neither would ever end.
        """
        if not named:
            return ()
        follows = tuple(dict.fromkeys(one for one in self.unsettled(named) if one != txn_id))
        transaction = self._index.open.get(txn_id)
        # No transaction follows a transaction that is new here.
        if transaction is None or writer_id in transaction.writers:
            return follows
        if self._wait_for(follows, txn_id):
            raise InvalidArgument(
                f"transaction {txn_id} cannot follow {', '.join(map(str, follows))}: one of these"
                " waits for its end; send what comes after a transaction when that has ended"
            )
        return follows

    def _wait_for(self, txn_ids: Iterable[TxnID], other: TxnID) -> bool:
        """Return whether any transaction follows the other, directly or through others."""
        seen: dict[TxnID, None] = dict.fromkeys(txn_ids)
        to_visit = list(seen)
        while to_visit:
            for followed in self._followed_by(to_visit.pop()):
                if followed == other:
                    return True
                if followed not in seen:
                    seen[followed] = None
                    to_visit.append(followed)
        return False

    def _followed_by(self, txn_id: TxnID) -> Iterable[TxnID]:
        transaction = self._index.open.get(txn_id)
        if transaction is None:
            return self._passing.get(txn_id, ())
        return itertools.chain.from_iterable(
            writer.follows for writer in transaction.writers.values()
        )

    def awaited(self, writers: Iterable[KeptWriter]) -> TxnID | None:
        """Return a transaction that a commit's marker must wait for.

        A writer that counts follows it.
        """
        for writer, kept in writers:
            if kept and writer.follows:
                for followed in writer.follows:
                    if self.is_unsettled(followed):
                        return followed
        return None

    def park(self, txn_id: TxnID, call: Call) -> None:
        """Make the call when the transaction is settled.

        It is not settled yet; the call must not raise.
        """
        if not self.is_unsettled(txn_id):
            raise BrokenInvariant(f"{txn_id} is settled: the call would never be made")
        self._parked.setdefault(txn_id, []).append(call)

    def ended(self, end: End, transaction: OpenTransaction | None) -> tuple[TxnID, ...]:
        """Note that a transaction ends here. Makes no calls: run() does.

        Returns:
            The transactions that it passes on: its row keeps them for a restart.
        """
        # Of a dropped one nothing is left here that could follow.
        if transaction is not None and not end.is_dropped:
            unsettled = self._unsettled_of_writers(transaction.writers.values())
            if unsettled:
                self._pass_on(end.txn_id, unsettled)
                return unsettled
        if self._parked or self._heirs:
            self._settle(end.txn_id)
        return ()

    def _unsettled_of_writers(self, writers: Iterable[Writer]) -> tuple[TxnID, ...]:
        followed: dict[TxnID, None] | None = None
        for writer in writers:
            if writer.follows:
                followed = {**(followed or {}), **dict.fromkeys(writer.follows)}
        return () if followed is None else tuple(self.unsettled(followed))

    def restore(self) -> None:
        """Restore the order after ended transactions, when all rows of the index were read."""
        for txn_id, ended in self._index.ended.items():
            if ended.follows:
                self._passing[txn_id] = {}
        settled = []
        for txn_id in self._passing:
            followed = self._index.ended[txn_id].follows
            unsettled = [one for one in followed if self.is_unsettled(one)]
            self._pass_on(txn_id, unsettled)
            if not unsettled:
                settled.append(txn_id)
        for txn_id in settled:
            del self._passing[txn_id]
            self._settle(txn_id)

    def _pass_on(self, txn_id: TxnID, followed: Iterable[TxnID]) -> None:
        self._passing[txn_id] = dict.fromkeys(followed)
        for one in followed:
            self._heirs.setdefault(one, []).append(txn_id)

    def _settle(self, txn_id: TxnID) -> None:
        """Queue the calls that waited for a transaction: it is settled."""
        if txn_id not in self._parked and txn_id not in self._heirs:
            return
        settled = deque([txn_id])
        while settled:
            one = settled.popleft()
            self._ready += self._parked.pop(one, ())
            for heir in self._heirs.pop(one, ()):
                followed = self._passing[heir]
                del followed[one]
                if not followed:
                    del self._passing[heir]
                    settled.append(heir)

    def run(self) -> None:
        """Make the queued calls, in order."""
        if self._calling or not self._ready:
            return
        self._calling = True
        for _ in range(CALLS_IN_A_TURN_MAX):
            if not self._ready:
                break
            try:
                self._ready.popleft()()
            except Exception:
                # This is a bug; later calls must not wait for ever.
                log.exception("a command that had waited for a transaction failed")
        if self._ready:
            self._in_another_turn(self._go_on)
        else:
            self._calling = False

    def _go_on(self) -> None:
        self._calling = False
        self.run()
