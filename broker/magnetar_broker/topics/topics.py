"""Topics: names, ids that are never reused, and the partitions that this broker keeps.

Every broker knows all topics, and keeps those partitions of each that lie on its shard.
Source: docs/design/0008-cluster.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from magnetar_broker import keys
from magnetar_broker.environment import Environment
from magnetar_broker.topics.alterations import altered, being_grown
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topic_directory import Taken, Unheard, UnheardName
from magnetar_core.errors import (
    Gone,
    InvalidArgument,
    MagnetarError,
    PartitionMoved,
    QuotaExceeded,
    TopicExists,
    TopicNotFound,
)
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.membership.placement import SERIAL_MAX, new_topic_id, serial_of, shard_of
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2 as wire

TOPIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions on this broker.

    Attributes:
        hosted: the partitions that this broker keeps, by number.
    """

    record: wire.TopicRecord
    hosted: Mapping[int, Partition]

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions that this broker keeps, in order."""
        return tuple(self.hosted.values())

    @property
    def partition_names(self) -> tuple[PartitionName, ...]:
        """The names of all partitions, in order; other brokers keep the others."""
        record = self.record
        return tuple(
            PartitionName(record.topic, number, record.topic_id)
            for number in range(record.partitions)
        )

    @property
    def topic_id(self) -> int:
        """The topic's id."""
        return self.record.topic_id

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.record.topic


class Followed(NamedTuple):
    """Result of following the directory: the topics concerned, and the partitions that are new."""

    topics: tuple[str, ...]
    begun: tuple[Partition, ...]


def wanted_partitions(command: wire.CommandCreateTopic) -> int:
    """Return how many partitions a command asks for."""
    return command.partitions or 1


def unconsumed(settings: wire.TopicRecord | wire.CommandCreateTopic) -> str:
    """Say what retention does with messages that a subscription still needs."""
    return "removed" if settings.retain_unconsumed == wire.NO else "kept"


def differences(topic: wire.TopicRecord, command: wire.CommandCreateTopic) -> list[str]:
    """Say which settings of a topic are not those that a command asks for."""
    rows = (
        ("partitions", topic.partitions, wanted_partitions(command)),
        ("retention_ms", topic.retention_ms, command.retention_ms),
        ("retention_bytes", topic.retention_bytes, command.retention_bytes),
        ("unconsumed messages", unconsumed(topic), unconsumed(command)),
    )
    return [f"{name} {found}, not {wanted}" for name, found, wanted in rows if found != wanted]


class Topics:
    """All topics, by name."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._topics: dict[str, Topic] = {}
        # All partitions that this broker keeps, by their PartitionNames.
        self.hosted: dict[tuple[str, int, int], Partition] = {}
        # By id.
        self._records: dict[int, wire.TopicRecord] = {}
        self._shard = environment.config.shard
        self._shard_count = environment.config.shard_count
        # The serial number of the next topic's id.
        self.next_serial = 1
        self.next_subscription_id = 1
        # Every topic has at least this ledger id.
        self.ledger_id = 1
        # Whether there are no topics but these. The first broker makes them, so it knows.
        self._are_complete = not self._shard

    def all(self) -> list[Topic]:
        """Return all topics."""
        return list(self._topics.values())

    @property
    def by_id(self) -> Mapping[int, wire.TopicRecord]:
        """The records of all topics, by id."""
        return self._records

    def partitions(self) -> list[Partition]:
        """Return the partitions of all topics that this broker keeps."""
        return list(self.hosted.values())

    def get(self, name: str) -> Topic:
        """Return a topic.

        Raises:
            TopicNotFound: no topic has the name.
            Unheard: none has it here, at a follower.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise self._unknown(name)
        return topic

    def lookup(self, name: str) -> Topic | None:
        """Return the topic that has the name now, or None."""
        return self._topics.get(name)

    def partition(self, name: str, number: int, topic_id: int) -> Partition:
        """Return a partition; topic_id 0 means the topic that has the name now.

        Raises:
            PartitionMoved: another broker keeps it, and says whether it is still there.
            TopicNotFound: no such topic or partition.
            Gone: the name belongs to another topic now, or to none.
            Unheard: the name or the id may be of a new topic.
        """
        hosted = self.hosted.get((name, number, topic_id))
        if hosted is not None:
            return hosted
        topic = self._topics.get(name)
        if topic is None or (topic_id and topic.topic_id != topic_id):
            if topic_id:
                self._check_shard(PartitionName(name, number, topic_id))
                if self._shard and serial_of(topic_id) >= self.next_serial:
                    text = f"this broker does not know topic {name!r} with id {topic_id}"
                    denial = Gone(f"the topic does not exist, and never did ({text})")
                    raise self.unless_complete(Unheard(f"{text}: ask again"), denial)
                raise Gone(f"topic {name!r} with id {topic_id} was deleted")
            raise self._unknown(name)
        found = topic.hosted.get(number)
        if found is not None:
            return found
        full_name = PartitionName(name, number, topic.topic_id)
        if number < topic.record.partitions:
            raise self._moved(full_name)
        raise self._unknown_partition(topic, full_name, Unheard if topic_id else UnheardName)

    def _unknown_partition(
        self, topic: Topic, name: PartitionName, kind: type[Unheard]
    ) -> MagnetarError:
        if not self._are_complete and not self.hosts(name):
            # It may be new: its own broker knows.
            return self._moved(name)
        last = topic.record.partitions - 1
        return self.unless_complete(
            kind(f"this broker does not know {name}, which may be new: ask again"),
            TopicNotFound(f"topic {topic.name!r} has partitions 0 to {last}, not {name.partition}"),
        )

    def _unknown(self, name: str) -> MagnetarError:
        unheard = UnheardName(f"this broker does not know topic {name!r}: ask again")
        denial = TopicNotFound(f"there is no topic {name!r}: create it, or correct the name")
        return self.unless_complete(unheard, denial)

    def unless_complete(self, unheard: Unheard, denial: MagnetarError) -> MagnetarError:
        """Return the error for what a command names and this broker does not know.

        Args:
            unheard: the error of a follower. Whatever it was told last, this may be newer.
            denial: the error if the first broker does not know it either.
        """
        return denial if self._are_complete else unheard

    @contextmanager
    def complete(self) -> Iterator[None]:
        """Deny what is not known here: the first broker has just told all that it knows."""
        before, self._are_complete = self._are_complete, True
        try:
            yield
        finally:
            self._are_complete = before

    def hosts(self, name: PartitionName) -> bool:
        """Return whether this broker keeps the partition, or did before the topic's deletion.

        For an invented id, whose shard no broker keeps, the first broker answers: it issues the
        ids.
        """
        shard = shard_of(name.topic_id, name.partition)
        return shard == self._shard or (not self._shard and shard >= self._shard_count)

    def find(self, name: PartitionName) -> Partition | None:
        """Return exactly this partition, or None if its topic was deleted.

        Raises:
            PartitionMoved: another broker keeps it.
        """
        self._check_shard(name)
        topic = self._topics.get(name.topic)
        if topic is None or topic.topic_id != name.topic_id:
            return None
        return topic.hosted.get(name.partition)

    def _check_shard(self, name: PartitionName) -> None:
        if not self.hosts(name):
            raise self._moved(name)

    def _moved(self, name: PartitionName) -> PartitionMoved:
        """Return the error that says which broker keeps a partition."""
        brokers = self._environment.config.brokers
        shard = shard_of(name.topic_id, name.partition)
        if shard >= len(brokers):
            return PartitionMoved(f"another broker keeps {name}: look it up again")
        broker = self._environment.addresses.find(brokers[shard])
        return PartitionMoved(f"{broker.name} keeps {name}, at {broker.address}: look it up again")

    def of(self, name: PartitionName) -> Partition:
        """Return a partition that exists, and that this broker keeps."""
        found = self.find(name)
        assert found is not None
        return found

    def named(
        self, name: common.Partition | common.Subscription | PartitionName | SubscriptionName
    ) -> Partition:
        """Return the partition that a command names.

        Raises:
            PartitionMoved: as partition().
            TopicNotFound: as partition().
            Gone: as partition().
        """
        return self.partition(name.topic, name.partition, name.topic_id)

    def existing(self, command: wire.CommandCreateTopic) -> Topic | None:
        """Return the topic that has the name already, or None.

        Raises:
            TopicExists: its settings are not those of the command.
        """
        topic = self._topics.get(command.topic)
        if topic is None:
            return None
        different = differences(topic.record, command)
        if different:
            raise TopicExists(f"topic {command.topic!r} exists with {', '.join(different)}")
        return topic

    def create(self, command: wire.CommandCreateTopic) -> Topic:
        """Create a topic.

        Raises:
            InvalidArgument: the name or the number of partitions is not allowed.
            TopicExists: the name is taken.
            QuotaExceeded: too many topics, or partitions of all topics.
            DiskFull: the disk's reserve is reached.
        """
        self._environment.disk_reserve.check()
        config = self._environment.config
        if TOPIC_NAME.fullmatch(command.topic) is None:
            raise InvalidArgument(
                f"{command.topic!r} is not a topic name: 1 to 200 letters, digits, '.', '_', '-', "
                "'/',"
                " beginning with a letter or digit"
            )
        if command.topic in self._topics:
            raise TopicExists(f"topic {command.topic!r} exists")
        partitions = wanted_partitions(command)
        if partitions > config.partitions_max:
            raise InvalidArgument(f"a topic has at most {config.partitions_max} partitions")
        if len(self._topics) >= config.topics_max:
            raise QuotaExceeded(f"this broker has its {config.topics_max} topics")
        self._check_partitions_left(partitions)
        if self.next_serial > SERIAL_MAX:
            raise QuotaExceeded("this cluster has given out all ids of topics")
        record = wire.TopicRecord(
            topic_id=new_topic_id(command.topic, self.next_serial, config.shard_count),
            topic=command.topic,
            partitions=partitions,
            retention_ms=command.retention_ms,
            retention_bytes=command.retention_bytes,
            retain_unconsumed=command.retain_unconsumed,
            ledger_id=self.ledger_id,
            created_at_ms=self._environment.clock.wall_ms(),
        )
        self.next_serial += 1
        batch = self._environment.commits.batch
        batch.put(keys.META, keys.META_NEXT_TOPIC_ID, keys.u64(self.next_serial))
        batch.put(keys.TOPICS, keys.topic(record.topic_id), record.SerializeToString())
        topic = self.restore(record, {})
        for partition in topic.partitions:
            partition.write_new_rows()
        return topic

    def _check_partitions_left(self, partitions: int) -> None:
        """Check that the topics of the cluster may have so many more partitions.

        Raises:
            QuotaExceeded: they may not.
        """
        config = self._environment.config
        known = self._records.values()
        partition_count = sum(max(one.partitions, one.growing_to) for one in known)
        if partition_count + partitions > config.broker_partitions_max * config.shard_count:
            raise QuotaExceeded(
                f"the topics of this cluster have {partition_count} partitions: delete some, or"
                " raise broker_partitions_max",
                broker_partitions_max=config.broker_partitions_max,
            )

    def altered(self, topic: Topic, command: wire.CommandAlterTopic) -> wire.TopicRecord:
        """Return the record of a topic as a command asks for it; an equal one if nothing changes.

        Raises:
            InvalidArgument: as alterations.altered.
            LogUnavailable: as alterations.altered.
            QuotaExceeded: too many partitions of all topics.
            DiskFull: the disk's reserve is reached.
        """
        partitions_max = self._environment.config.partitions_max
        wanted = altered(topic.record, command, partitions_max=partitions_max)
        if wanted.partitions > topic.record.partitions:
            self._environment.disk_reserve.check()
            self._check_partitions_left(wanted.partitions - topic.record.partitions)
        return wanted

    def alter(
        self, record: wire.TopicRecord, *, may_have_rows: bool = False
    ) -> tuple[Partition, ...]:
        """Let a topic have another record, and the partitions of that; return those that are new.

        They begin with the subscriptions that the record names. Groups get their cursors by
        `Groups.carry`.

        Args:
            may_have_rows: rows of partitions may be left whose topics' rows were lost.
        """
        before = self._topics[record.topic]
        hosted = dict(before.hosted)
        batch = self._environment.commits.batch
        batch.put(keys.TOPICS, keys.topic(record.topic_id), record.SerializeToString())
        for number in [one for one in hosted if one >= record.partitions]:
            # The first broker lost them, and a person accepted that here.
            lost = hosted.pop(number)
            del self.hosted[lost.name]
            lost.delete()
        added = self._partitions_of(record, {}, range(before.record.partitions, record.partitions))
        self._put(record, {**hosted, **added})
        self._begin(record, added.values(), may_have_rows=may_have_rows)
        return tuple(added.values())

    def _begin(
        self, record: wire.TopicRecord, partitions: Iterable[Partition], *, may_have_rows: bool
    ) -> None:
        """Write the rows of new partitions, and let the topic's subscriptions begin there."""
        for partition in partitions:
            if may_have_rows:
                partition.delete_rows()
            partition.write_new_rows()
            for name in record.subscriptions:
                partition.subscriptions.carry(name, partition.log.first_offset)

    def _partitions_of(
        self,
        record: wire.TopicRecord,
        rows: Mapping[int, records.PartitionRow],
        numbers: Iterable[int],
    ) -> dict[int, Partition]:
        """Return those of a topic's partitions that this broker keeps, by number."""
        names = (PartitionName(record.topic, number, record.topic_id) for number in numbers)
        return {
            name.partition: Partition(
                self._environment,
                name,
                rows.get(name.partition, records.PartitionRow()),
                self._take_subscription_id,
                ledger_id=max(record.ledger_id, self.ledger_id),
            )
            for name in names
            if self.hosts(name)
        }

    def _put(self, record: wire.TopicRecord, hosted: dict[int, Partition]) -> Topic:
        """Let a topic have a record and partitions. While it grows, its subscriptions stay."""
        topic = Topic(record, hosted)
        self._topics[record.topic] = topic
        self._records[record.topic_id] = record
        reason = str(being_grown(record)) if record.growing_to else ""
        for partition in topic.partitions:
            self.hosted[partition.name] = partition
            partition.subscriptions.sealed = reason
        return topic

    def restore(self, record: wire.TopicRecord, rows: dict[int, records.PartitionRow]) -> Topic:
        """Restore a topic from its rows."""
        hosted = self._partitions_of(record, rows, range(record.partitions))
        return self._put(record, hosted)

    def of_id(self, name: str, topic_id: int) -> Topic:
        """Return a topic.

        Args:
            topic_id: only this topic; 0: the topic that has the name.
        Raises:
            TopicNotFound: no such topic.
            Gone: the name belongs to another topic now.
        """
        topic = self.get(name)
        if topic_id not in (0, topic.topic_id):
            raise Gone(f"topic {name!r} with id {topic_id} was deleted; it has id {topic.topic_id}")
        return topic

    def to_delete(self, name: str, topic_id: int = 0) -> Topic:
        """Return a topic that may be deleted, as far as this broker knows.

        Args:
            topic_id: only this topic; 0: the topic that has the name.
        Raises:
            TopicNotFound: no such topic.
            Gone: the name belongs to another topic now.
            ResourceInUse: transactions are open or acks are pending there.
        """
        topic = self.of_id(name, topic_id)
        for partition in topic.partitions:
            partition.refuse_deletion()
        return topic

    def delete(self, topic: Topic) -> None:
        """Delete a topic and all its data here; what is open there is aborted."""
        # First, so that whatever waited there finds that it is gone.
        del self._topics[topic.name]
        del self._records[topic.topic_id]
        for partition in topic.partitions:
            del self.hosted[partition.name]
        for partition in topic.partitions:
            partition.delete()
        self._environment.commits.batch.delete(keys.TOPICS, keys.topic(topic.topic_id))

    def take(self, taken: Taken, *, next_serial: int, may_have_rows: bool) -> Followed:
        """Follow the first broker's directory.

        Args:
            may_have_rows: rows of partitions may be left whose topics' rows were lost.
        """
        batch = self._environment.commits.batch
        names = []
        begun: list[Partition] = []
        for topic_id in taken.deleted:
            topic = self._topics[self._records[topic_id].topic]
            self.delete(topic)
            names.append(topic.name)
        for record in taken.created:
            batch.put(keys.TOPICS, keys.topic(record.topic_id), record.SerializeToString())
            created = self.restore(record, {}).partitions
            self._begin(record, created, may_have_rows=may_have_rows)
            names.append(record.topic)
            begun += created
        for record in taken.altered:
            begun += self.alter(record, may_have_rows=may_have_rows)
            names.append(record.topic)
        if next_serial != self.next_serial:
            self.next_serial = next_serial
            batch.put(keys.META, keys.META_NEXT_TOPIC_ID, keys.u64(next_serial))
        return Followed(tuple(names), tuple(begun))

    def check(self) -> None:
        """Check the invariants."""
        assert len(self._topics) == len(self._records)
        assert len(self.hosted) == sum(len(one.hosted) for one in self._topics.values())
        for name, topic in self._topics.items():
            assert topic.name == name
            assert self._records[topic.topic_id] is topic.record
            assert all(self.hosted[one.name] is one for one in topic.partitions)
            assert serial_of(topic.topic_id) < self.next_serial
            assert list(topic.hosted) == [
                one.partition for one in topic.partition_names if self.hosts(one)
            ]

    def _take_subscription_id(self) -> int:
        """Return a new id; it is never reused."""
        taken = self.next_subscription_id
        self.next_subscription_id += 1
        self._environment.commits.batch.put(
            keys.META, keys.META_NEXT_SUBSCRIPTION_ID, keys.u64(self.next_subscription_id)
        )
        return taken
