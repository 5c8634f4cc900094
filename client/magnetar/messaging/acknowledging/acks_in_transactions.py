"""The acks of transactions on a partition, and the messages that come again if they abort.

Source: docs/design/0001-protocol.md, Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from magnetar.enums import SubscriptionType
from magnetar.link.runtime import Runtime
from magnetar.link.topic_route import TopicRoute
from magnetar.messaging.acknowledging.acks import TransactionAcks
from magnetar.messaging.acknowledging.unacked_tracker import UnackedTracker
from magnetar.messaging.interval_set import Range
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import MemberName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2

if TYPE_CHECKING:
    from magnetar.transactions.transaction_work import TransactionWork

# Transactions that do not count, and whose ends may not have reached the broker.
AFTER_NOTED_MAX = 100


class AcksInTransactions:
    """The acks of a consumer on a partition, for each transaction."""

    def __init__(
        self,
        runtime: Runtime,
        route: TopicRoute,
        name: SubscriptionName,
        consumer_id: int,
        subscription_type: SubscriptionType,
        member: common_pb2.GroupMember | None,
        unacked: UnackedTracker,
        *,
        ask_again: Callable[[list[Range]], None],
        attach_again: Callable[[], None],
        on_ended: Callable[[], None],
        on_refused: Callable[[MagnetarError], bool],
    ) -> None:
        """No transaction has acknowledged anything yet.

        Args:
            member: the member that acknowledges, for a partition that a group has assigned.
            ask_again: asks the broker for messages of a transaction that was aborted.
            attach_again: attaches anew, so that such messages come before the later ones.
            on_ended: a transaction that had acknowledged here has ended.
            on_refused: whether an ack was refused because the group has given the partition away.
        """
        self.runtime = runtime
        self.route = route
        self.name = name
        self.consumer_id = consumer_id
        self.member = None if member is None else MemberName.from_wire(member)
        self._type = subscription_type
        self._unacked = unacked
        self._ask_again = ask_again
        self._attach_again = attach_again
        self._on_ended = on_ended
        self._on_refused = on_refused
        # By the transaction's number.
        self._acks: dict[int, TransactionAcks] = {}
        # Messages are not asked for before these have ended at the broker.
        self._after: dict[TxnID, None] = {}

    def __len__(self) -> int:
        return len(self._acks)

    @property
    def after(self) -> Collection[TxnID]:
        """The transactions whose ends must reach the broker before the next attachment."""
        return self._after.keys()

    def add(
        self, ranges: Sequence[Range], txn: TransactionWork, *, cumulative: bool, ledger_id: int
    ) -> TransactionAcks:
        """Acknowledge in a transaction, and return its acks, which have a receipt.

        Raises:
            InvalidTxnState: the transaction has ended, or failed. No effect.
            InvalidArgument: the transaction belongs to another client.
        """
        txn.require_open()
        acks = self._acks.get(txn.number)
        if acks is None:
            acks = self._enroll(txn)
        acks.add(ranges, cumulative=cumulative, ledger_id=ledger_id)
        return acks

    def doubt(self, numbers: Iterable[int]) -> None:
        """Note copies of messages that these transactions acknowledged: they may be aborted."""
        for number in numbers:
            if number in self._acks:
                self._acks[number].txn.doubt()

    def reset(self) -> None:
        """Note that earlier deliveries no longer count, and come again in order."""
        for number, acks in self._acks.items():
            # A delivery after its end is not a copy.
            self._unacked.forget_transaction(number)
            self._note_after(acks)

    def _enroll(self, txn: TransactionWork) -> TransactionAcks:
        txn.require_client(self.runtime)
        acks = self._acks[txn.number] = TransactionAcks(self, txn)
        txn.add_acks(acks)
        return acks

    # What the acks of a transaction tell.

    def confirmed(self, acks: TransactionAcks, ranges: Sequence[Range]) -> None:
        """Note that the broker has confirmed these acks."""
        self._unacked.ack_in_transaction_confirmed(acks.txn.number, ranges)

    def refused(self, error: MagnetarError) -> None:
        """Note the broker's refusal."""
        self._on_refused(error)

    def ended(self, acks: TransactionAcks, committed: bool) -> None:
        """Note how the transaction has ended."""
        del self._acks[acks.txn.number]
        wanted = self._unacked.end_transaction(acks.txn.number, committed=committed)
        if wanted:
            self._ask_again(wanted)
        if not committed and self._comes_in_order(acks, wanted):
            # The messages that it acknowledged come before the later ones.
            if self._type is SubscriptionType.EXCLUSIVE:
                self._note_after(acks)
            self._attach_again()
        self._on_ended()

    def _comes_in_order(self, acks: TransactionAcks, wanted: list[Range]) -> bool:
        """Whether it takes another attachment for what came back of a transaction to be in order.

        What has to be asked for comes behind the rest, which came by itself or is on its way.
        """
        if self.member is not None:
            return acks.txn_id not in self._after
        return bool(wanted) and self._type is not SubscriptionType.SHARED

    def _note_after(self, acks: TransactionAcks) -> None:
        """Whatever is delivered from now on comes after the end of this transaction.

        Only for consumers that have the partition alone.
        """
        if acks.txn_id is not None:
            self._after[acks.txn_id] = None
            while len(self._after) > AFTER_NOTED_MAX:
                del self._after[next(iter(self._after))]
