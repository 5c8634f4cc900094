"""Coordinator of groups: rows, timers and waiting requests of a shard's groups.

`groups` makes the decisions. A group's name gives its shard. An answer rests on that shard: it
leaves when the group's row is durable, and not at all if the shard has another owner by then.
Source: docs/design/0029-kafka-groups.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from uuid import UUID

from magnetar_broker.subscriptions.subscriptions import is_subscription_name
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.groups.classic_group import ClassicGroup, State
from magnetar_kafka.groups.group_rows import restored, row_of
from magnetar_kafka.groups.members import Join, Joined, Synced, protocol_bytes
from magnetar_kafka.offset_owners import Found, OffsetOwners
from magnetar_kafka.shards import Shard, Shards, shard_of_group

log = logging.getLogger(__name__)

# A timer that is this late shows that the process itself was stopped.
STALL_MS = 1_000
EXPIRY_CHECK_MS = 60_000
# When a commit came last is stored as exactly as this part of the retention.
USE_STORED_PART = 100
# How many deleted groups' generations are remembered.
DELETED_KNOWN_MAX = 1_000


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A group, and what its coordinator has beside it.

    Attributes:
        used_ms: run time of the broker at the last use.
        stored_ms: the same, as stored.
        size_bytes: of its members, as counted.
        due_ms: when the timer comes.
    """

    group: ClassicGroup
    used_ms: int
    stored_ms: int = -1
    size_bytes: int = 0
    timer: asyncio.TimerHandle | None = None
    due_ms: float = 0.0


class GroupMemory:
    """Bytes of the members of all groups of the process.

    Args:
        limit: kafka_groups_bytes_max.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def check(self, more: int) -> None:
        """Check that there is room. Raises: Refused: there is not."""
        if self.used + more > self._limit:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the members of all groups take {self.used} bytes of kafka_groups_bytes_max,"
                f" {self._limit}",
            )


class GroupCoordinator:
    """The groups of a shard.

    Args:
        forget: deletes the offsets of a group that has expired.
    """

    def __init__(
        self,
        shard: Shard,
        config: KafkaConfig,
        random: Random,
        memory: GroupMemory,
        forget: Callable[[str], Awaitable[Found]],
    ) -> None:
        self.shard = shard
        self._config = config
        self._random = random
        self._memory = memory
        self._forget = forget
        self._entries: dict[str, _Entry] = {}
        # The last generations of deleted groups: a group that is made anew goes on above them, so
        # that what members of the deleted one have sent is refused.
        self._past_generations: OrderedDict[str, int] = OrderedDict()
        # Groups whose offsets are being deleted.
        self._deleting: set[str] = set()
        self._is_closed = False
        self._loading: asyncio.Task[None] | None = None
        self._expiry: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Return when the groups are read. Raises: Refused: the shard has ended meanwhile."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        loading = self._loading
        await asyncio.wait([loading])
        if loading.cancelled():
            raise Refused(ErrorCode.NOT_COORDINATOR, "the server has lost the group: ask again")
        loading.result()

    async def _load(self) -> None:
        now_ms = _now_ms()
        for name, row in await self.shard.access.stored_groups():
            group = restored(
                name,
                row,
                first_join_delay_ms=self._config.kafka_group_first_join_delay_ms,
                now_ms=now_ms,
            )
            used_ms = row.used_run_time_ms
            entry = _Entry(group=group, used_ms=used_ms, stored_ms=used_ms)
            self._entries[name] = entry
            self._step(entry)
        self._expiry = asyncio.get_running_loop().create_task(self._watch_expiry())

    def close(self) -> None:
        """Stop all timers: the shard has ended, or the listener."""
        self._is_closed = True
        for entry in self._entries.values():
            if entry.timer is not None:
                entry.timer.cancel()
            self._memory.used -= entry.size_bytes
        self._entries.clear()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._loading is not None:
            self._loading.cancel()

    # Views

    def all(self) -> list[ClassicGroup]:
        """Return all groups, by name."""
        return [self._entries[name].group for name in sorted(self._entries)]

    def find(self, name: str) -> ClassicGroup | None:
        """Return a group, or None."""
        entry = self._entries.get(name)
        return entry.group if entry is not None else None

    def get(self, name: str) -> ClassicGroup:
        """Return a group that a member names. Raises: Refused: there is none."""
        return self._entry(name).group

    # Members

    async def join(
        self,
        name: str,
        asked: Join,
        stopping: asyncio.Event,
    ) -> Joined:
        """Let a client join a group, which is made if it does not exist.

        Raises:
            MemberIdNeeded: the client has to come again with an id.
            Refused: it cannot be a member.
        """
        access = self.shard.access
        self._check_stays(name)
        entry = self._entries.get(name)
        if entry is None:
            if asked.member_id:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {name!r}")
            entry = self._new_entry(name)
        group = entry.group
        if asked.member_id not in group.members:
            if len(group.members) + len(group.promised) >= access.group_members_max:
                raise Refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"group {name!r} has its {access.group_members_max} members",
                )
            self._memory.check(protocol_bytes(asked.protocols))
        ticket: asyncio.Future[Joined | Synced | Refused] = _new_ticket()
        try:
            joined = group.join(asked, ticket, _now_ms())
        finally:
            self._step(entry)
        if joined is not None:
            return joined
        answer = await self._answered(entry, ticket, stopping)
        assert isinstance(answer, Joined)
        return answer

    async def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        stopping: asyncio.Event,
        *,
        protocol_type: str | None,
        protocol: str | None,
    ) -> Synced:
        """Return the assignment of a member, once its leader has made it.

        Raises:
            Refused: as ClassicGroup.sync, or there is no room for the assignments.
        """
        entry = self._entry(name)
        self._memory.check(sum(map(len, assignments.values())))
        ticket: asyncio.Future[Joined | Synced | Refused] = _new_ticket()
        synced = entry.group.sync(
            member_id,
            instance_id,
            generation,
            assignments,
            ticket,
            _now_ms(),
            protocol_type=protocol_type,
            protocol=protocol,
        )
        self._step(entry)
        if synced is not None:
            return synced
        answer = await self._answered(entry, ticket, stopping)
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Take a sign of life. Raises: Refused: as ClassicGroup.heartbeat."""
        self._entry(name).group.heartbeat(member_id, instance_id, generation, _now_ms())

    def leave(self, name: str, member_id: str, instance_id: str | None) -> None:
        """Remove a member. Raises: Refused: there is no such member."""
        entry = self._entry(name)
        entry.group.leave(member_id, instance_id, _now_ms())
        self._step(entry)

    def new_member_id(self, prefix: str) -> str:
        """Return an id for a new member."""
        return f"{prefix}-{UUID(int=self._random.getrandbits(128), version=4)}"

    # Offsets

    def check_commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        in_transaction: bool = False,
    ) -> int:
        """Check that a client may commit offsets; return the generation that the commit carries.

        Raises:
            Refused: as ClassicGroup.check_commit.
        """
        self._check_stays(name)
        entry = self._entries.get(name)
        if entry is None:
            if member_id or generation >= 0:
                raise Refused(ErrorCode.ILLEGAL_GENERATION, f"there is no group {name!r}")
            entry = self._new_entry(name)
        checked = entry.group.check_commit(
            member_id, instance_id, generation, _now_ms(), in_transaction=in_transaction
        )
        entry.used_ms = self.shard.access.run_time_ms
        stale_ms = self._config.kafka_offsets_retention_ms // USE_STORED_PART
        if entry.stored_ms < 0 or entry.used_ms - entry.stored_ms > stale_ms:
            self._put(entry)
        return checked

    def learn_generation(self, name: str, generation: int) -> None:
        """Go on above a generation that the owner of a partition knows, and this group does not."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.group.learn_generation(generation, _now_ms())
            self._step(entry)

    def delete(self, name: str) -> None:
        """Delete a group without members, whose offsets are deleted.

        Raises:
            Refused: there is no such group, or it has members.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        if entry.group.state is not State.EMPTY:
            raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {name!r} has members")
        self._drop(name)

    @contextmanager
    def deleting(self, name: str) -> Iterator[None]:
        """Refuse members and commits of a group while its offsets are deleted."""
        self._check_stays(name)
        self._deleting.add(name)
        try:
            yield
        finally:
            self._deleting.discard(name)

    # Within a step

    def _check_stays(self, name: str) -> None:
        """Check that groups may change here.

        Raises:
            Refused: the group is being deleted, or the shard has ended.
        """
        if self._is_closed:
            raise Refused(ErrorCode.NOT_COORDINATOR, "the server has lost the group: ask again")
        if name in self._deleting:
            raise Refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {name!r} is being deleted"
            )

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {name!r}")
        return entry

    def _new_entry(self, name: str) -> _Entry:
        access = self.shard.access
        if len(self._entries) >= access.groups_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"this broker has its {access.groups_max} groups: delete some, or raise groups_max",
            )
        delay_ms = self._config.kafka_group_first_join_delay_ms
        generation = self._past_generations.get(name, 0)
        group = ClassicGroup(name, first_join_delay_ms=delay_ms, generation=generation)
        entry = self._entries[name] = _Entry(group=group, used_ms=access.run_time_ms)
        return entry

    async def _answered(
        self,
        entry: _Entry,
        ticket: asyncio.Future[Joined | Synced | Refused],
        stopping: asyncio.Event,
    ) -> Joined | Synced:
        """Wait for the answer to a ticket.

        Raises:
            Refused: it is refused, or this server no longer coordinates the group.
        """
        moved = Refused(ErrorCode.NOT_COORDINATOR, "this server stops, or has lost the group")
        stop = asyncio.ensure_future(stopping.wait())
        stop.add_done_callback(lambda _: _settle(ticket, moved))
        try:
            with self.shard.watched(partial(_settle, ticket, moved)):
                answer = await ticket
        finally:
            stop.cancel()
            if not ticket.done() or ticket.cancelled() or ticket.result() is moved:
                entry.group.abandon(ticket, _now_ms())
                self._step(entry)
        if isinstance(answer, Refused):
            raise answer
        return answer

    def _step(self, entry: _Entry) -> None:
        """Tell, store and time what a decision has brought."""
        group = entry.group
        if self._entries.get(group.name) is not entry:
            return
        for ticket, answer in group.told():
            assert isinstance(ticket, asyncio.Future)
            _settle(ticket, answer)
        if group.is_changed:
            entry.used_ms = self.shard.access.run_time_ms
            size_bytes = group.size_bytes
            self._memory.used += size_bytes - entry.size_bytes
            entry.size_bytes = size_bytes
            self._put(entry)
        if group.state is State.EMPTY and not group.promised and entry.stored_ms < 0:
            # It never had members.
            self._drop(group.name)
            return
        due_ms = group.next_deadline_ms
        if due_ms is not None and (entry.timer is None or due_ms < entry.due_ms):
            if entry.timer is not None:
                entry.timer.cancel()
            entry.due_ms = due_ms
            entry.timer = asyncio.get_running_loop().call_at(due_ms / 1000, self._tick, entry)

    def _tick(self, entry: _Entry) -> None:
        now_ms = _now_ms()
        entry.timer = None
        if now_ms - entry.due_ms > STALL_MS:
            log.warning("the process was stopped; sessions of group %r go on", entry.group.name)
            entry.group.forgive(now_ms)
        entry.group.tick(now_ms)
        self._step(entry)

    def _put(self, entry: _Entry) -> None:
        entry.group.is_changed = False
        entry.stored_ms = entry.used_ms
        self.shard.access.put_group(entry.group.name, row_of(entry.group, entry.used_ms))

    def _drop(self, name: str) -> None:
        entry = self._entries.pop(name)
        if entry.group.generation:
            self._past_generations[name] = entry.group.generation
            while len(self._past_generations) > DELETED_KNOWN_MAX:
                self._past_generations.popitem(last=False)
        if entry.timer is not None:
            entry.timer.cancel()
        self._memory.used -= entry.size_bytes
        if entry.stored_ms >= 0:
            self.shard.access.put_group(name, None)

    async def _watch_expiry(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_CHECK_MS / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Delete the groups that had neither members nor commits for too long."""
        for name in list(self._entries):
            if self._has_expired(name) and self.shard.may_speak():
                with self.deleting(name):
                    found = await self._forget(name)
                if found.errors or found.away:
                    # Their owners are away, or acks are pending: it is tried again.
                    continue
                if self._has_expired(name):
                    log.info("group %r has expired", name)
                    self._drop(name)

    def _has_expired(self, name: str) -> bool:
        entry = self._entries.get(name)
        if entry is None or name in self._deleting:
            return False
        age_ms = self.shard.access.run_time_ms - entry.used_ms
        is_idle = entry.group.state is State.EMPTY and not entry.group.promised
        return is_idle and age_ms > self._config.kafka_offsets_retention_ms


class GroupCoordinators:
    """The coordinators of this process's shards."""

    def __init__(
        self, shards: Shards, owners: OffsetOwners, config: KafkaConfig, random: Random
    ) -> None:
        self._shards = shards
        self._owners = owners
        self._config = config
        self._random = random
        self._memory = GroupMemory(config.kafka_groups_bytes_max)
        self._of_shard: dict[Shard, GroupCoordinator] = {}

    async def of(self, group: str) -> GroupCoordinator:
        """Return the coordinator of a group.

        Raises:
            Refused: the name is not one of a group, or another server coordinates it.
        """
        check_group_name(group)
        directory = self._shards.directory()
        if directory is None:
            raise Refused(ErrorCode.NOT_COORDINATOR, "this server has no shard: ask again")
        shard = self._shards.numbered(shard_of_group(group, directory.access.shards))
        if shard is None:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"another server coordinates {group!r}")
        return await self._coordinator(shard)

    async def all(self) -> list[GroupCoordinator]:
        """Return the coordinators of this process's shards. Raises: Refused: as of()."""
        return [await self._coordinator(shard) for shard in self._shards.all()]

    def close(self) -> None:
        """Stop all timers."""
        for coordinator in self._of_shard.values():
            coordinator.close()
        self._of_shard.clear()

    def ended(self, shard: Shard) -> None:
        """Drop the groups of a shard that has ended."""
        coordinator = self._of_shard.pop(shard, None)
        if coordinator is not None:
            coordinator.close()

    async def _coordinator(self, shard: Shard) -> GroupCoordinator:
        found = self._of_shard.get(shard)
        if found is None:
            found = self._of_shard[shard] = GroupCoordinator(
                shard, self._config, self._random, self._memory, self._forget
            )
        await found.ready()
        return found

    async def _forget(self, group: str) -> Found:
        return await self._owners.forget_all(group, expired=True)


def check_group_name(group: str) -> None:
    """Check that a text can be the name of a group. Raises: Refused: it cannot."""
    if not is_subscription_name(group):
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"{group!r} is not a name of a group")


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def _new_ticket() -> asyncio.Future[Joined | Synced | Refused]:
    return asyncio.get_running_loop().create_future()


def _settle(
    ticket: asyncio.Future[Joined | Synced | Refused], answer: Joined | Synced | Refused
) -> None:
    if not ticket.done():
        ticket.set_result(answer)
