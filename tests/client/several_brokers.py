"""A cluster of several brokers in memory: each partition has one, and the others refuse it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tests import virtual_time
from tests.client.fakes import FAST, FakeCluster, Partition, connect
from tests.fake_link import FakeLink

import magnetar
from magnetar_core.errors import ClusterMismatch, PartitionMoved
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2

ClusterT = TypeVar("ClusterT", bound="SeveralBrokers")

FIRST, SECOND, THIRD = "one:1", "two:1", "three:1"


class SeveralBrokers(FakeCluster):
    """Three brokers, which keep the partitions in turn.

    Attributes:
        brokers: their addresses, in the order of their shards.
        keepers: the brokers of partitions that are elsewhere than in their turn.
        hashes: the clusters of servers that belong to others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.brokers: list[str] = [FIRST, SECOND, THIRD]
        self.keepers: dict[tuple[str, int], str] = {}
        self.hashes: dict[str, str] = {}

    def keeper(self, topic: str, partition: int) -> str:
        """The address of the broker that has a partition now."""
        return self.keepers.get((topic, partition), self.brokers[partition % len(self.brokers)])

    def kept(self, link: FakeLink, topic: str) -> dict[int, Partition]:
        partitions = self.find(topic)[1]
        return {
            number: one
            for number, one in enumerate(partitions)
            if self.keeper(topic, number) == link.address
        }

    def handle(self, link: FakeLink, name: str, body: Any) -> Any:
        for field in ("subscription", "partition"):
            place: Any = getattr(body, field, None)
            if hasattr(place, "topic_id") and self.keeper(place.topic, place.partition) != (
                link.address
            ):
                raise PartitionMoved()
        return super().handle(link, name, body)

    def asked(self, name: str) -> list[str]:
        """The addresses that were asked this, in order."""
        return [address for address, one in self.play.asked if one == name]

    def on_hello(self, link: FakeLink, body: Any) -> Any:
        own = self.hashes.get(link.address, "hash")
        if body.cluster_hash not in ("", own):
            raise ClusterMismatch()
        reply = super().on_hello(link, body)
        reply.cluster_hash = own
        return reply

    def on_get_cluster_info(self, link: FakeLink, body: Any) -> Any:
        reply = super().on_get_cluster_info(link, body)
        del reply.brokers[:]
        reply.brokers.extend(
            topic_pb2.Member(name=f"b-{number}", address=address)
            for number, address in enumerate(self.brokers)
        )
        return reply

    def on_lookup(self, link: FakeLink, body: Any) -> Any:
        topic_id, partitions = self.find(body.topic)
        return topic_pb2.CommandLookupResponse(
            topic_id=topic_id,
            broker_addresses=[
                self.keeper(body.topic, number) for number, _ in enumerate(partitions)
            ],
        )

    def on_describe_topic(self, link: FakeLink, body: Any) -> Any:
        topic_id, partitions = self.find(body.topic)
        return topic_pb2.CommandDescribeTopicResponse(
            topic=body.topic,
            topic_id=topic_id,
            partition_count=len(partitions),
            partitions=[
                topic_pb2.PartitionDescription(
                    partition=number,
                    broker_name=link.address,
                    end_offset=len(one.messages),
                    open_txns=[key[0].to_wire() for key in one.pending],
                )
                for number, one in self.kept(link, body.topic).items()
            ],
        )

    def on_list_offsets(self, link: FakeLink, body: Any) -> Any:
        topic_id, _ = self.find(body.topic)
        kept = self.kept(link, body.topic)
        if not kept.keys() >= set(body.partitions):
            raise PartitionMoved()
        return broker_pb2.CommandListOffsetsResponse(
            topic_id=topic_id,
            partitions=[
                broker_pb2.PartitionOffsets(
                    partition=number, ledger_id=1, end_offset=len(one.messages)
                )
                for number, one in kept.items()
                if not body.partitions or number in body.partitions
            ],
        )

    def on_describe_producers(self, link: FakeLink, body: Any) -> Any:
        partition = self.find(body.partition.topic)[1][body.partition.partition]
        return broker_pb2.CommandDescribeProducersResponse(
            producers=[
                broker_pb2.ProducerDescription(
                    producer_id=producer_id, producer_epoch=-1, txn_id=txn_id.to_wire()
                )
                for txn_id, producer_id in partition.pending
            ]
        )

    def on_skip_damaged(self, link: FakeLink, body: Any) -> Any:
        return broker_pb2.CommandSkipDamagedResponse(
            damaged=[common_pb2.OffsetRange(first=body.partition.partition, last=9)]
        )

    def on_list_stored_txns(self, link: FakeLink, body: Any) -> Any:
        return broker_pb2.CommandListStoredTxnsResponse()

    def on_unsubscribe(self, link: FakeLink, body: Any) -> Any:
        del self.cursors[
            body.subscription.topic, body.subscription.subscription, body.subscription.partition
        ]
        return broker_pb2.CommandUnsubscribeResponse()


def run_with(
    test: Callable[[SeveralBrokers, magnetar.Client], Awaitable[None]],
    address: str | Sequence[str] = FIRST,
    config: magnetar.ClientConfig = FAST,
    prepare: Callable[[SeveralBrokers], None] = lambda cluster: None,
) -> None:
    """Run a test against three brokers, then close its client; nothing may be left running.

    Args:
        address: what the client is given.
        prepare: what happens before it connects.
    """

    run_cluster(SeveralBrokers, test, address, config, prepare)


def run_cluster(
    make: Callable[[], ClusterT],
    test: Callable[[ClusterT, magnetar.Client], Awaitable[None]],
    address: str | Sequence[str] = FIRST,
    config: magnetar.ClientConfig = FAST,
    prepare: Callable[[ClusterT], None] = lambda cluster: None,
    limit_s: float = 30,
) -> None:
    """Do the same with a cluster of another kind.

    Args:
        limit_s: how long the test may take, in virtual time.
    """

    async def main() -> None:
        cluster = make()
        prepare(cluster)
        async with asyncio.timeout(limit_s):
            async with await connect(cluster, config, address=address) as client:
                await test(cluster, client)
            left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            assert not left, left
            assert not cluster.net.links
            cluster.play.check()

    virtual_time.run(main())
