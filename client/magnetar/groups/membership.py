"""Keeps a membership alive in the background: joins, sends heartbeats, leaves.

`member_state` decides what to do; this module sends the commands and waits. A broker that is away
costs only time: it knows its members again when it comes back.
Source: docs/design/0003-groups.md, Members.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence

from magnetar.groups.member_phase import Phase
from magnetar.groups.member_state import Command, Instruction, MemberState
from magnetar.link.connection import Connection
from magnetar.link.in_flight import copy_error
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, Push
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    FencedInstance,
    GroupNotFound,
    LogUnavailable,
    MagnetarError,
)
from magnetar_core.ids import PartitionName
from magnetar_core.wire import common_pb2, group_pb2

log = logging.getLogger("magnetar")

# A heartbeat waits no longer for its answer, whatever the interval: what it says grows old.
BEAT_TIMEOUT_MS_MIN = 1_000


class GroupMembership:
    """The membership of a consumer in a group."""

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        join: group_pb2.CommandJoinGroup,
        *,
        max_poll_interval_ms: float,
        follow: Callable[[Sequence[Instruction]], None],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """A membership that has not joined yet.

        Args:
            connection: the connection to the broker that keeps the groups.
            join: makes the command with which the member joins; called again for each new attempt.
            follow: carries out what the group wants, without waiting for it.
            on_failed: called when the membership is over for good.
        """
        self.member = MemberState(
            max_poll_interval_ms=max_poll_interval_ms, now_ms=runtime.now_ms()
        )
        self.failure: MagnetarError | None = None
        self._runtime = runtime
        self._connection = connection
        self._join = join
        self._follow = follow
        self._on_failed = on_failed
        self._interval_ms = 0.0
        self._heartbeat_count = 0
        self._wake = asyncio.Event()
        self._sleeps_until_ms = math.inf
        self._joined = asyncio.Event()
        self._has_joined_once = False
        self._last_refusal: MagnetarError | None = None
        self._session: LinkSession | None = None
        connection.register_member(join.group, join.member_id, self._on_push)
        self._task = runtime.spawn(self._run(), f"member of {join.group}")

    def identity(self, since: int) -> common_pb2.GroupMember:
        """Return how commands name the member for a partition assigned in a generation."""
        return common_pb2.GroupMember(
            member_id=self._join.member_id, instance_id=self._join.instance_id, generation=since
        )

    async def joined(self) -> int:
        """Wait until the consumer is a member, and return the generation.

        Raises:
            MagnetarError: the membership has ended.
        """
        self.member.come_back(self._runtime.now_ms())
        self.wake()
        while True:
            if self.failure is not None:
                raise copy_error(self.failure)
            if self.member.generation:
                return self.member.generation
            self._joined.clear()
            await self._joined.wait()

    async def started(self) -> None:
        """Wait until the consumer is a member for the first time.

        Raises:
            MagnetarError: the broker refuses, or nobody answers in time.
        """
        timeout_ms = self._runtime.config.operation_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.joined()
        except TimeoutError:
            if self._last_refusal is not None:
                raise copy_error(self._last_refusal) from None
            raise LogUnavailable(
                f"no broker took a member into the group {self._join.group!r} within"
                f" {timeout_ms:.0f} ms"
            ) from None

    def receive_begins(self) -> None:
        """Note that the application asks for messages."""
        was_away = self.member.phase in (Phase.LEAVING, Phase.AWAY)
        self.member.receive_begins(self._runtime.now_ms())
        if was_away:
            self.wake()

    def receive_ends(self) -> None:
        """Note that the application got messages, or stopped waiting."""
        self.member.receive_ends(self._runtime.now_ms())
        if self.member.wakes_at_ms < self._sleeps_until_ms:
            self.wake()

    def wake(self) -> None:
        """Check again which command to send."""
        self._wake.set()

    async def close(self, *, leave: bool) -> None:
        """Stop, and leave the group if told so."""
        self._task.cancel()
        self._connection.unregister_member(self._join.group, self._join.member_id)
        if leave and self.failure is None and self.member.phase is not Phase.AWAY:
            timeout_ms = self._runtime.config.close_timeout_ms
            try:
                await self._connection.request(self._leave_command(), timeout_ms=timeout_ms)
            except MagnetarError as error:
                log.info("leaving the group %s: %s", self._join.group, error)
        self._joined.set()

    async def _run(self) -> None:
        backoff = self._runtime.backoff()
        while self.failure is None:
            now_ms = self._runtime.now_ms()
            self._follow(self.member.tick(now_ms))
            command = self.member.next_command(now_ms)
            if command is None:
                await self._sleep(now_ms)
                continue
            self.member.sent(now_ms)
            try:
                await self._say(command)
            except FencedInstance as error:
                self._follow(self.member.fenced())
                self._fail(error)
            except MagnetarError as error:
                if _is_over(error) and command is not Command.JOIN:
                    log.info("group %s: %s", self._join.group, error)
                    self._follow(self.member.unknown())
                elif self._may_pass(error):
                    log.info("group %s: %s", self._join.group, error)
                    self._last_refusal = error
                    self.member.announced(self._runtime.now_ms())
                    await asyncio.sleep(backoff.next_ms() / 1000)
                else:
                    self._follow(self.member.unknown())
                    self._fail(error)
            else:
                backoff.reset()

    def _may_pass(self, error: MagnetarError) -> bool:
        if error.kind.may_pass or _is_over(error):
            return True
        # Who is a member already has time.
        return error.kind is ErrorKind.LIMIT and self._has_joined_once

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
        """Send it, and do what the answer wants."""
        if command is Command.JOIN:
            self._join.join_epoch += 1
            joined = await self._connection.request(self._join)
            self._watch_link()
            instructions = self.member.joined(
                *self._read(joined.state), now_ms=self._runtime.now_ms()
            )
            self._has_joined_once = True
            self._follow(instructions)
            self._joined.set()
        elif command is Command.HEARTBEAT:
            timeout_ms = max(BEAT_TIMEOUT_MS_MIN, self._interval_ms)
            answer = await self._connection.request(self._heartbeat(), timeout_ms=timeout_ms)
            self._watch_link()
            self._follow(self.member.answered(*self._read(answer)))
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
            session.on_close(self._announced)

    def _on_push(self, session: LinkSession, body: Push) -> None:
        self._announced()

    def _announced(self) -> None:
        self.member.announced(self._runtime.now_ms())
        self.wake()

    def _fail(self, error: MagnetarError) -> None:
        self.failure = error
        log.warning("the membership in group %s is over: %s", self._join.group, error)
        self._on_failed(error)
        self._joined.set()


def _is_over(error: MagnetarError) -> bool:
    """Whether the membership is; to a member, a group that is gone says so, too."""
    return error.kind is ErrorKind.START_OVER or isinstance(error, GroupNotFound)
