"""Confirmed writes of a participant, as the client's message says them. Pure.

A coordinator stores the message and passes it on as it is.
"""

from __future__ import annotations

from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import transaction_pb2 as pb


def participant_of(packed: bytes, *, is_subscription: bool) -> Participant:
    """Return the participant whose writes a message counts.

    Args:
        packed: PartitionCounts or SubscriptionCounts, serialized.
    Raises:
        DecodeError: it is damaged.
    """
    if is_subscription:
        return SubscriptionName.from_wire(pb.SubscriptionCounts.FromString(packed).subscription)
    return PartitionName.from_wire(pb.PartitionCounts.FromString(packed).partition)


def writer_counts(participant: Participant, packed: bytes) -> tuple[tuple[int, int], ...]:
    """Return the pairs of writer id and count in a message about a participant."""
    if isinstance(participant, SubscriptionName):
        counts = pb.SubscriptionCounts.FromString(packed).consumers
    else:
        counts = pb.PartitionCounts.FromString(packed).producers
    return tuple([(one.writer_id, one.count) for one in counts])
