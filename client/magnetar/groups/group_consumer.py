"""A consumer that is a member of a group, which assigns partitions of several topics to it.

Source: docs/design/0003-groups.md, The client; KIP-447; KIP-848.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from magnetar.arguments import checked, number
from magnetar.enums import InitialPosition
from magnetar.groups.member_work import MemberWork
from magnetar.groups.rebalance_callbacks import place_of
from magnetar.message import Message
from magnetar.messaging.consuming.consumer_base import ConsumerBase
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.transaction import Transaction
from magnetar.transactions.transaction_block import NOT_GIVEN, NotGiven
from magnetar_core.ids import MessageId


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

    work: MemberWork

    def __init__(self, work: MemberWork) -> None:
        """A member of a group.

        Args:
            work: what the other modules of the SDK use in its place.
        """
        super().__init__(work)
        self.member_id = work.member_id

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
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        async with asyncio.timeout(timeout_s):
            return await self.work.joined()

    @property
    def group(self) -> str:
        """The group's name."""
        return self.subscription

    @property
    def instance_id(self) -> str:
        """The instance id of a static member; empty for a dynamic member."""
        return self.work.settings.instance_id

    @property
    def generation(self) -> int:
        """The generation of the group, as far as this member knows it; 0 while it is not a member.

        With several brokers it is the highest of theirs: each counts for its own partitions.
        """
        return self.work.memberships.generation

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this member has and keeps."""
        return tuple(
            place_of(name) for name, receiver in self.work.receivers.items() if not receiver.stopped
        )

    @property
    def waiting_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that wait until transactions of earlier owners have ended."""
        return tuple(
            place_of(name) for name, receiver in self.work.receivers.items() if receiver.waiting
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
        await self.work.ack_offsets(offsets, txn=txn)

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
        return await self.work.seek(partition, offset, message_id, append_time_ms, position)

    @checked
    def has(self, message: Message) -> bool:
        """Whether a message can still be acknowledged, since its partition was not given away."""
        return self.work.receivers.by_number(message.batch.receiver) is not None

    def redeliver(self) -> None:
        """Let all messages come again, in order, that were received and not acknowledged.

        The application must drop the messages that it has. Cursors do not move. Call it when a
        batch was dropped, for example after an abort: messages that were acknowledged in the
        transaction come again in any case, the others do not.
        TransactionalProducer.init_transactions() calls it.
        """
        self.work.redeliver()

    async def flush_acks(self) -> None:
        """Wait until all acks outside of transactions are confirmed.

        Raises:
            IllegalGeneration: an ack came too late: its partition was given away.
            MagnetarError: an ack by `ack_nowait` has failed. This is the first such failure.
        """
        await self.work.flush_acks()

    @checked
    async def close(self, *, leave: bool | None = None) -> None:
        """Confirm pending acks and give all partitions back.

        Args:
            leave: whether to leave the group at once. By default a dynamic member leaves. A static
                member does not leave, and gets the same partitions again if it restarts within the
                session timeout.
        """
        await self.work.close(leave=leave)
