"""Topics of the members of groups, and the cursors of groups on partitions of this broker."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from magnetar_broker.assignment.group import Member
from magnetar_broker.assignment.group_target import Interest
from magnetar_broker.topics.topics import Topic, Topics
from magnetar_core.errors import MagnetarError, SubscriptionExists
from magnetar_core.ids import PartitionName
from magnetar_core.wildcards import matcher
from magnetar_core.wire import broker_pb2

log = logging.getLogger(__name__)


class GroupTopics:
    """The broker's topics, as groups see them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def interest(self, group: str, members: Iterable[Member]) -> Interest:
        """Return the interest of members; this broker assigns partitions with cursors here."""
        interest = self._wanted_by(members)
        hosted = self._hosted_of(interest)
        readable = tuple(
            one for one in hosted if self._topics.of(one).subscriptions.find(group) is not None
        )
        if len(hosted) == len(interest.partitions):
            return interest._replace(partitions=readable)
        # The other brokers do not know which cursors are missing here: all partitions count.
        return interest._replace(hosted=frozenset(readable))

    def require_cursors(
        self, group: str, members: Collection[Member], position: broker_pb2.InitialPosition
    ) -> None:
        """Make the cursors that a group needs here for these members.

        Raises:
            SubscriptionExists: consumers without the group are attached under its name. No effect.
            QuotaExceeded: too many subscriptions. No effect.
        """
        partitions = self._hosted_of(self._wanted_by(members))
        for partition in partitions:
            self._check_cursor(group, partition)
        for partition in partitions:
            self._make_cursor(group, partition, position)

    def has_kafka_offsets(self, group: str, member: Member) -> bool:
        """Return whether a group of Kafka's clients has come to a partition that a member reads."""
        return any(
            self._topics.of(one).subscriptions.generation(group)
            for one in self._hosted_of(self._wanted_by([member]))
        )

    def add_cursors(self, group: str, members: Collection[Member]) -> None:
        """Make the cursors that can be made, at the beginning of each partition."""
        for partition in self._hosted_of(self._wanted_by(members)):
            try:
                self._check_cursor(group, partition)
                self._make_cursor(group, partition, broker_pb2.EARLIEST)
            except MagnetarError as error:
                log.warning("group %r cannot read %s: %s", group, partition, error)

    def _hosted_of(self, interest: Interest) -> list[PartitionName]:
        return [one for one in interest.partitions if self._topics.hosts(one)]

    def _wanted_by(self, members: Iterable[Member]) -> Interest:
        """Return the interest of members in existing topics, wherever their partitions are."""
        matching: dict[str, list[Topic]] = {"": []}
        topics: dict[int, Topic] = {}
        wanted: dict[str, frozenset[int]] = {}
        for member in members:
            pattern = member.topic_pattern
            if pattern not in matching:
                fits = matcher(pattern)
                matching[pattern] = [one for one in self._topics.all() if fits(one.name)]
            named = [self._topics.lookup(name) for name in sorted(member.topics)]
            found = {one.topic_id: one for one in [*named, *matching[pattern]] if one is not None}
            topics.update(found)
            wanted[member.member_id] = frozenset(found)
        partitions = tuple(
            name for _, topic in sorted(topics.items()) for name in topic.partition_names
        )
        return Interest(partitions, wanted)

    def _check_cursor(self, group: str, partition: PartitionName) -> None:
        """Check that the group can have a cursor on a partition.

        Raises:
            SubscriptionExists: as require_cursors.
            QuotaExceeded: as require_cursors.
        """
        subscriptions = self._topics.of(partition).subscriptions
        found = subscriptions.find(group)
        if found is None:
            subscriptions.check_room()
        elif found.group_ownership is None and found.delivery.consumer_names:
            raise SubscriptionExists(
                f"consumers without a group are attached to {found.name}: close them first"
            )

    def _make_cursor(
        self, group: str, partition: PartitionName, position: broker_pb2.InitialPosition
    ) -> None:
        found = self._topics.of(partition)
        if found.subscriptions.find(group) is None:
            latest = position == broker_pb2.LATEST
            offset = found.log.end_offset if latest else found.log.first_offset
            found.subscriptions.create(group, offset)
