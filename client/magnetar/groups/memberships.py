"""A consumer's memberships of its group: one at each broker, which assigns its own partitions.

Source: docs/design/0008-cluster.md, Groups without a group coordinator; docs/design/0003-groups.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from magnetar.groups.member_phase import MemberPhase
from magnetar.groups.member_state import Instruction, MemberState
from magnetar.groups.membership import GroupMembership
from magnetar.groups.settings import GroupSettings
from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime
from magnetar.link.unanswered import copy_error
from magnetar.messaging.receiving.partition_ownership import Settling
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import LogUnavailable, MagnetarError, TopicNotFound
from magnetar_core.ids import PartitionName
from magnetar_core.wire import broker_pb2, common_pb2, group_pb2

log = logging.getLogger("magnetar")

# How often the cluster is asked whether it has more brokers.
REFRESH_PERIOD_MS = 30_000


class Memberships:
    """The memberships of a consumer: the same member id and instance id at all brokers."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        settings: GroupSettings,
        member_id: str,
        *,
        follow: Callable[[Sequence[Instruction]], None],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """Make memberships that are not joined yet.

        Args:
            follow: carries out a broker's instructions, without waiting for it.
            on_failed: called once, when the consumer will never be a member again.
        """
        self._runtime = runtime
        self._cluster = cluster
        self._settings = settings
        self._member_id = member_id
        self.follow = follow
        self._on_failed = on_failed
        # By the brokers' names.
        self._memberships: dict[str, GroupMembership] = {}
        self._failure: MagnetarError | None = None
        self._has_started = False
        self._changed = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        # For brokers that are joined later.
        self._receiving_count = 0
        self._received_ms = runtime.now_ms()

    # The consumer as a member

    @property
    def generation(self) -> int:
        """The highest generation of its memberships; 0 while it is not a member.

        Each broker counts generations of its own. A partition goes by that of its broker.
        """
        return max((member.generation for member in self._members()), default=0)

    def identity(self, since: int) -> common_pb2.GroupMember:
        """Return how commands name the member for a partition assigned in a generation."""
        return common_pb2.GroupMember(
            member_id=self._member_id, instance_id=self._settings.instance_id, generation=since
        )

    async def started(self) -> None:
        """Become a member for the first time.

        Raises:
            MagnetarError: a broker refuses for good, or none takes the member in time.
        """
        await self._refresh()
        self._refreshing = self._runtime.spawn(
            self._keep_refreshing,
            f"brokers of {self._settings.group}",
            partial(self.failed, None),
        )
        timeout_ms = self._runtime.config.operation_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.joined()
        except TimeoutError:
            if not self.generation:
                raise self._nobody_answers(timeout_ms) from None
        self._has_started = True

    def _nobody_answers(self, timeout_ms: float) -> MagnetarError:
        hindrances = [one.hindrance for one in self._memberships.values()]
        for one in hindrances:
            if one is not None:
                return copy_error(one)
        return LogUnavailable(
            f"no broker took a member into the group {self._settings.group!r} within"
            f" {timeout_ms:.0f} ms"
        )

    async def joined(self) -> int:
        """Wait until the consumer is a member at all brokers that answer, and at least at one.

        A broker that does not answer is waited for as long as an attempt to connect may take. It is
        asked again in the background.

        Returns:
            The generation.
        Raises:
            MagnetarError: the consumer will never be a member again.
        """
        for one in self._memberships.values():
            one.come_back()
        await self._until(lambda: self.generation > 0)
        try:
            async with asyncio.timeout(self._runtime.config.connect_timeout_ms / 1000):
                await self._until(self._has_heard_of_all)
        except TimeoutError:
            pass
        return self.generation

    def _has_heard_of_all(self) -> bool:
        return all(one.member.generation or one.hindrance for one in self._memberships.values())

    async def _until(self, condition: Callable[[], bool]) -> None:
        while True:
            if self._failure is not None:
                raise copy_error(self._failure)
            if condition():
                return
            self._changed.clear()
            await self._changed.wait()

    def receive_begins(self) -> None:
        """Note that the application asks for messages."""
        self._receiving_count += 1
        for one in self._memberships.values():
            one.receive_begins()

    def receive_ends(self) -> None:
        """Note that the application got messages, or stopped waiting."""
        self._receiving_count -= 1
        self._received_ms = self._runtime.now_ms()
        for one in self._memberships.values():
            one.receive_ends()

    async def close(self, *, leave: bool) -> None:
        """Stop, and leave the group at all brokers if told so."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        await asyncio.gather(*(one.close(leave=leave) for one in self._memberships.values()))
        self._changed.set()

    def received(self) -> None:
        """Note that the application has received messages of an earlier receive one by one."""
        self._received_ms = self._runtime.now_ms()
        for one in self._memberships.values():
            one.received()

    # Its partitions: each is held at a single broker.

    @property
    def has_revoked(self) -> bool:
        """Whether a broker asks for a partition back whose release has not begun."""
        return any(member.revoked for member in self._members())

    def since(self, name: PartitionName) -> int:
        """The generation since which the consumer has a partition; 0: it does not have it."""
        holder = self._holder(name)
        return 0 if holder is None else holder.member.since(name) or 0

    def holds(self, name: PartitionName, since: int) -> bool:
        """Whether the consumer has this partition since then, and keeps it."""
        return any(member.holds(name, since) for member in self._members())

    def review(self, settling: Callable[[PartitionName], Settling]) -> list[Instruction]:
        """Return which of the revoked partitions can be released now."""
        return [
            instruction for member in self._members() for instruction in member.review(settling)
        ]

    def released(self, name: PartitionName, since: int) -> None:
        """Note that a partition was released, and tell its broker at once."""
        holder = self._holder(name)
        if holder is not None:
            holder.member.released(name, since, self._runtime.now_ms())
            holder.wake()

    def lost(self, name: PartitionName, since: int) -> None:
        """Note that a partition's broker has given it to another member."""
        holder = self._holder(name)
        if holder is not None:
            self.follow(holder.member.lost(name, since, self._runtime.now_ms()))
            holder.wake()

    def _holder(self, name: PartitionName) -> GroupMembership | None:
        for one in self._memberships.values():
            if one.member.since(name) is not None:
                return one
        return None

    def _members(self) -> list[MemberState]:
        return [one.member for one in self._memberships.values()]

    # Brokers that are added

    async def _keep_refreshing(self) -> None:
        while self._failure is None:
            await asyncio.sleep(REFRESH_PERIOD_MS / 1000)
            try:
                await self._refresh()
            except MagnetarError as error:
                log.info("the list of the cluster's brokers could not be renewed: %s", error)

    async def _refresh(self) -> None:
        """Join brokers that are new in the list. Brokers that have moved are followed anyway."""
        await self._cluster.info()
        # An application that does not receive has left, and joins again when it comes back.
        has_left = any(
            member.phase in (MemberPhase.LEAVING, MemberPhase.AWAY) for member in self._members()
        )
        for broker in self._cluster.brokers:
            if broker.name in self._memberships or self._failure is not None or has_left:
                continue
            self._memberships[broker.name] = GroupMembership(
                self._runtime,
                self._cluster.broker(broker),
                self._join_command(),
                self._new_state(),
                self,
            )

    def _join_command(self) -> group_pb2.CommandJoinGroup:
        command = self._settings.join_command(self._member_id, self._runtime.config.client_name)
        if self._has_started:
            # A broker that was added has topics that are newer than this consumer, and no others:
            # it would have got all of their messages from a broker that it had joined in time.
            command.initial_position = broker_pb2.EARLIEST
        return command

    def _new_state(self) -> MemberState:
        return MemberState(
            max_poll_interval_ms=self._settings.max_poll_interval_s * 1000,
            now_ms=self._received_ms,
            receiving_count=self._receiving_count,
        )

    # What the memberships say

    def changed(self) -> None:
        """Note that a broker has taken the member in, or that something hinders it."""
        self._changed.set()

    def failed(self, membership: GroupMembership | None, error: MagnetarError) -> None:
        """End all memberships: a member that one broker replaces or refuses must leave all of them.

        Args:
            membership: the one that has ended already; None: none has.
        """
        if self._failure is not None:
            return
        self._failure = error
        for one in self._memberships.values():
            if one is not membership:
                one.end()
        self._on_failed(error)
        self._changed.set()

    def tolerates(self, membership: GroupMembership, error: MagnetarError) -> bool:
        """Return whether to ask a broker again, although it refuses."""
        if error.kind is ErrorKind.LIMIT:
            # A client that is a member already has time.
            return self._has_started
        if isinstance(error, TopicNotFound):
            # The topic may be new, and this broker may not know it yet: another one may.
            return any(
                one.member.generation or one.hindrance is None
                for one in self._memberships.values()
                if one is not membership
            )
        return False
