"""read() without a partition: every message of the topic, and not those of the first partition."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.fakes import FakeCluster, run

from magnetar import Client, InvalidArgument


def test_a_topic_is_read_as_a_whole() -> None:
    """A program that counted events saw 149 of 300."""

    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=3)
        producer = await client.create_producer("t")
        for number in range(300):
            await producer.send(b"%d" % number, key=b"%d" % number)
        found = [one async for one in client.read("t")]
        assert sorted(int(one.value) for one in found) == list(range(300))
        # Partition by partition, each in order.
        places = [(one.partition, one.offset) for one in found]
        assert places == sorted(places)
        columns = [one async for one in client.read_columns("t")]
        assert sum(map(len, columns)) == 300
        second = [one.value async for one in client.read("t", 1)]
        assert second == [one.value for one in found if one.partition == 1]

    run(test)


@pytest.mark.parametrize("place", [{"start": 1}, {"end": 5}, {"start": 0, "end": 0}])
def test_offsets_need_a_partition(place: Any) -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=2)
        with pytest.raises(InvalidArgument, match="name the partition that start and end are"):
            [one async for one in client.read("t", **place)]
        # There is nothing to choose from.
        await client.admin.topics.create("one", partitions=1)
        assert [one async for one in client.read("one", **place)] == []

    run(test)


def test_partitions_are_followed_side_by_side() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=3)
        producer = await client.create_producer("t")
        await producer.send(b"0", partition=2)
        found: list[bytes] = []
        pieces = client.read("t", follow_period_s=0.01)
        async for message in pieces:
            found.append(message.value)
            if len(found) == 9:
                break
            await producer.send(b"%d" % len(found), partition=len(found) % 3)
        await pieces.aclose()
        assert found == [b"%d" % number for number in range(9)]

    run(test)


def test_an_error_of_one_partition_ends_the_reading_of_all() -> None:
    async def test(cluster: FakeCluster, client: Client) -> None:
        await client.admin.topics.create("t", partitions=3)
        await (await client.create_producer("t")).send(b"x", partition=0)
        pieces = client.read("t", follow_period_s=0.01)
        await anext(pieces)
        cluster.play.when("read").always(InvalidArgument("no more"))
        with pytest.raises(InvalidArgument, match="no more"):
            await anext(pieces)

    run(test)
