"""A consumer that is a member of a group, which assigns partitions of several topics to it.

Source: docs/design/0003-groups.md, The client; KIP-447; KIP-848.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from magnetar.arguments import check_of, checked, number
from magnetar.config import ConsumerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.groups.assigned_receivers import AssignedReceivers
from magnetar.groups.member_state import Assigned, Instruction, Kept, Lost, Release, Revoked
from magnetar.groups.memberships import Memberships
from magnetar.groups.offsets import Offsets
from magnetar.groups.rebalance_callbacks import RebalanceCallbacks, place_of
from magnetar.groups.settings import Callbacks, GroupSettings
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar.message import Message, MessageColumns
from magnetar.messaging.consumer_base import Acknowledged, ConsumerBase
from magnetar.messaging.dead_letters import DeadLetters
from magnetar.messaging.fast_lane import NOTHING_LENT, LentMessages
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.messaging.partition_ownership import PartitionOwnership
from magnetar.messaging.partition_receiver import PartitionReceiver
from magnetar.messaging.permits import PrefetchBudget
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import NOT_GIVEN, NotGiven, given
from magnetar_core.errors import IllegalGeneration, InvalidArgument, MagnetarError
from magnetar_core.ids import MessageId, PartitionName

log = logging.getLogger("magnetar")

MEMBER_ID_BITS = 128
# How much later than it happened the group may learn that the application received a message.
LOAN_MS_MAX = 100.0

_check_offsets = check_of(Mapping[TopicPartition, int])


class GroupConsumer(ConsumerBase):
    """Receives messages as a member of a group. `Client.consumer_group` makes it.

    A call of `receive` tells the group that the application has finished with the messages before.
    The consumer then gives back the partitions that the group has revoked, and messages that are
    not acknowledged go to the next owner. Until then, and until its transactions have ended, the
    application keeps these partitions.

    Messages of a lost partition can no longer be acknowledged: that raises IllegalGeneration, even
    if the partition was assigned to this consumer again.

        orders = await client.consumer_group("billing", "orders", initial_position="earliest")
        for message in await orders.poll():
            await orders.ack(message)
    """

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        settings: GroupSettings,
        config: ConsumerConfig,
        prefetch: PrefetchBudget,
        callbacks: Callbacks,
        on_close: Callable[[GroupConsumer], None],
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(runtime, settings.group, SubscriptionType.EXCLUSIVE, dead_letters)
        self.consumer_id = runtime.new_id()
        self.member_id = f"{runtime.random.getrandbits(MEMBER_ID_BITS):032x}"
        # For what is built on top of this consumer.
        self.cluster = cluster
        self._settings = settings
        self._on_close = on_close
        self._closing = False
        self._callbacks = RebalanceCallbacks(
            runtime,
            settings.group,
            callbacks,
            on_failed=self._note_change,
            owner=self.fail,
        )
        self._receivers = AssignedReceivers(
            runtime,
            cluster,
            settings,
            config,
            prefetch,
            self._type,
            settings.instance_id or self.member_id,
            self._order,
            self._note_change,
            received_by=self.consumer_id,
        )
        self._settled = asyncio.Event()
        self._memberships = Memberships(
            runtime,
            cluster,
            settings,
            self.member_id,
            follow=self._follow,
            on_failed=self.fail,
        )

    async def started(self) -> None:
        """Wait until the consumer is a member for the first time.

        Raises:
            MagnetarError: a broker refused the member, or no broker answered in time.
        """
        await self._memberships.started()

    async def joined(self, timeout_s: float | None = None) -> int:
        """Wait until the consumer is a member of its group, also after it had to leave.

        With several brokers it is a member at all that answer. A broker that is away is joined in
        the background, and does not delay this call.

        Args:
            timeout_s: how many seconds to wait; None: without limit.
        Returns:
            The generation of the group.
        Raises:
            TimeoutError: the consumer did not become a member in time.
            FencedInstance: a newer member has its instance id.
        """
        self._require_usable()
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        async with asyncio.timeout(timeout_s):
            return await self._memberships.joined()

    @property
    def group(self) -> str:
        """The group's name."""
        return self.subscription

    @property
    def instance_id(self) -> str:
        """The instance id of a static member; empty for a dynamic member."""
        return self._settings.instance_id

    @property
    def generation(self) -> int:
        """The generation of the group, as far as this member knows it; 0 while it is not a member.

        With several brokers it is the highest of theirs: each counts for its own partitions.
        """
        return self._memberships.generation

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this member has and keeps."""
        return tuple(
            place_of(name) for name, receiver in self._receivers.items() if not receiver.stopped
        )

    @property
    def waiting_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that wait until transactions of earlier owners have ended."""
        return tuple(
            place_of(name) for name, receiver in self._receivers.items() if receiver.waiting
        )

    async def poll(self, timeout_s: float = 5.0, max_messages: int = 1_000) -> list[Message]:
        """Do the same as receive_batch, under the name that KIP-447 uses."""
        return await self.receive_batch(max_messages, timeout_s)

    async def ack_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Acknowledge all messages that this consumer has received below offsets.

        Args:
            offsets: for each partition the offset of the next message to process. With the result
                of `offsets()`, messages that were acknowledged before are an error as well.
            txn: as for ack.
        Raises:
            InvalidArgument: the consumer has not received messages up to this offset. The
                transaction, if there is one, has failed.
            IllegalGeneration: the consumer does not have the partition, or has received nothing
                since it was assigned again. The transaction, if there is one, has failed.
            TransactionConflict: as ack.
        """
        txn = given(txn, self._runtime, "ack")
        if txn is None:
            _check_offsets("offsets", offsets)
            found = self._up_to(offsets, None)
            await asyncio.gather(*(receiver.ack(ranges) for receiver, ranges in found))
            return
        try:
            _check_offsets("offsets", offsets)
            txn.work.require_open()
            work = txn.work
            await self._ack_in_transaction(self._up_to(offsets, work.number), work)
        except BaseException as error:
            self._fail(txn, error)
            raise

    def _up_to(
        self, offsets: Mapping[TopicPartition, int], number: int | None
    ) -> list[tuple[PartitionReceiver, list[Range]]]:
        """Return the received messages below offsets that are not acknowledged.

        Args:
            number: that of the transaction that acknowledges it, if there is one.
        """
        self._require_usable()
        found: list[tuple[PartitionReceiver, list[Range]]] = []
        for place, offset in offsets.items():
            receiver = self._receivers.meant(TopicPartition(*place), offsets)
            receiver.queue.check_given(offset)
            unacked = receiver.unacked
            ranges = IntervalSet(unacked.given_up_to(offset - 1, number) if offset else ())
            if isinstance(offsets, Offsets):
                ranges.add_all(offsets.messages[place])
                if number is not None:
                    ranges.remove_all(unacked.acked_in(number))
            if ranges:
                found.append((receiver, list(ranges)))
        return found

    @checked
    async def seek(
        self,
        partition: TopicPartition,
        *,
        offset: int | None = None,
        message_id: MessageId | None = None,
        append_time_ms: int | None = None,
        position: InitialPosition | str | None = None,
    ) -> int:
        """Move the group's cursor on a partition of this member.

        Give exactly one of `offset`, `message_id`, `append_time_ms` and `position`. Messages of the
        partition that were received before can no longer be acknowledged: those behind the new
        cursor are delivered again, the others are not.

        Args:
            partition: the partition.
            offset: the offset of the next message to receive.
            message_id: the id of the next message to receive.
            append_time_ms: milliseconds since the Unix epoch: the next message is the first that
                was stored at this time or later.
            position: "earliest" or "latest".
        Returns:
            The new offset.
        Raises:
            IllegalGeneration: this consumer does not have the partition. No effect.
            ResourceInUse: acks are pending in transactions. No effect.
        """
        self._require_usable()
        receiver = self._receivers.at(TopicPartition(*partition))
        return await self._seek(receiver, offset, message_id, append_time_ms, position)

    @checked
    def has(self, message: Message) -> bool:
        """Whether a message can still be acknowledged, since its partition was not given away."""
        return self._receivers.by_number(message.batch.receiver) is not None

    def redeliver(self) -> None:
        """Let all messages come again, in order, that were received and not acknowledged.

        The application must drop the messages that it has. Cursors do not move. Call it when a
        batch was dropped, for example after an abort: messages that were acknowledged in the
        transaction come again in any case, the others do not.
        TransactionalProducer.init_transactions() calls it.
        """
        self._require_usable()
        for receiver in self._order:
            if any(receiver.settling):
                receiver.reset()

    async def flush_acks(self) -> None:
        """Wait until all acks outside of transactions are confirmed.

        Raises:
            IllegalGeneration: an ack came too late: its partition was given away.
            MagnetarError: an ack by `ack_nowait` has failed. This is the first such failure.
        """
        await super().flush_acks()
        await self._receivers.flush_late()

    @checked
    async def close(self, *, leave: bool | None = None) -> None:
        """Confirm pending acks and give all partitions back.

        Args:
            leave: whether to leave the group at once. By default a dynamic member leaves. A static
                member does not leave, and gets the same partitions again if it restarts within the
                session timeout.
        """
        self._runtime.require_loop()
        if self._closing:
            return
        self._closing = True
        self._on_close(self)
        try:
            await self._callbacks.close()
        finally:
            # At once: a close that is cancelled does not reach its end.
            self._closed = True
            self._note_change()
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await self._receivers.close()
        if leave is None:
            leave = not self._settings.instance_id
        await self._memberships.close(leave=leave)

    # The base class calls these.

    def _receive_begins(self) -> None:
        self._require_usable()
        self._memberships.receive_begins()
        if self._memberships.has_revoked:
            self._review()

    def _receive_ends(self) -> None:
        self._memberships.receive_ends()

    def _lend(self, columns: MessageColumns) -> None:
        """Lend for a moment only: the group has to know when the application received last."""
        if self._memberships.has_revoked:
            return
        super()._lend(columns)
        lent = self.lane.lent
        if lent is not NOTHING_LENT:
            loan_ms = min(LOAN_MS_MAX, self._settings.max_poll_interval_s * 100)
            self._runtime.call_later(self.fail, loan_ms, self._end_loan_of, lent)

    def _end_loan_of(self, lent: LentMessages) -> None:
        if lent is self.lane.lent:
            self._end_loan()
        if lent.received_count:
            self._memberships.received()

    def _raise_troubles(self) -> None:
        failure = self._callbacks.take_failure()
        if failure is not None:
            raise failure

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        if isinstance(message, Message):
            receiver = self._receivers.by_number(message.batch.receiver)
            if receiver is None:
                raise IllegalGeneration(
                    f"{message.topic}-partition-{message.partition} was given away since"
                    " this message was received"
                )
            return receiver
        topics = self._settings.topics
        if len(topics) != 1 or self._settings.pattern:
            raise InvalidArgument(
                "a MessageId names no topic, and this consumer may have several: give the Message"
            )
        receiver = self._receivers.at(TopicPartition(topics[0], message.partition))
        # What was received under an earlier assignment has the same id.
        if not receiver.unacked.was_given(message.offset):
            raise IllegalGeneration(
                f"{message} was not received since {receiver.name} was assigned, or is acknowledged"
            )
        return receiver

    # The membership calls these.

    def _follow(self, instructions: Sequence[Instruction]) -> None:
        if instructions:
            self._take_the_long_way()
        assigned: list[PartitionName] = []
        lost: list[PartitionName] = []
        released: list[PartitionName] = []
        for instruction in instructions:
            receiver = self._receivers.get(instruction.partition)
            if isinstance(instruction, Assigned):
                assigned.append(instruction.partition)
            elif isinstance(instruction, Revoked):
                if receiver is not None:
                    receiver.stop()
            elif isinstance(instruction, Kept):
                if receiver is not None:
                    receiver.resume()
                else:
                    assigned.append(instruction.partition)
            elif isinstance(instruction, Release):
                released.append(instruction.partition)
            elif isinstance(instruction, Lost):
                lost.append(instruction.partition)
                self._receivers.lose(instruction.partition)
        if lost:
            self._callbacks.later(partial(self._callbacks.lost, lost))
        if assigned:
            self._callbacks.later(partial(self._attach, assigned))
        if released:
            self._callbacks.later(partial(self._release, released))
        if self._memberships.has_revoked:
            self._review()

    def _review(self) -> None:
        released = self._memberships.review(self._receivers.settling)
        if released:
            self._follow(released)

    def _on_settled(self) -> None:
        self._settled.set()
        if self._memberships.has_revoked:
            self._review()

    def _on_lost(self, name: PartitionName, since: int, error: MagnetarError) -> None:
        """The partition's broker says so."""
        if self._closing:
            return
        log.info("%s since generation %d: %s", name, since, error)
        self._memberships.lost(name, since)

    # The callbacks come in order: this is done after those before it.

    async def _attach(self, names: list[PartitionName]) -> None:
        made: list[PartitionName] = []
        for name in names:
            since = self._memberships.since(name)
            try:
                route = await self._receivers.route(name)
            except MagnetarError as error:
                self._on_lost(name, since, error)
                continue
            wanted = self._memberships.holds(name, since) and self._receivers.get(name) is None
            if wanted and not self._closing:
                self._receivers.add(route, name, self._ownership(name, since))
                made.append(name)
        await self._callbacks.assigned(made)
        for name in made:
            receiver = self._receivers.get(name)
            if receiver is not None and receiver not in self._order:
                self._order.append(receiver)
        self._note_change()

    def _ownership(self, name: PartitionName, since: int) -> PartitionOwnership:
        return PartitionOwnership(
            self._memberships.identity(since),
            partial(self._on_lost, name, since),
            self._on_settled,
        )

    async def _release(self, names: list[PartitionName]) -> None:
        await self._callbacks.revoked(names)
        for name in names:
            self._runtime.spawn(self._finish_release(name), f"release {name}", self.fail)

    async def _finish_release(self, name: PartitionName) -> None:
        since = self._memberships.since(name)
        receiver = self._receivers.get(name)
        if receiver is not None:
            # The callback may have acknowledged in a transaction that goes on.
            while receiver.settling.in_transactions:
                self._settled.clear()
                await self._settled.wait()
            await self._receivers.close_one(receiver)
            if self._receivers.get(name) is not receiver:
                return  # Lost meanwhile.
            self._receivers.forget(name)
        self._memberships.released(name, since)
