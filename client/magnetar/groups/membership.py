"""Keeps a membership at one broker alive in the background: joins, sends heartbeats, leaves.

`member_state` decides what to do; this module sends the commands and waits. A broker that is away
costs only time: it knows its members again when it comes back.
Source: docs/design/0003-groups.md, Members.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from magnetar.groups.member_phase import MemberPhase
from magnetar.groups.member_state import Command, Instruction, MemberState
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Push
from magnetar.link.shard_connection import ShardConnection
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    FencedInstance,
    GroupNotFound,
    LogUnavailable,
    MagnetarError,
)
from magnetar_core.ids import PartitionName
from magnetar_core.wire import group_pb2

log = logging.getLogger("magnetar")

# A heartbeat waits no longer for its answer, whatever the interval: what it says grows old.
BEAT_TIMEOUT_MS_MIN = 1_000


class MembershipOwner(Protocol):
    """Owner of a membership."""

    def follow(self, instructions: Sequence[Instruction]) -> None:
        """Carry out the group's instructions, without waiting for it."""
        ...

    def changed(self) -> None:
        """Note that the member was taken in, or that something hinders it."""
        ...

    def failed(self, membership: GroupMembership, error: MagnetarError) -> None:
        """Note that the membership is over for good."""
        ...

    def tolerates(self, membership: GroupMembership, error: MagnetarError) -> bool:
        """Return whether to ask again, although the broker refuses."""
        ...


class GroupMembership:
    """The membership of a consumer in a group, at one broker.

    Attributes:
        member: its state.
        hindrance: what keeps the broker from answering, or the member from being one; None: nothing
            that is known.
        failure: why the membership is over for good; None: it is not.
    """

    def __init__(
        self,
        runtime: Runtime,
        connection: ShardConnection,
        join: group_pb2.CommandJoinGroup,
        member: MemberState,
        owner: MembershipOwner,
    ) -> None:
        """A membership that has not joined yet.

        Args:
            connection: the connection to the broker, wherever it is.
            join: the command with which the member joins.
        """
        self.member = member
        self.hindrance: MagnetarError | None = None
        self.failure: MagnetarError | None = None
        self._runtime = runtime
        self._join = join
        self._owner = owner
        self._interval_ms = 0.0
        self._heartbeat_count = 0
        self._wake = asyncio.Event()
        self._sleeps_until_ms = math.inf
        self._session: LinkSession | None = None
        self._unwatch_link: Callable[[], None] = _nothing
        self._connection = connection
        # The same at each server that the broker's shard comes to.
        self._addressee = (join.group, join.member_id)
        connection.register(self._addressee, runtime.owned(self._fail, self._on_push))
        self._unwatch = connection.when_unreachable(runtime.owned(self._fail, self._on_unreachable))
        self._task = runtime.spawn(self._run, f"member of {join.group}", self._fail)

    def come_back(self) -> None:
        """Note that the application is there: a member that had to leave joins again."""
        self.member.come_back(self._runtime.now_ms())
        self.wake()

    def receive_begins(self) -> None:
        """Note that the application asks for messages."""
        was_away = self.member.phase in (MemberPhase.LEAVING, MemberPhase.AWAY)
        self.member.receive_begins(self._runtime.now_ms())
        if was_away:
            self.wake()

    def receive_ends(self) -> None:
        """Note that the application got messages, or stopped waiting."""
        self.member.receive_ends(self._runtime.now_ms())
        if self.member.wakes_at_ms < self._sleeps_until_ms:
            self.wake()

    def received(self) -> None:
        """Note that the application has received messages of an earlier receive one by one."""
        self.member.received(self._runtime.now_ms())

    def wake(self) -> None:
        """Check again which command to send."""
        self._wake.set()

    async def close(self, *, leave: bool) -> None:
        """Stop, and leave the group if told so."""
        self._task.cancel()
        self._unwatch()
        self._unwatch_link()
        self._connection.unregister(self._addressee)
        if leave and self.failure is None and self.member.phase is not MemberPhase.AWAY:
            timeout_ms = self._runtime.config.close_timeout_ms
            try:
                await self._connection.request(self._leave_command(), timeout_ms=timeout_ms)
            except MagnetarError as error:
                log.info("leaving the group %s: %s", self._join.group, error)

    def end(self) -> None:
        """Stop: the consumer's membership is over at another broker."""
        self._task.cancel()
        self._owner.follow(self.member.end())

    async def _run(self) -> None:
        backoff = self._runtime.backoff()
        while self.failure is None:
            now_ms = self._runtime.now_ms()
            self._owner.follow(self.member.tick(now_ms))
            command = self.member.next_command(now_ms)
            if command is None:
                await self._sleep(now_ms)
                continue
            self.member.sent(now_ms)
            try:
                await self._say(command)
            except FencedInstance as error:
                self._fail(error)
            except MagnetarError as error:
                if _is_over(error) and command is not Command.JOIN:
                    log.info("group %s: %s", self._join.group, error)
                    self._owner.follow(self.member.unknown())
                elif self._may_pass(error):
                    log.info("group %s: %s", self._join.group, error)
                    self._hinder(error)
                    self.member.announced(self._runtime.now_ms())
                    await asyncio.sleep(backoff.next_ms() / 1000)
                else:
                    self._fail(error)
            else:
                backoff.reset()
                self.hindrance = None
                self._owner.changed()

    def _may_pass(self, error: MagnetarError) -> bool:
        return error.kind.may_pass or _is_over(error) or self._owner.tolerates(self, error)

    def _hinder(self, error: MagnetarError) -> None:
        self.hindrance = error
        self._owner.changed()

    def _on_unreachable(self) -> None:
        self._hinder(LogUnavailable(f"cannot reach {self._connection.title}"))

    async def _sleep(self, now_ms: float) -> None:
        self._sleeps_until_ms = self.member.wakes_at_ms
        timeout_s = None
        if self._sleeps_until_ms != math.inf:
            timeout_s = max(0.0, self._sleeps_until_ms - now_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        self._sleeps_until_ms = -math.inf

    async def _say(self, command: Command) -> None:
        """Send a command, and carry out the answer."""
        if command is Command.JOIN:
            self._join.join_epoch += 1
            joined = await self._connection.request(self._join)
            self._watch_link()
            instructions = self.member.joined(
                *self._read(joined.state), now_ms=self._runtime.now_ms()
            )
            self._owner.follow(instructions)
        elif command is Command.HEARTBEAT:
            timeout_ms = max(BEAT_TIMEOUT_MS_MIN, self._interval_ms)
            answer = await self._connection.request(self._heartbeat(), timeout_ms=timeout_ms)
            self._watch_link()
            self._owner.follow(self.member.answered(*self._read(answer)))
        else:
            await self._connection.request(self._leave_command())
            self.member.left()

    def _read(
        self, state: group_pb2.CommandGroupHeartbeatResponse
    ) -> tuple[int, float, Mapping[PartitionName, int], int]:
        self._interval_ms = state.heartbeat_interval_ms
        assigned = {
            PartitionName.from_wire(one.partition): one.generation for one in state.assigned
        }
        return state.generation, self._interval_ms, assigned, state.coming

    def _heartbeat(self) -> group_pb2.CommandGroupHeartbeat:
        self._heartbeat_count += 1
        return group_pb2.CommandGroupHeartbeat(
            heartbeat_number=self._heartbeat_count,
            group=self._join.group,
            member_id=self._join.member_id,
            instance_id=self._join.instance_id,
            held=[
                group_pb2.AssignedPartition(partition=partition.to_wire(), generation=since)
                for partition, since in self.member.held.items()
            ],
        )

    def _leave_command(self) -> group_pb2.CommandLeaveGroup:
        return group_pb2.CommandLeaveGroup(
            group=self._join.group,
            member_id=self._join.member_id,
            instance_id=self._join.instance_id,
        )

    def _watch_link(self) -> None:
        """Announcements come on the link of the last heartbeat: after a break, send another."""
        session = self._connection.live_session
        if session is not None and session is not self._session:
            self._session = session
            self._unwatch_link()
            announced = self._runtime.owned(self._fail, self._announced)
            self._unwatch_link = session.on_close(announced)

    def _on_push(self, session: LinkSession, body: Push) -> None:
        self._announced()

    def _announced(self) -> None:
        self.member.announced(self._runtime.now_ms())
        self.wake()

    def _fail(self, error: MagnetarError) -> None:
        self.failure = error
        log.warning("the membership in group %s is over: %s", self._join.group, error)
        self._owner.follow(self.member.end())
        self._owner.failed(self, error)


def _nothing() -> None:
    return


def _is_over(error: MagnetarError) -> bool:
    """Whether the membership is; to a member, a group that is gone says so, too."""
    return error.kind is ErrorKind.START_OVER or isinstance(error, GroupNotFound)
