"""Places in topics, as a group's applications name them. Pure.

Source: KIP-447, Public Interfaces: sendOffsetsToTransaction takes the offset of each partition that
is to be processed next.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.message import Message
from magnetar.messaging.interval_set import IntervalSet
from magnetar.topic_partition import TopicPartition


class Offsets(dict[TopicPartition, int]):
    """The next offset to process in each partition, and the messages that it comes from.

    An offset alone tells neither whether the partition was lost and assigned again since, nor
    whether these very messages were acknowledged before. With these, such a mistake is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.receivers: dict[TopicPartition, int] = {}
        self.messages: dict[TopicPartition, IntervalSet] = {}


def offsets(messages: Iterable[Message]) -> Offsets:
    """For each partition the offset after the last of these messages."""
    found = Offsets()
    for message in messages:
        place = TopicPartition(message.topic, message.partition)
        receiver = message.batch.receiver
        # Of two assignments of a partition, the earlier one: what is said of it is refused.
        known = found.receivers.setdefault(place, receiver)
        found.receivers[place] = min(known, receiver)
        found.messages.setdefault(place, IntervalSet()).add(message.offset, message.last_offset)
        found[place] = max(found.get(place, 0), message.last_offset + 1)
    return found
