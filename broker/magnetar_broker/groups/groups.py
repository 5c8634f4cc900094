"""Groups of this broker: their rows, timers and conversations. `group` makes the decisions.

Source: docs/design/0003-groups.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

from magnetar_broker import keys
from magnetar_broker.assignment.group import Change, Group, Member, PartitionOwner
from magnetar_broker.assignment.group_rows import restored_group, row_of
from magnetar_broker.assignment.group_target import Interest
from magnetar_broker.assignment.past_members import DeletedGroups
from magnetar_broker.coordinators.coordinator_sessions import CoordinatorSessions
from magnetar_broker.environment import Environment
from magnetar_broker.groups.group_topics import GroupTopics
from magnetar_broker.groups.member_sessions import MemberSessions
from magnetar_broker.subscriptions.group_ownership import GroupOwnership
from magnetar_broker.subscriptions.subscription import Subscription
from magnetar_broker.subscriptions.subscriptions import is_subscription_name
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import (
    GroupNotFound,
    InvalidArgument,
    MagnetarError,
    QuotaExceeded,
    ResourceInUse,
    SubscriptionExists,
)
from magnetar_core.ids import MemberName, PartitionName, TxnID
from magnetar_core.server.commands import CommandSession, Complaint
from magnetar_core.wildcards import matcher
from magnetar_core.wire import broker_pb2
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import WriteBatch

log = logging.getLogger(__name__)

# A timer that is this late shows that the broker itself was stopped.
STALL_MS = 1_000
# How often coordinators are asked again to abort what departed members left open.
LEFT_BEHIND_PERIOD_MS = 1_000


class Groups:
    """All groups of a broker, by name."""

    def __init__(
        self, environment: Environment, topics: Topics, coordinators: CoordinatorSessions
    ) -> None:
        self._environment = environment
        self._topics = topics
        self._group_topics = GroupTopics(topics)
        self._coordinators = coordinators
        self._groups: dict[str, Group] = {}
        self._deleted = DeletedGroups()
        self._sessions = MemberSessions(self._turn_out)
        # Groups whose rows must be written.
        self._changed: dict[str, None] = {}
        # Groups whose departed members may have left transactions open, with the time to ask again
        # for their end.
        self._departed: dict[str, float] = {}
        # Cursors that recovery has read, until all are read.
        self._restored: list[tuple[Subscription, GroupOwnership]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0.0
        # Returns how many clients of Kafka are members of a group; None: no port is open for them.
        self.kafka_members: Callable[[str], Awaitable[int]] | None = None

    # Finding

    def all(self) -> list[Group]:
        """Return all groups, by name."""
        return sorted(self._groups.values(), key=lambda one: one.name)

    def get(self, name: str) -> Group:
        """Return a group.

        Raises:
            GroupNotFound: no group has the name.
        """
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(f"there is no group {name!r}: join it, or correct the name")
        return group

    def subscriptions(self, group: Group) -> Iterator[tuple[Partition, Subscription]]:
        """Yield the group's cursors, in order."""
        for topic in sorted(self._topics.all(), key=lambda one: one.name):
            for partition in topic.partitions:
                found = partition.subscriptions.find(group.name)
                if found is not None and found.group_ownership is not None:
                    yield partition, found

    def all_subscriptions(self) -> dict[str, list[tuple[Partition, Subscription]]]:
        """Return the cursors of all groups, by name, in a single pass."""
        cursors: dict[str, list[tuple[Partition, Subscription]]] = {}
        for partition in self._topics.partitions():
            for one in partition.subscriptions:
                if one.group_ownership is not None:
                    cursors.setdefault(one.name.subscription, []).append((partition, one))
        return cursors

    def silent_ms(self, member: Member) -> float:
        """Return the milliseconds since a member's last heartbeat."""
        return self._now_ms() - member.heard_ms

    # Members

    async def refuse_mixed(self, name: str) -> None:
        """Check that no client of Kafka is a member of a group.

        Raises:
            SubscriptionExists: one is.
            LogUnavailable: the group's coordinator is away.
        """
        members = await self.kafka_members(name) if self.kafka_members is not None else 0
        if members:
            raise SubscriptionExists(
                f"group {name!r} has {members} members that are Kafka's clients: stop them first,"
                " or choose another name"
            )

    def may_be_mixed(self, name: str, newcomer: Member) -> bool:
        """Return whether clients of Kafka may be members of the group that a member joins."""
        group = self._groups.get(name)
        if self.kafka_members is None or (group is not None and group.members):
            return False
        return self._group_topics.has_kafka_offsets(name, newcomer)

    def join(
        self,
        name: str,
        newcomer: Member,
        *,
        initial_position: broker_pb2.InitialPosition,
        allow_two_phase_commit: bool,
        session: CommandSession | None,
        complaint: Complaint | None = None,
    ) -> Group:
        """Let a member join, or join again; the group is created if it does not exist.

        Args:
            complaint: returns why the client may no longer be a member; None: there is no access
                control.
        Raises:
            InvalidArgument: a bad name; or the others joined with another allow_two_phase_commit.
            TopicNotFound: a named topic does not exist.
            SubscriptionExists: consumers without the group are attached under its name.
            QuotaExceeded: too many groups, members, or subscriptions.
        """
        group = self._groups.get(name)
        if group is None:
            group = self._new_group(name)
        group.refuse_late_join(newcomer)
        others = [
            member
            for member in group.members.values()
            if member.member_id != newcomer.member_id
            and not (newcomer.instance_id and member.instance_id == newcomer.instance_id)
        ]
        if others and group.allow_two_phase_commit != allow_two_phase_commit:
            raise InvalidArgument(
                f"the members of group {name!r} joined with allow_two_phase_commit"
                f" {group.allow_two_phase_commit}: all of them say the same"
            )
        members_max = self._environment.config.group_members_max
        if len(others) >= members_max:
            raise QuotaExceeded(
                f"group {name!r} has its {members_max} members", group_members_max=members_max
            )
        for topic in newcomer.topics:
            self._topics.get(topic)
        members = [*others, newcomer]
        self._group_topics.require_cursors(name, members, initial_position)
        interest = self._group_topics.interest(name, members)
        change = group.join(newcomer, interest, self._now_ms())
        group.allow_two_phase_commit = allow_two_phase_commit
        self._groups[name] = group
        self._deleted.made(name)
        self._sessions.joined(name, newcomer.member_id, session, complaint)
        log.info("%r joined group %r, generation %d", newcomer.member_id, name, group.generation)
        self._apply(group, change)
        self._write(group)
        return group

    def heartbeat(
        self,
        name: str,
        member: MemberName,
        held: dict[PartitionName, int],
        number: int,
        session: CommandSession | None,
    ) -> Group:
        """Take a heartbeat.

        Raises:
            GroupNotFound: no group has the name.
            UnknownMember: as Group.member.
            FencedInstance: as Group.member.
        """
        group = self.get(name)
        if group.is_late_heartbeat(member, number):
            if number == group.member(member).heartbeat_number:
                # The answer to the first copy may be lost with its link.
                self._sessions.heard(name, member.member_id, session)
            return group
        change = group.heartbeat(member, held, self._now_ms())
        self._sessions.heard(name, member.member_id, session)
        if change.given:
            self._apply(group, change)
        return group

    def leave(self, name: str, member: MemberName) -> None:
        """Let a member leave.

        Raises:
            GroupNotFound: no group has the name.
            UnknownMember: as Group.member.
            FencedInstance: as Group.member.
        """
        group = self.get(name)
        group.member(member)
        interest = self._interest_without(group, [member.member_id])
        log.info("%r left group %r", member.member_id, name)
        self._apply(group, group.leave(member, interest, self._now_ms()))

    def delete(self, name: str) -> None:
        """Delete a group and its cursors.

        Raises:
            GroupNotFound: no group has the name.
            ResourceInUse: it has members, or pending acks.
            LogUnavailable: as Subscriptions.refuse_sealed.
        """
        group = self.get(name)
        if group.members:
            raise ResourceInUse(
                f"group {name!r} has {len(group.members)} members: stop them first",
                members=len(group.members),
            )
        cursors = list(self.subscriptions(group))
        for partition, subscription in cursors:
            partition.subscriptions.refuse_sealed()
            subscription.refuse_deletion()
        for partition, _ in cursors:
            partition.subscriptions.delete(name)
        del self._groups[name]
        self._deleted.note(name, group.past_members)
        self._departed.pop(name, None)
        self._write(group)

    # Topics and time

    def carry(self, partitions: Iterable[Partition]) -> None:
        """Give cursors on new partitions to the groups that had some on their topic before.

        They begin at the beginning: a group misses nothing, whether it has members now or not.
        """
        for partition in partitions:
            for name in self._topics.get(partition.name.topic).record.groups:
                group = self._groups.get(name)
                if group is None:
                    # Its members were gone before this broker kept any of their partitions.
                    group = Group(name, past_members=self._deleted.past_members(name))
                    self._groups[name] = group
                    self._deleted.made(name)
                    self._write(group)
                partition.subscriptions.carry(name, partition.log.first_offset)
                partition.subscriptions.claim(name, GroupOwnership(group, partition.name))

    def topic_changed(self, topic: str) -> None:
        """Assign again: a topic was created, altered or deleted."""
        for group in self.all():
            if any(_wants(member, topic) for member in group.members.values()):
                change = group.topics_changed(self._fresh_interest(group), self._now_ms())
                self._apply(group, change)

    def restore(self, name: str, row: records.GroupRow) -> None:
        """Restore a group from its row; its owners come with the cursors."""
        self._groups[name] = restored_group(name, row)

    def restore_partition_owner(self, subscription: Subscription, row: records.OwnerRow) -> None:
        """Restore a cursor of a group, and its owner. The group is restored before."""
        group = self._groups[subscription.name.subscription]
        partition = subscription.name.partition_name
        if row.member_id in group.members:
            group.partition_owners[partition] = PartitionOwner(row.member_id, row.generation)
        self._restored.append((subscription, GroupOwnership(group, partition)))

    def start(self) -> None:
        """Begin: all rows are read. Session timeouts start anew."""
        for subscription, group_ownership in self._restored:
            subscription.claim(group_ownership)
        self._restored.clear()
        for group in self.all():
            self._departed[group.name] = self._now_ms()
            if group.members:
                self._apply(group, group.restored(self._fresh_interest(group), self._now_ms()))
        self._call_at(self._next_due_ms())

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def write_deferred_rows(self, batch: WriteBatch) -> None:
        """Write the rows of changed groups."""
        for name in self._changed:
            group = self._groups.get(name)
            if group is None:
                batch.delete(keys.GROUPS, keys.group(name))
            else:
                batch.put(keys.GROUPS, keys.group(name), row_of(group).SerializeToString())
        self._changed.clear()

    # Within a step

    def _new_group(self, name: str) -> Group:
        if not is_subscription_name(name):
            raise InvalidArgument(
                f"{name!r} is not a name of a group: 1 to 200 printable characters"
            )
        groups_max = self._environment.config.groups_max
        if len(self._groups) >= groups_max:
            raise QuotaExceeded(
                f"this broker has its {groups_max} groups: delete some, or raise groups_max",
                groups_max=groups_max,
            )
        return Group(name, past_members=self._deleted.past_members(name))

    def _interest_without(self, group: Group, gone: list[str]) -> Interest:
        left = [member for member in group.members.values() if member.member_id not in gone]
        return self._group_topics.interest(group.name, left)

    def _fresh_interest(self, group: Group) -> Interest:
        """Return the interest after topics were created; the group gets all of their messages."""
        self._group_topics.add_cursors(group.name, group.members.values())
        return self._group_topics.interest(group.name, group.members.values())

    def _apply(self, group: Group, change: Change) -> None:
        for partition in change.given:
            owned = self._topics.find(partition)
            if owned is not None:
                owned.subscriptions.claim(group.name, GroupOwnership(group, partition))
        for member_id in change.to_notify:
            word = self._sessions.word(group.name, member_id)
            if word is not None:
                self._environment.when_durable(word)
        for member_id in change.gone:
            self._sessions.gone(group.name, member_id)
        if change.gone:
            self._abort_left_behind(group)
        if change.reassigned:
            self._environment.metrics.group_rebalances.inc()
            self._write(group)
        # Heartbeats only move deadlines back; only a new deadline may come before the timer.
        self._call_at(group.next_deadline_ms)

    def _write(self, group: Group) -> None:
        self._changed[group.name] = None
        self._environment.defer_rows(self)

    def _abort_left_behind(self, group: Group) -> None:
        """Ask coordinators to abort transactions that departed members left open (rule f)."""
        txn_ids: dict[int, dict[TxnID, None]] = {}
        for _, subscription in self.subscriptions(group):
            for txn_id in subscription.left_behind():
                txn_ids.setdefault(txn_id.tcid, {})[txn_id] = None
        if not txn_ids:
            self._departed.pop(group.name, None)
            return
        self._departed[group.name] = self._now_ms() + LEFT_BEHIND_PERIOD_MS
        self._call_at(self._departed[group.name])
        for tcid, some in txn_ids.items():
            ask = partial(self._coordinators.abort_expelled, tcid, list(some))
            self._environment.when_durable(ask)

    # Time

    def _now_ms(self) -> float:
        return self._environment.clock.monotonic_ms()

    def _next_due_ms(self) -> float | None:
        """Return when the next member may be overdue, or coordinators must be asked again."""
        deadlines = [group.next_deadline_ms for group in self._groups.values()]
        found = [one for one in deadlines if one is not None]
        return min([*found, *self._departed.values()], default=None)

    def _call_at(self, due_ms: float | None) -> None:
        """Sweep at this time, unless an earlier sweep is scheduled."""
        if due_ms is None:
            return
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(0.0, due_ms - self._now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.sweep)

    def sweep(self) -> None:
        """Expel overdue members, and ask again for the end of transactions that were left open."""
        self._timer = None
        now_ms = self._now_ms()
        stood_still = now_ms - self._due_ms > STALL_MS
        for group in self.all():
            if stood_still:
                group.forgive(now_ms)
            overdue = group.overdue(now_ms)
            if overdue:
                self._expel(group, overdue, now_ms)
            elif self._departed.get(group.name, now_ms + 1) <= now_ms:
                self._abort_left_behind(group)
        self._call_at(self._next_due_ms())

    def _expel(self, group: Group, members: list[Member], now_ms: float) -> None:
        for member in members:
            log.warning(
                "%r is expelled from group %r: %.0f ms without a heartbeat, or it does not"
                " release what it was asked for",
                member.member_id,
                group.name,
                now_ms - member.heard_ms,
            )
        self._remove(group, members, now_ms)

    def _turn_out(self, name: str, member_id: str, error: MagnetarError) -> None:
        """Expel a member that lost its rights; its next heartbeat, or join, is refused."""
        group = self._groups.get(name)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None:
            return
        log.warning("%r is expelled from group %r: %s", member_id, name, error)
        word = self._sessions.word(name, member_id)
        self._remove(group, [member], self._now_ms())
        if word is not None:
            self._environment.when_durable(word)

    def _remove(self, group: Group, members: list[Member], now_ms: float) -> None:
        interest = self._interest_without(group, [member.member_id for member in members])
        change = group.expel(members, interest, now_ms)
        self._environment.metrics.group_members_expelled.inc(len(members))
        self._apply(group, change)


def _wants(member: Member, topic: str) -> bool:
    if topic in member.topics:
        return True
    return matcher(member.topic_pattern)(topic)
