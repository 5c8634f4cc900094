"""The settings of a member of a group, and the callbacks of the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from magnetar.arguments import check_fields
from magnetar.config import require
from magnetar.enums import InitialPosition
from magnetar.topic_partition import TopicPartition
from magnetar_core.wire import group_pb2

OnPartitions = Callable[[list[TopicPartition]], Awaitable[None] | None]


class Callbacks(NamedTuple):
    """The application's callbacks: functions or coroutine functions, called in order.

    Attributes:
        on_assigned: called before the first message of these partitions is received.
        on_revoked: called before these partitions are given back. Acks in the callback still count.
        on_lost: called after these partitions were given to other members. Acks come too late.
    """

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of a member of a group; Client.consumer_group describes them."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    instance_id: str = ""
    session_timeout_s: float | None = None
    rebalance_timeout_s: float | None = None
    max_poll_interval_s: float = 300.0
    initial_position: InitialPosition = InitialPosition.LATEST
    allow_two_phase_commit: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        require(bool(self.group), "a group has a name")
        require(bool(self.topics or self.pattern), "name topics, or a pattern")
        require(all(self.topics), "a topic has a name")
        for name in ("session_timeout_s", "rebalance_timeout_s", "max_poll_interval_s"):
            value = getattr(self, name)
            require(value is None or value > 0, f"{name} must be above 0")

    def join_command(self, member_id: str, client_name: str) -> group_pb2.CommandJoinGroup:
        """Return the command with which a member joins."""
        return group_pb2.CommandJoinGroup(
            group=self.group,
            member_id=member_id,
            instance_id=self.instance_id,
            topics=self.topics,
            topic_pattern=self.pattern,
            session_timeout_ms=round((self.session_timeout_s or 0) * 1000),
            rebalance_timeout_ms=round((self.rebalance_timeout_s or 0) * 1000),
            initial_position=int(self.initial_position),  # type: ignore[arg-type]
            client_name=client_name,
            allow_two_phase_commit=self.allow_two_phase_commit,
        )
