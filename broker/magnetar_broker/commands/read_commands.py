"""Commands that read without a subscription: committed messages, and where they begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from magnetar_broker.commands.participant_descriptions import ParticipantDescriptions
from magnetar_broker.commands.skip_damaged import skip_damaged
from magnetar_broker.commands.stored_transactions import list_stored
from magnetar_broker.commands.uncommitted import peek_uncommitted
from magnetar_broker.commands.views import (
    PEEK_BYTES_MAX,
    Found,
    Peeked,
    describe_producers,
    messages_of,
)
from magnetar_broker.log.offset_set import Range
from magnetar_broker.log.stored_batch import StoredBatch
from magnetar_broker.replies import Replies
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import DataLoss, Gone
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import AnswerSizes, Handler, Reply, each_of
from magnetar_core.transport.spliced import Body, with_messages
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire.topic_pb2 import TopicRecord
from magnetar_storage.store import Store

READ_MESSAGES_DEFAULT = 1_000
READ_BYTES_DEFAULT = 1 << 20
PEEKED_DEFAULT = 10
# Reserved size of a list or a description; nearly all are far smaller.
DESCRIPTION_BYTES = 2 << 20


def read_bytes_max(command: wire.CommandRead) -> int:
    """Return how many bytes a Read gathers; the last batch may exceed them."""
    return min(command.bytes_max or READ_BYTES_DEFAULT, FRAME_BYTES_MAX // 4)


# Sizes of answers that are made only while the client takes them.
ANSWER_SIZES: AnswerSizes = {
    "read": read_bytes_max,
    # More than half of a client's budget, so that Peeks run in turn: each opens batches, and copies
    # messages that may be large.
    "peek": lambda _: 3 * PEEK_BYTES_MAX,
    **{
        name: lambda _: DESCRIPTION_BYTES
        for name in (
            "list_topics",
            "describe_topic",
            "describe_producers",
            "list_offsets",
            "list_stored_txns",
            "describe_participants",
            "list_groups",
            "describe_group",
        )
    },
}


class ReadCommands:
    """Handlers of commands that read. A task answers, since the store is read."""

    def __init__(self, store: Store, topics: Topics, replies: Replies) -> None:
        self._store = store
        self._topics = topics
        self._replies = replies
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "read": self._read,
                "peek": self._peek,
                "describe_producers": self._describe_producers,
                "list_offsets": self._list_offsets,
                "list_stored_txns": self._list_stored_txns,
                "describe_participants": self._describe_participants,
                "skip_damaged": self._skip_damaged,
            }
        )

    def _read(self, command: wire.CommandRead, reply: Reply) -> None:
        partition = self._topics.named(command.partition)
        self._replies.answer_later(reply, self._read_batches(partition, command))

    async def _read_batches(self, partition: Partition, command: wire.CommandRead) -> Body:
        found = await self._found(partition, command)
        response = wire.CommandReadResponse(
            ledger_id=partition.ledger_id,
            next_offset=found.next_offset,
            end_offset=found.end_offset,
        )
        batches = [one.to_wire(excluded) for one, excluded in found.batches]
        return with_messages(response, "batches", batches)

    async def _found(self, partition: Partition, command: wire.CommandRead) -> Found:
        # Offsets that were given up are skipped.
        start = partition.log.readable_from(command.start_offset)[0]
        try:
            stored = await partition.reader.read(
                start,
                bytes_max=read_bytes_max(command),
                messages_max=command.messages_max or READ_MESSAGES_DEFAULT,
            )
        except DataLoss:
            if partition.deleted:
                raise Gone(f"{partition.name} was deleted while it was read") from None
            raise
        batches: list[tuple[StoredBatch, Sequence[Range]]] = []
        next_offset = start
        for one in stored:
            excluded: list[Range] = []
            if start > one.first_offset:
                excluded.append((one.first_offset, start - 1))
            if one.visible_count < one.count:
                excluded.append((one.end, one.first_offset + one.count - 1))
            batches.append((one, excluded))
            next_offset = one.end
        return Found(partition.ledger_id, batches, next_offset, partition.log.durable_end)

    def _describe_producers(self, command: wire.CommandDescribeProducers, reply: Reply) -> None:
        """Handle DescribeProducers (KIP-664)."""
        partition = self._topics.named(command.partition)
        self._replies.answer(reply, describe_producers(partition, command.producers_max))

    def _list_stored_txns(self, command: wire.CommandListStoredTxns, reply: Reply) -> None:
        partition = self._topics.named(command.partition)
        self._replies.answer_later(reply, list_stored(self._store, partition, command))

    def _describe_participants(
        self, command: wire.CommandDescribeParticipants, reply: Reply
    ) -> None:
        descriptions = ParticipantDescriptions(self._store, self._topics)
        self._replies.answer_later(reply, descriptions.describe(command))

    def _skip_damaged(self, command: wire.CommandSkipDamaged, reply: Reply) -> None:
        partition = self._topics.named(command.partition)
        self._replies.answer_later(reply, skip_damaged(partition, command))

    def _list_offsets(self, command: wire.CommandListOffsets, reply: Reply) -> None:
        topic = self._topics.get(command.topic)
        if command.topic_id not in (0, topic.topic_id):
            raise Gone(f"topic {command.topic!r} of id {command.topic_id} was deleted")
        partitions = [
            self._topics.partition(command.topic, number, topic.topic_id)
            for number in command.partitions or topic.hosted
        ]
        self._replies.answer_later(reply, self._offsets_of(topic.record, partitions, command))

    async def _offsets_of(
        self,
        record: TopicRecord,
        partitions: Sequence[Partition],
        command: wire.CommandListOffsets,
    ) -> wire.CommandListOffsetsResponse:
        response = wire.CommandListOffsetsResponse(
            topic_id=record.topic_id, partition_count=max(record.partitions, record.growing_to)
        )
        for partition in partitions:
            # The found offset lies before the end offset of the same answer.
            time_offset = 0
            if command.HasField("append_time_ms"):
                time_offset = await partition.reader.first_offset_at_time(command.append_time_ms)
            response.partitions.add(
                partition=partition.name.partition,
                ledger_id=partition.ledger_id,
                first_offset=partition.log.first_offset,
                end_offset=partition.log.durable_end,
                time_offset=time_offset,
                highest_stamp=partition.log.highest_stamp,
            )
        return response

    def _peek(self, command: wire.CommandPeek, reply: Reply) -> None:
        partition = self._topics.named(command.partition)
        if not command.uncommitted:
            self._replies.answer_later(reply, self._peek_messages(partition, command))
            return
        work = peek_uncommitted(
            self._store,
            partition,
            TxnID.from_wire(command.txn_id) if command.HasField("txn_id") else None,
            skip=command.start_offset,
            messages_max=_peeked_max(command),
        )
        self._replies.answer_later(reply, work)

    async def _peek_messages(
        self, partition: Partition, command: wire.CommandPeek
    ) -> wire.CommandPeekResponse:
        messages_max = _peeked_max(command)
        found = await self._found(
            partition,
            wire.CommandRead(start_offset=command.start_offset, messages_max=messages_max),
        )
        peeked = Peeked(messages_max)
        for message in messages_of(found):
            peeked.add(message)
            if peeked.is_full:
                break
            # Opening a batch takes time: other tasks have their turn.
            await asyncio.sleep(0)
        messages = peeked.messages
        next_offset = command.start_offset
        if messages:
            place = messages[-1].message_id
            next_offset = place.entry_id + place.index + 1
        return peeked.response(next_offset=next_offset, end_offset=found.end_offset)


def _peeked_max(command: wire.CommandPeek) -> int:
    return min(command.messages_max or PEEKED_DEFAULT, READ_MESSAGES_DEFAULT)
