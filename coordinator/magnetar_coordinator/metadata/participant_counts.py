"""Names of participants, and their confirmed writes, as the client's messages say them. Pure.

A coordinator stores the messages and passes them on as they are. It reads a command's fields as
bytes and looks the names up, since it meets the same ones again and again: protobuf's objects for
them would cost more than the rest of a small transaction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from magnetar_coordinator.metadata.transaction import Participant
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import packed_pb2 as packed_pb
from magnetar_core.wire import transaction_pb2 as pb

# How many names are kept.
NAMES_MAX: Final = 1_024
# Longer counts are not kept.
_KEPT_BYTES_MAX: Final = 512


def participants_in(request: pb.CommandNewTxn) -> tuple[Participant, ...]:
    """Return the participants that a request names."""
    view = packed_pb.PackedNewTxn.FromString(request.SerializeToString())
    # A slice is a list, and costs a third of an iterator of protobuf's.
    return (*map(_partition, view.partitions[:]), *map(_subscription, view.subscriptions[:]))


def counts_in(request: pb.CommandEndTxn) -> list[tuple[Participant, bytes]]:
    """Return the participants that a request counts writes of, with their serialized messages."""
    view = packed_pb.PackedEndTxn.FromString(request.SerializeToString())
    return [
        *[(participant_of(one, is_subscription=False), one) for one in view.partition_counts[:]],
        *[(participant_of(one, is_subscription=True), one) for one in view.subscription_counts[:]],
    ]


def participant_of(packed: bytes, *, is_subscription: bool) -> Participant:
    """Return the participant whose writes a message counts.

    Args:
        packed: PartitionCounts or SubscriptionCounts, serialized.
    Raises:
        DecodeError: it is damaged.
    """
    if len(packed) > _KEPT_BYTES_MAX:
        return _counted.__wrapped__(packed, is_subscription)
    return _counted(packed, is_subscription)


def writer_counts(participant: Participant, packed: bytes) -> tuple[tuple[int, int], ...]:
    """Return the pairs of writer id and count in a message about a participant."""
    if isinstance(participant, SubscriptionName):
        counts = pb.SubscriptionCounts.FromString(packed).consumers
    else:
        counts = pb.PartitionCounts.FromString(packed).producers
    return tuple([(one.writer_id, one.count) for one in counts])


@lru_cache(maxsize=NAMES_MAX)
def _counted(packed: bytes, is_subscription: bool) -> Participant:
    name = packed_pb.PackedCounts.FromString(packed).participant
    return _subscription(name) if is_subscription else _partition(name)


@lru_cache(maxsize=NAMES_MAX)
def _partition(packed: bytes) -> PartitionName:
    return PartitionName.from_wire(common.Partition.FromString(packed))


@lru_cache(maxsize=NAMES_MAX)
def _subscription(packed: bytes) -> SubscriptionName:
    return SubscriptionName.from_wire(common.Subscription.FromString(packed))
