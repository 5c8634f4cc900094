"""Everything that a client sends and acknowledges in a transaction.

A participant has two parts: its sender or acks, which send commands to its broker, and its
enrollment, which names it to the coordinator. Nothing is sent before the transaction has its TxnID.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.transactions.begun import Begun, Participating
from magnetar.transactions.enrollment import Enrollment
from magnetar.transactions.writer_protocols import Acks, Sender
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2, transaction_pb2


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """The part of a client in a transaction that another client commits.

    Attributes:
        txn_id: the transaction.
        producers: the numbers of confirmed messages, by partition and producer id.
        consumers: the numbers of confirmed ack commands, by subscription and consumer id.
        seen_stamp: the highest stamp of a commit that the client knew; 0: none.
    """

    txn_id: TxnID
    producers: tuple[tuple[PartitionName, int, int], ...] = ()
    consumers: tuple[tuple[SubscriptionName, int, int], ...] = ()
    seen_stamp: int = 0


def commit_parts(parts: Sequence[TransactionPart]) -> transaction_pb2.CommandEndTxn:
    """Return the command that commits these parts, and nothing else in the transaction.

    Raises:
        InvalidArgument: there are no parts, or parts of several transactions.
    """
    if len({part.txn_id for part in parts}) != 1:
        raise InvalidArgument("a commit takes the parts of one transaction, at least one")
    command = transaction_pb2.CommandEndTxn(
        txn_id=parts[0].txn_id.to_wire(),
        txn_action=common_pb2.COMMIT,
        counts_given=True,
        selection_given=True,
        seen_stamp=max(part.seen_stamp for part in parts),
    )
    selected: dict[int, None] = {}
    producers: dict[PartitionName, Any] = {}
    consumers: dict[SubscriptionName, Any] = {}
    for part in parts:
        for partition, producer_id, count in part.producers:
            if partition not in producers:
                produced = command.partition_counts.add(partition=partition.to_wire())
                producers[partition] = produced.producers
            producers[partition].add(writer_id=producer_id, count=count)
            selected[producer_id] = None
        for subscription, consumer_id, count in part.consumers:
            if subscription not in consumers:
                acked = command.subscription_counts.add(subscription=subscription.to_wire())
                consumers[subscription] = acked.consumers
            consumers[subscription].add(writer_id=consumer_id, count=count)
            selected[consumer_id] = None
    command.selected_writer_ids.extend(sorted(selected))
    return command


class Participants:
    """The participants of a transaction."""

    _enrollment: Enrollment | None = None
    _confirms = False
    # Whether nothing more comes: what is collected leaves as soon as it may.
    _is_complete = False
    # Whether plain sends were told to come after it.
    _leads = False
    _begun: Begun | None = None

    def __init__(self) -> None:
        self.senders: list[Sender] = []
        self.acks: list[Acks] = []

    def __len__(self) -> int:
        return len(self.senders) + len(self.acks)

    @property
    def taking_part(self) -> Participating:
        """The partitions to which it sends, and the subscriptions on which it acknowledges."""
        return Participating(
            {sender.name: sender.wire_name for sender in self.senders},
            {acks.name: acks.wire_name for acks in self.acks},
        )

    def add_sender(self, sender: Sender) -> None:
        """Add a partition to which a producer sends."""
        self.senders.append(sender)
        if self._enrollment is not None:
            self._begin_sender(self._enrollment, sender)

    def add_acks(self, acks: Acks) -> None:
        """Add a partition on which a consumer acknowledges."""
        self.acks.append(acks)
        if self._enrollment is not None:
            self._begin_acks(self._enrollment, acks)

    def begin(
        self,
        begun: Begun,
        taking_part: Participating,
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """Send commands from now on, since the transaction has begun.

        Args:
            taking_part: the participants that the coordinator knows already.
            on_failed: called when the coordinator does not take a participant.
        """
        self._begun = begun
        enrollment = self._enrollment = Enrollment(begun, taking_part, on_failed)
        if self._confirms:
            enrollment.confirm_soon()
        for sender in self.senders:
            self._begin_sender(enrollment, sender)
        for acks in self.acks:
            self._begin_acks(enrollment, acks)
        if self._is_complete:
            self._close_all()

    def confirm_soon(self) -> None:
        """Have the coordinator confirm all participants, since a caller waits for that."""
        self._confirms = True
        if self._enrollment is not None:
            self._enrollment.confirm_soon()

    def _begin_sender(self, enrollment: Enrollment, sender: Sender) -> None:
        assert self._begun is not None
        enrollment.partition(sender.name, sender.wire_name)
        sender.begin(self._begun)

    def _begin_acks(self, enrollment: Enrollment, acks: Acks) -> None:
        assert self._begun is not None
        enrollment.subscription(acks.name, acks.wire_name)
        acks.begin(self._begun)

    async def enrolled(self) -> None:
        """Wait until the coordinator knows all participants, or on_failed was called."""
        if self._enrollment is not None:
            await self._enrollment.answered()

    async def drain(self) -> None:
        """Wait until everything sent is confirmed or has failed, and all are enrolled."""
        for sender in self.senders:
            if sender.has_unanswered:
                await sender.drain()
        for acks in self.acks:
            if acks.has_unanswered:
                await acks.drain()
        if self._enrollment is not None and not self._enrollment.is_answered:
            await self._enrollment.answered()

    def complete(self) -> None:
        """Send everything that is collected as soon as it may leave: nothing more comes.

        Plain sends of the same producers to the same partitions were sent before the commit, so
        they come before its markers.
        """
        self._is_complete = True
        if self._begun is not None:
            self._close_all()

    async def flush(self) -> None:
        """Drain, and wait for the plain sends that come before the commit."""
        await self.drain()
        for sender in self.senders:
            plain = sender.plain
            if plain is not None and plain.has_unanswered and sender.failure is None:
                await plain.drain()

    def _close_all(self) -> None:
        for sender in self.senders:
            sender.close_batch()
            if sender.plain is not None:
                sender.plain.close_batch()
        for acks in self.acks:
            acks.close_command()

    def abandon(self, error: MagnetarError) -> None:
        """Drop buffered messages; answers that are under way still count."""
        for sender in self.senders:
            sender.abandon(error)
        for acks in self.acks:
            acks.abandon(error)

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        for sender in self.senders:
            sender.give_up(error)
        for acks in self.acks:
            acks.give_up(error)

    def commit_command(self) -> transaction_pb2.CommandEndTxn:
        """Return the command COMMIT, with the confirmed counts (rule g)."""
        assert self._begun is not None
        assert self._enrollment is not None
        identity = self._begun.identity
        command = transaction_pb2.CommandEndTxn(
            txn_id=self._begun.wire_id,
            txn_action=common_pb2.COMMIT,
            counts_given=True,
            identity=None if identity is None else identity.to_wire(),
        )
        producers = {}
        for partition, wire in self._enrollment.partitions.items():
            partition_counts = command.partition_counts.add(partition=wire)
            producers[partition] = partition_counts.producers
        for sender in self.senders:
            producers[sender.name].add(writer_id=sender.producer_id, count=sender.confirmed_count)
        consumers = {}
        for subscription, subscription_wire in self._enrollment.subscriptions.items():
            subscription_counts = command.subscription_counts.add(subscription=subscription_wire)
            consumers[subscription] = subscription_counts.consumers
        for acks in self.acks:
            consumers[acks.name].add(writer_id=acks.consumer_id, count=acks.confirmed_count)
        return command

    def part(self, txn_id: TxnID) -> TransactionPart:
        """Return the counts that were confirmed to this client."""
        return TransactionPart(
            txn_id,
            tuple(
                (sender.name, sender.producer_id, sender.confirmed_count) for sender in self.senders
            ),
            tuple((one.name, one.consumer_id, one.confirmed_count) for one in self.acks),
        )

    def lead_plain_sends(self) -> None:
        """Put the producers' later plain sends behind this transaction's messages (order, k).

        It has an effect only once: if the outcome is learned late, later transactions lead by then.
        """
        if self._leads:
            return
        self._leads = True
        for sender in self.senders:
            sender.lead_plain_sends()

    def release(self, *, committed: bool) -> None:
        """Tell producers and consumers that the transaction has ended, and forget them."""
        if self._enrollment is not None:
            self._enrollment.seal()
        if self._begun is not None:
            if committed:
                self.lead_plain_sends()
            elif not self._leads:
                # Nothing of it becomes visible: whatever the producer followed before still leads.
                for sender in self.senders:
                    sender.pass_on()
        for acks in self.acks:
            acks.on_ended(committed)
        for sender in self.senders:
            sender.retire()
        for acks in self.acks:
            acks.retire()
        self.senders.clear()
        self.acks.clear()
