"""The work of a GroupConsumer: it is a member of a group, and follows what the group assigns.

Source: docs/design/0003-groups.md, The client; KIP-447; KIP-848.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from magnetar.arguments import check_of
from magnetar.config import ConsumerConfig
from magnetar.enums import InitialPosition, SubscriptionType
from magnetar.groups.assigned_receivers import AssignedReceivers
from magnetar.groups.member_state import Assigned, Instruction, Kept, Lost, Release, Revoked
from magnetar.groups.memberships import Memberships
from magnetar.groups.offsets import Offsets
from magnetar.groups.rebalance_callbacks import RebalanceCallbacks
from magnetar.groups.settings import Callbacks, GroupSettings
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar.message import Message, MessageColumns
from magnetar.messaging.consuming.consumer_work import Acknowledged, ConsumerWork
from magnetar.messaging.consuming.dead_letters import DeadLetters
from magnetar.messaging.interval_set import IntervalSet, Range
from magnetar.messaging.receiving.fast_lane import NOTHING_LENT, LentMessages
from magnetar.messaging.receiving.partition_ownership import PartitionOwnership
from magnetar.messaging.receiving.partition_receiver import PartitionReceiver
from magnetar.messaging.receiving.permits import PrefetchBudget
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


class MemberWork(ConsumerWork):
    """Follows the brokers' assignments, and receives and acknowledges at the partitions it has.

    Attributes:
        member_id: its name among the members of the group.
        cluster: the client's, for what is built on top of this consumer.
        settings: of its membership.
        receivers: those of the partitions that it has.
        memberships: at the brokers, of which each assigns its own partitions.
    """

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        settings: GroupSettings,
        config: ConsumerConfig,
        prefetch: PrefetchBudget,
        callbacks: Callbacks,
        on_close: Callable[[MemberWork], None],
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(runtime, settings.group, SubscriptionType.EXCLUSIVE, dead_letters)
        self.member_id = f"{runtime.random.getrandbits(MEMBER_ID_BITS):032x}"
        self.cluster = cluster
        self.settings = settings
        self._on_close = on_close
        self._closing = False
        self._callbacks = RebalanceCallbacks(
            runtime,
            settings.group,
            callbacks,
            on_failed=self._note_change,
            owner=self.fail,
        )
        self.receivers = AssignedReceivers(
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
        self.memberships = Memberships(
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
        await self.memberships.started()

    async def joined(self) -> int:
        """Wait until it is a member; see GroupConsumer.joined."""
        self._require_usable()
        return await self.memberships.joined()

    async def ack_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        txn: Transaction | NotGiven | None = NOT_GIVEN,
    ) -> None:
        """Acknowledge up to offsets; see GroupConsumer.ack_offsets."""
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
            receiver = self.receivers.meant(TopicPartition(*place), offsets)
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

    async def seek(
        self,
        partition: TopicPartition,
        offset: int | None,
        message_id: MessageId | None,
        append_time_ms: int | None,
        position: InitialPosition | str | None,
    ) -> int:
        """Move the group's cursor on a partition; see GroupConsumer.seek."""
        self._require_usable()
        receiver = self.receivers.at(TopicPartition(*partition))
        return await self._seek(receiver, offset, message_id, append_time_ms, position)

    def redeliver(self) -> None:
        """Let unacknowledged messages come again; see GroupConsumer.redeliver."""
        self._require_usable()
        for receiver in self._order:
            if any(receiver.settling):
                receiver.reset()

    async def flush_acks(self) -> None:
        """Wait until acks are confirmed; see GroupConsumer.flush_acks."""
        await super().flush_acks()
        await self.receivers.flush_late()

    async def close(self, *, leave: bool | None = None) -> None:
        """Give all partitions back; see GroupConsumer.close."""
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
        await self.receivers.close()
        if leave is None:
            leave = not self.settings.instance_id
        await self.memberships.close(leave=leave)

    # The base class calls these.

    def _receive_begins(self) -> None:
        self._require_usable()
        self.memberships.receive_begins()
        if self.memberships.has_revoked:
            self._review()

    def _receive_ends(self) -> None:
        self.memberships.receive_ends()

    def lend(self, columns: MessageColumns) -> None:
        """Lend for a moment only: the group has to know when the application received last."""
        if self.memberships.has_revoked:
            return
        super().lend(columns)
        lent = self.lane.lent
        if lent is not NOTHING_LENT:
            loan_ms = min(LOAN_MS_MAX, self.settings.max_poll_interval_s * 100)
            self._runtime.call_later(self.fail, loan_ms, self._end_loan_of, lent)

    def _end_loan_of(self, lent: LentMessages) -> None:
        if lent is self.lane.lent:
            self._end_loan()
        if lent.received_count:
            self.memberships.received()

    def _raise_troubles(self) -> None:
        failure = self._callbacks.take_failure()
        if failure is not None:
            raise failure

    def _receiver_of(self, message: Acknowledged) -> PartitionReceiver:
        if isinstance(message, Message):
            receiver = self.receivers.by_number(message.batch.receiver)
            if receiver is None:
                raise IllegalGeneration(
                    f"{message.topic}-partition-{message.partition} was given away since"
                    " this message was received"
                )
            return receiver
        topics = self.settings.topics
        if len(topics) != 1 or self.settings.pattern:
            raise InvalidArgument(
                "a MessageId names no topic, and this consumer may have several: give the Message"
            )
        receiver = self.receivers.at(TopicPartition(topics[0], message.partition))
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
            receiver = self.receivers.get(instruction.partition)
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
                self.receivers.lose(instruction.partition)
        if lost:
            self._callbacks.later(partial(self._callbacks.lost, lost))
        if assigned:
            self._callbacks.later(partial(self._attach, assigned))
        if released:
            self._callbacks.later(partial(self._release, released))
        if self.memberships.has_revoked:
            self._review()

    def _review(self) -> None:
        released = self.memberships.review(self.receivers.settling)
        if released:
            self._follow(released)

    def _on_settled(self) -> None:
        self._settled.set()
        if self.memberships.has_revoked:
            self._review()

    def _on_lost(self, name: PartitionName, since: int, error: MagnetarError) -> None:
        """The partition's broker says so."""
        if self._closing:
            return
        log.info("%s since generation %d: %s", name, since, error)
        self.memberships.lost(name, since)

    # The callbacks come in order: this is done after those before it.

    async def _attach(self, names: list[PartitionName]) -> None:
        made: list[PartitionName] = []
        for name in names:
            since = self.memberships.since(name)
            try:
                route = await self.receivers.route(name)
            except MagnetarError as error:
                self._on_lost(name, since, error)
                continue
            wanted = self.memberships.holds(name, since) and self.receivers.get(name) is None
            if wanted and not self._closing:
                self.receivers.add(route, name, self._ownership(name, since))
                made.append(name)
        await self._callbacks.assigned(made)
        for name in made:
            receiver = self.receivers.get(name)
            if receiver is not None and receiver not in self._order:
                self._order.append(receiver)
        self._note_change()

    def _ownership(self, name: PartitionName, since: int) -> PartitionOwnership:
        return PartitionOwnership(
            self.memberships.identity(since),
            partial(self._on_lost, name, since),
            self._on_settled,
        )

    async def _release(self, names: list[PartitionName]) -> None:
        await self._callbacks.revoked(names)
        for name in names:
            self._runtime.spawn(partial(self._finish_release, name), f"release {name}", self.fail)

    async def _finish_release(self, name: PartitionName) -> None:
        since = self.memberships.since(name)
        receiver = self.receivers.get(name)
        if receiver is not None:
            # The callback may have acknowledged in a transaction that goes on.
            while receiver.settling.in_transactions:
                self._settled.clear()
                await self._settled.wait()
            await self.receivers.close_one(receiver)
            if self.receivers.get(name) is not receiver:
                return  # Lost meanwhile.
            self.receivers.forget(name)
        self.memberships.released(name, since)
