"""A group's partition, as its owner holds it. Pure.

What was received of a partition counts for the ownership in which it was received, and for no
later one: a partition that is lost and assigned again is another ownership.
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

# The partition is not ours, or is no more: what the group says next tells.
LOSSES = (
    IllegalGeneration,
    UnknownMember,
    FencedInstance,
    Gone,
    TopicNotFound,
    SubscriptionNotFound,
)


class Settling(NamedTuple):
    """What of a partition is in the application's hands.

    Attributes:
        held: messages that it was given, and has neither acknowledged for good nor given back.
        in_transactions: some are acknowledged in transactions whose outcome is not known.
    """

    held: bool
    in_transactions: bool


@dataclass(frozen=True, slots=True)
class Ownership:
    """What a receiver knows of its group.

    Attributes:
        member: whom its commands name, with the generation in which the partition was assigned.
        on_lost: the broker says that the partition is somebody else's, or gone.
        on_settled: something that the application was given of it is settled.
    """

    member: common_pb2.GroupMember
    on_lost: Callable[[MagnetarError], None]
    on_settled: Callable[[], None]
