"""Groups of a cluster of several brokers in memory: each broker assigns its own partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.client.fake_groups import FakeGroup, FakeGroups
from tests.client.fakes import FAST, Cursor, Partition
from tests.client.several_brokers import FIRST, SeveralBrokers, run_cluster
from tests.fake_link import FakeLink

import magnetar
from magnetar_core.errors import GroupNotFound, MagnetarError, ResourceInUse
from magnetar_core.ids import PartitionName
from magnetar_core.wire import broker_pb2, group_pb2


class GroupsOfBroker(FakeGroups):
    """The groups of one broker."""

    def __init__(self, cluster: GroupBrokers, address: str) -> None:
        super().__init__()
        self._cluster = cluster
        self.address = address
        self.heartbeat_interval_ms = 100

    @property
    def topics(self) -> dict[str, tuple[int, list[Partition]]]:  # type: ignore[override]
        unknown = self._cluster.unheard_of.get(self.address, ())
        return {name: one for name, one in self._cluster.topics.items() if name not in unknown}

    @property
    def cursors(self) -> dict[tuple[str, str, int], Cursor]:  # type: ignore[override]
        return self._cluster.cursors

    def assigns(self, topic: str, number: int) -> bool:
        return self._cluster.keeper(topic, number) == self.address

    def close_attached(
        self, cursor: Cursor, partition: int, error: MagnetarError | None = None
    ) -> None:
        self._cluster.close_attached(cursor, partition, error)

    def group_of(self, name: str) -> FakeGroup:
        if name not in self.groups:
            raise GroupNotFound()
        return self.groups[name]

    def on_join_group(self, link: FakeLink, body: Any) -> Any:
        answer = super().on_join_group(link, body)
        for topic, number in self.groups[body.group].owners:
            messages = self.topics[topic][1][number].messages
            latest = body.initial_position == broker_pb2.LATEST
            self.cursors.setdefault(
                (topic, body.group, number), Cursor(len(messages) if latest else 0)
            )
        return answer

    def on_list_groups(self, link: FakeLink, body: Any) -> Any:
        return group_pb2.CommandListGroupsResponse(
            groups=[self.summary(group) for group in self.groups]
        )

    def on_describe_group(self, link: FakeLink, body: Any) -> Any:
        group = self.group_of(body.group)
        return group_pb2.CommandDescribeGroupResponse(
            summary=self.summary(body.group),
            members=[
                group_pb2.GroupMemberDescription(
                    member_id=member_id,
                    partitions=sum(owner == member_id for owner, _ in group.owners.values()),
                )
                for member_id in group.members
            ],
            partitions=[
                group_pb2.GroupPartitionDescription(
                    partition=PartitionName(*place, self.topics[place[0]][0]).to_wire(),
                    member_id=owner,
                    generation=since,
                )
                for place, (owner, since) in group.owners.items()
            ],
        )

    def on_delete_group(self, link: FakeLink, body: Any) -> Any:
        if self.group_of(body.group).members:
            raise ResourceInUse()
        del self.groups[body.group]
        return group_pb2.CommandDeleteGroupResponse()

    def summary(self, name: str) -> group_pb2.GroupSummary:
        group = self.groups[name]
        return group_pb2.GroupSummary(
            group=name,
            state=group_pb2.GROUP_STABLE if group.members else group_pb2.GROUP_EMPTY,
            generation=group.generation,
            members=len(group.members),
            partitions=len(group.owners),
        )


class GroupBrokers(SeveralBrokers):
    """Three brokers with groups of their own.

    Attributes:
        unheard_of: topics of which a broker has not heard, by its address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unheard_of: dict[str, set[str]] = {}
        self._groups_at: dict[str, GroupsOfBroker] = {}

    def at(self, address: str) -> GroupsOfBroker:
        """The groups of the broker at an address."""
        if address not in self._groups_at:
            self._groups_at[address] = GroupsOfBroker(self, address)
        return self._groups_at[address]

    def move(self, address: str, to: str) -> None:
        """A broker starts anew at another address, with all that it has."""
        self.brokers[self.brokers.index(address)] = to
        self._groups_at[to] = self._groups_at.pop(address)
        self._groups_at[to].address = to
        self.net.dead.add(address)
        for link in [one for one in self.net.links if one.address == address]:
            link.break_now()

    def handle(self, link: FakeLink, name: str, body: Any) -> Any:
        if name.endswith(("_group", "_groups")) or name == "group_heartbeat":
            return getattr(self.at(link.address), f"on_{name}")(link, body)
        return super().handle(link, name, body)

    def fence(self, body: Any) -> None:
        wire = body.subscription
        self.at(self.keeper(wire.topic, wire.partition)).fence(body)

    def is_waiting(self, wire: Any) -> bool:
        return self.at(self.keeper(wire.topic, wire.partition)).is_waiting(wire)


def run_groups(
    test: Callable[[GroupBrokers, magnetar.Client], Awaitable[None]],
    config: magnetar.ClientConfig = FAST,
) -> None:
    """Run a test against three brokers, as `run_with` does."""
    run_cluster(GroupBrokers, test, FIRST, config, limit_s=300)
