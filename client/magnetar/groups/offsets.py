"""The offsets up to which a group's application has processed partitions. Pure.

Source: KIP-447, Public Interfaces: sendOffsetsToTransaction takes the offset of each partition that
is to be processed next.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.message import Message
from magnetar.messaging.interval_set import IntervalSet
from magnetar.topic_partition import TopicPartition


class Offsets(dict[TopicPartition, int]):
    """For each partition the offset of the next message to process.

    It also remembers the messages from which it was made. An offset alone does not show whether the
    partition was lost and assigned again meanwhile, or whether the messages were acknowledged
    before. With the messages, the consumer refuses both mistakes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.receivers: dict[TopicPartition, int] = {}
        self.messages: dict[TopicPartition, IntervalSet] = {}


def offsets(messages: Iterable[Message]) -> Offsets:
    """Return for each partition the offset after the last of these messages.

    Pass the result to TransactionalProducer.send_offsets_to_transaction().
    """
    found = Offsets()
    for message in messages:
        place = TopicPartition(message.topic, message.partition)
        receiver = message.batch.receiver
        # With two assignments of a partition the earlier counts, so that the consumer refuses it.
        known = found.receivers.setdefault(place, receiver)
        found.receivers[place] = min(known, receiver)
        found.messages.setdefault(place, IntervalSet()).add(message.offset, message.last_offset)
        found[place] = max(found.get(place, 0), message.last_offset + 1)
    return found
