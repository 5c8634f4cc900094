"""Order of a producer across transactions: who follows whom here, and who waits for that (rule k).

A transaction is *settled* here when it has ended and all that it followed is settled. Who follows
it waits for that, and not for its end alone: an aborted one shows nothing, but what it followed may
still come, and comes before. One that has ended and is not settled *passes on* what it followed.

    open --end--> passes on --what it followed is settled--> settled
      \\______________________end______________________________/

What waited is called from a queue, one after the other and some thousand in a turn of the event
loop: so a chain of any length ends without calls inside calls, and others have their turn.
Pure.
Source: docs/design/0001-protocol.md, Order (k).
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, KeysView

from magnetar_broker.transaction_index import End, EndPlan, OpenTransaction, TransactionIndex
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant

log = logging.getLogger(__name__)

Call = Callable[[], None]

CALLS_IN_A_TURN_MAX = 1_000


class Order:
    """Says who follows whom in one partition, and calls those who waited.

    Args:
        index: which transactions are open here, and which have ended.
        in_another_turn: makes a call in a later turn of the event loop.
    """

    def __init__(self, index: TransactionIndex, in_another_turn: Callable[[Call], None]) -> None:
        self._index = index
        self._in_another_turn = in_another_turn
        # By who passes it on: what it followed that is not settled. Insertion order, as below.
        self._passing: dict[TxnID, dict[TxnID, None]] = {}
        # By what they followed: who passes it on.
        self._heirs: dict[TxnID, list[TxnID]] = {}
        # By the transaction that they wait for.
        self._parked: dict[TxnID, list[Call]] = {}
        self._ready: deque[Call] = deque()
        self._calling = False

    def check(self) -> None:
        """Our bugs assert; clients' mistakes raise."""
        assert not self._passing.keys() & self._index.open.keys()
        for txn_id, followed in self._passing.items():
            assert txn_id in self._index.ended
            assert followed
            for one in followed:
                assert self.is_unsettled(one)
                assert txn_id in self._heirs[one]
        # Nobody would ever call them.
        assert all(self.is_unsettled(txn_id) for txn_id in self._parked)

    def is_unsettled(self, txn_id: TxnID) -> bool:
        return txn_id in self._index.open or txn_id in self._passing

    @property
    def passing(self) -> KeysView[TxnID]:
        """Those that have ended here and pass on what they followed."""
        return self._passing.keys()

    def to_follow(self, txn_id: TxnID, writer_id: int, named: Iterable[TxnID]) -> tuple[TxnID, ...]:
        """What a writer's first message in a transaction makes that follow, of those it names.

        Raises:
            InvalidArgument: one of these itself waits for `txn_id`: neither would ever end.
        """
        follows = tuple(
            dict.fromkeys(one for one in named if one != txn_id and self.is_unsettled(one))
        )
        transaction = self._index.open.get(txn_id)
        # Nobody follows a transaction that is new here.
        if transaction is None or writer_id in transaction.writers:
            return follows
        if self._wait_for(follows, txn_id):
            raise InvalidArgument(
                f"transaction {txn_id} cannot follow {', '.join(map(str, follows))}: one of these"
                " waits for its end; send what comes after a transaction when that has ended"
            )
        return follows

    def _wait_for(self, txn_ids: Iterable[TxnID], other: TxnID) -> bool:
        """Whether any follows the other, directly or by way of others."""
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
        return itertools.chain.from_iterable(one.follows for one in transaction.writers.values())

    def awaited(self, plan: EndPlan) -> TxnID | None:
        """One that a commit's marker has to wait for: each writer that counts follows its own."""
        for one in plan.writers:
            for followed in one.writer.follows if one.kept else ():
                if self.is_unsettled(followed):
                    return followed
        return None

    def park(self, txn_id: TxnID, call: Call) -> None:
        """Make the call when the transaction is settled; it is not yet. It must not raise."""
        if not self.is_unsettled(txn_id):
            raise BrokenInvariant(f"{txn_id} is settled: nobody would make the call")
        self._parked.setdefault(txn_id, []).append(call)

    def ended(self, end: End, transaction: OpenTransaction | None) -> tuple[TxnID, ...]:
        """A transaction ends here. Calls nobody: that is run()'s part.

        Returns:
            What it passes on: its row says so, for a broker that restarts.
        """
        writers = transaction.writers.values() if transaction is not None else ()
        if end.is_unissued:
            # Who made it up has passed nothing on.
            writers = ()
        followed = dict.fromkeys(
            itertools.chain.from_iterable(writer.follows for writer in writers)
        )
        unsettled = tuple(one for one in followed if self.is_unsettled(one))
        if unsettled:
            self._pass_on(end.txn_id, unsettled)
        else:
            self._settle(end.txn_id)
        return unsettled

    def restore(self) -> None:
        """Take back what ended transactions pass on, when all rows of the index were read."""
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
        """Neither open nor passing on any more: whoever waited may go on."""
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
        """Make the calls of those who may go on, in the order in which they may."""
        if self._calling:
            return
        self._calling = True
        for _ in range(CALLS_IN_A_TURN_MAX):
            if not self._ready:
                break
            try:
                self._ready.popleft()()
            except Exception:
                # A bug; those behind it shall not wait for ever.
                log.exception("a command that had waited for a transaction failed")
        if self._ready:
            self._in_another_turn(self._go_on)
        else:
            self._calling = False

    def _go_on(self) -> None:
        self._calling = False
        self.run()
