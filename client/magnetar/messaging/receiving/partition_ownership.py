"""The ownership of a partition by a member of a group. Pure.

Messages belong to the ownership in which they were received, and to no later ownership: a partition
that is lost and assigned again has another ownership.
Source: docs/design/0003-groups.md, Fencing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from magnetar_core.errors import (
    FencedInstance,
    Gone,
    IllegalGeneration,
    MagnetarError,
    SubscriptionNotFound,
    TopicNotFound,
    UnknownMember,
)
from magnetar_core.wire import common_pb2

# The partition is not ours, or is so no longer: the group's next answer tells.
LOSSES = (
    IllegalGeneration,
    UnknownMember,
    FencedInstance,
    Gone,
    TopicNotFound,
    SubscriptionNotFound,
)


class Settling(NamedTuple):
    """Messages of a partition that the application has not settled.

    Attributes:
        held: whether it has messages that are neither acknowledged outside of transactions nor
            given back.
        in_transactions: whether messages are acknowledged in transactions whose outcome is not
            known.
    """

    held: bool
    in_transactions: bool


@dataclass(frozen=True, slots=True)
class PartitionOwnership:
    """Ownership of a partition, as a receiver knows it from its group.

    Attributes:
        member: the member that its commands name, with the generation in which the partition was
            assigned.
        on_lost: called when the partition belongs to another member, or was deleted.
        on_settled: called when a message that the application had is settled.
    """

    member: common_pb2.GroupMember
    on_lost: Callable[[MagnetarError], None]
    on_settled: Callable[[], None]
