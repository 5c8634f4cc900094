"""Several brokers share a directory, which the first one keeps.

Source: docs/design/0008-cluster.md, The directory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.broker.cluster import Cluster, run
from tests.broker.harness import COUNTER_BOUND, take_incarnations, txn, watermark
from tests.virtual_time import time_passes

from magnetar_core import batch as columnar
from magnetar_core.errors import (
    Gone,
    LogUnavailable,
    PartitionMoved,
    ResourceInUse,
    TopicExists,
    TopicNotFound,
    TxnNotFound,
)
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.membership.placement import new_topic_id, serial_of, shard_count_of
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as group_wire
from magnetar_core.wire import topic_pb2 as topic_wire
from magnetar_core.wire import transaction_pb2 as txn_wire


def send(name: PartitionName, *values: bytes, in_txn: TxnID | None = None) -> wire.CommandSend:
    return wire.CommandSend(
        partition=name.to_wire(),
        producer_id=1,
        num_messages=len(values),
        txn_id=in_txn.to_wire() if in_txn is not None else None,
        batch=columnar.encode(list(values)),
    )


def end(name: PartitionName, txn_id: TxnID, count: int) -> txn_wire.CommandEndTxnOnPartition:
    return txn_wire.CommandEndTxnOnPartition(
        txn_id=txn_id.to_wire(),
        partition=name.to_wire(),
        txn_action=common.COMMIT,
        counts_given=True,
        counts=[txn_wire.WriterCount(writer_id=1, count=count)],
    )


def create(topic: str, token: int = 0) -> topic_wire.CommandCreateTopic:
    return topic_wire.CommandCreateTopic(topic=topic, partitions=3, call_token=token)


def delete(topic: str, token: int = 0) -> topic_wire.CommandDeleteTopic:
    return topic_wire.CommandDeleteTopic(topic=topic, call_token=token)


def describe(topic: str) -> topic_wire.CommandDescribeTopic:
    return topic_wire.CommandDescribeTopic(topic=topic)


async def read(cluster: Cluster, number: int, name: PartitionName) -> int:
    answer = await cluster.ask(number, wire.CommandRead(partition=name.to_wire()))
    return sum(batch.num_messages for batch in answer.batches)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_topic_that_was_created_anywhere_is_found_everywhere(where: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(where, "t")
        assert (serial_of(topic_id), shard_count_of(topic_id)) == (1, 3)
        for number in range(3):
            client = await cluster.client(number)
            described = await client.ask(describe("t"))
            assert (described.topic_id, described.partition_count) == (topic_id, 3)
            name = cluster.partition_at(number, "t", topic_id)
            assert [one.partition for one in described.partitions] == [name.partition]
            await client.ask(send(name, b"0"))
            other = cluster.partition_at((number + 1) % 3, "t", topic_id)
            with pytest.raises(PartitionMoved):
                await client.ask(send(other, b"0"))
            with pytest.raises(TopicExists):
                await client.ask(create("t"))
            with pytest.raises(TopicNotFound):
                await client.ask(describe("u"))
            looked_up = await client.ask(topic_wire.CommandLookup(topic="t"))
            assert sorted(looked_up.broker_addresses) == ["b-0", "b-1", "b-2"]
        # From its own store, and in the state in which it was.
        for number in (0, 1, 2):
            await cluster.restart(number, power_loss=True)
            assert cluster.names(number) == ["t"]
            assert await read(cluster, number, cluster.partition_at(number, "t", topic_id)) == 1

    run(scenario)


def test_creations_and_deletions_at_a_follower_are_made_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        made = await (await cluster.client(1)).ask(create("t", token=7))
        # The client asks again elsewhere: at the first broker, and at another follower.
        for number in (1, 0, 2):
            assert await (await cluster.client(number)).ask(create("t", token=7)) == made
        await (await cluster.client(2)).ask(delete("t", token=8))
        for number in range(3):
            assert cluster.names(number) == []
        await (await cluster.client(1)).ask(create("t", token=9))
        # A late copy may reach a follower after the first broker has restarted.
        for restarted in (None, 0, 1, 2):
            if restarted is not None:
                await cluster.restart(restarted)
                await cluster.until(lambda: all(cluster.has_met(one) for one in range(3)))
            for number in (2, 0, 1):
                await (await cluster.client(number)).ask(delete("t", token=8))
                assert await (await cluster.client(number)).ask(create("t", token=7)) == made
                assert cluster.names(number) == ["t"]

    run(scenario)


def test_a_follower_serves_while_the_first_broker_is_away() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        current = cluster.broker(1).metrics.directory_current
        await time_passes(6)
        assert current._value.get() == 1
        cluster.crash(0)
        await time_passes(6)
        assert current._value.get() == 0
        for restarted in (False, True):
            if restarted:
                await cluster.restart(1)
            await time_passes(3)
            client = await cluster.client(1)
            name = cluster.partition_at(1, "t", topic_id)
            assert (await client.ask(send(name, b"0"))).duplicate == restarted
            for unknown in (describe("u"), create("u"), delete("t")):
                with pytest.raises(LogUnavailable, match="b-0"):
                    await client.ask(unknown)
            later = PartitionName("u", name.partition, topic_id + 1)
            with pytest.raises(LogUnavailable):
                await client.ask(wire.CommandRead(partition=later.to_wire()))
        asked = asyncio.ensure_future(cluster.ask(1, create("u")))
        await cluster.start(0)
        await asked
        assert cluster.names(1) == cluster.names(0) == ["t", "u"]

    run(scenario)


def test_an_id_that_nobody_issued_is_gone_and_a_new_one_is_heard_of() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, "t")
        invented = new_topic_id("t", 9, 3)
        name = cluster.partition_at(1, "t", invented)
        client = await cluster.client(1)
        for ask in (end(name, txn(1), 1), wire.CommandRead(partition=name.to_wire())):
            with pytest.raises(Gone, match="never"):
                await client.ask(ask)
        # A send is never parked: it is to be sent again.
        with pytest.raises(LogUnavailable):
            await client.ask(send(name, b"0"))
        # One that is new: the first broker has issued it, and this one has not heard of it.
        cluster.network.partition("b-0", "b-1", 0.5)
        asked = asyncio.ensure_future(cluster.create(0, "u"))
        await cluster.until(lambda: cluster.names(0) == ["t", "u"])
        new = cluster.broker(0).topics.get("u").topic_id
        place = cluster.partition_at(1, "u", new)
        answer = await (await cluster.client(1)).ask(wire.CommandRead(partition=place.to_wire()))
        assert answer.end_offset == 0
        await asked

    run(scenario)


def test_a_topic_that_nobody_has_does_not_speak_for_the_other_participants() -> None:
    """A follower asks the first broker, which has none of that name, and ends the others."""

    async def scenario(cluster: Cluster) -> None:
        name = cluster.partition_at(1, "t", await cluster.create(0, "t"))
        client = await cluster.client(1)
        await take_incarnations(client, 0)
        await client.ask(watermark(0, bound=COUNTER_BOUND))
        await client.ask(send(name, b"0", in_txn=txn(1)))
        nowhere, nobody = common.Partition(topic="u"), common.Subscription(topic="v")
        answer = await client.ask(
            txn_wire.CommandEndTxnOnParticipants(
                txn_id=txn(1).to_wire(),
                txn_action=common.COMMIT,
                partitions=[
                    txn_wire.PartitionCounts(partition=one) for one in (nowhere, name.to_wire())
                ],
                subscriptions=[txn_wire.SubscriptionCounts(subscription=nobody)],
            )
        )
        assert [(one.partition.topic, one.error.code) for one in answer.unfinished] == [
            ("u", common.TOPIC_NOT_FOUND),
            ("v", common.TOPIC_NOT_FOUND),
        ]
        read = await client.ask(wire.CommandRead(partition=name.to_wire()))
        assert len(read.batches) == 1
        # A command that comes later asks for itself.
        cluster.network.hold_up("b-0", "b-1", 60.0)
        with pytest.raises(LogUnavailable):
            await client.ask(describe("u"))

    run(scenario)


def test_a_follower_asks_before_it_denies_a_name() -> None:
    """What was made while its link was silent exists, although the link seems to be up."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client(2)
        looking = (
            describe("u"),
            topic_wire.CommandLookup(topic="u"),
            group_wire.CommandJoinGroup(group="g", member_id="m", topics=["u"], join_epoch=1),
        )
        cluster.network.hold_up("b-0", "b-2", 0.5)
        creation = asyncio.ensure_future(cluster.create(0, "u"))
        await cluster.until(lambda: cluster.names(0) == ["u"])
        assert cluster.names(2) == []
        described, found, _ = [await client.begin(one) for one in looking]
        assert described.topic_id == found.topic_id == await creation
        # The first broker does not wait for ever; here the link seems to be up.
        cluster.network.hold_up("b-0", "b-2", 60.0)
        await cluster.create(0, "v")
        assert cluster.has_met(2)
        with pytest.raises(LogUnavailable):
            await client.ask(describe("v"))
        cluster.network.heal()
        await cluster.ask(2, describe("v"))
        with pytest.raises(TopicNotFound):
            await (await cluster.client(2)).ask(describe("w"))
        # A send is not parked, and one to a name that does not exist must not come for ever.
        nowhere = send(PartitionName("w", 0, 0), b"0")
        with pytest.raises(TopicNotFound):
            await (await cluster.client(2)).ask(nowhere)

    run(scenario)


def test_a_deletion_asks_the_brokers_of_all_partitions() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(2, "t", topic_id)
        client = await cluster.client(2)
        await take_incarnations(client, 0)
        await client.ask(watermark(0, bound=COUNTER_BOUND))
        await client.ask(send(name, b"0", in_txn=txn(1)))
        for number in range(3):
            with pytest.raises(ResourceInUse, match="b-2"):
                await (await cluster.client(number)).ask(delete("t"))
        assert cluster.names(2) == ["t"]
        await client.ask(end(name, txn(1), 1))
        # Nobody knows what is open at a broker that is away.
        cluster.crash(2)
        await time_passes(1)
        with pytest.raises(LogUnavailable, match="b-2"):
            await (await cluster.client(0)).ask(delete("t"))
        await cluster.start(2)
        await cluster.ask(1, delete("t"))
        for number in range(3):
            assert cluster.names(number) == []
        with pytest.raises(Gone):
            await (await cluster.client(2)).ask(end(name, txn(1), 1))

    run(scenario)


def test_what_was_opened_in_between_is_aborted_with_the_partition() -> None:
    """Its coordinator hears Gone, whatever waited there."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(1, "t", topic_id)
        client = await cluster.client(1)
        await take_incarnations(client, 0)
        await client.ask(watermark(0, bound=COUNTER_BOUND))
        await client.ask(
            wire.CommandSubscribe(
                subscription=common.Subscription(
                    topic="t", subscription="s", partition=name.partition, topic_id=topic_id
                ),
                initial_position=wire.EARLIEST,
            )
        )
        await client.ask(send(name, b"0"))
        # The follower hears of the deletion later; the first broker has been told that nothing is
        # open.
        topic = cluster.broker(0).topics.get("t")
        for one in (1, 2):
            await client.ask(send(name, b"0", in_txn=txn(one)))
        follows = send(name, b"1", in_txn=txn(3))
        follows.follows_txn_ids.append(txn(2).to_wire())
        await client.ask(follows)
        await client.ask(
            wire.CommandAck(
                subscription=common.Subscription(
                    topic="t", subscription="s", partition=name.partition
                ),
                ranges=[common.OffsetRange(first=0, last=0)],
                txn_id=txn(1).to_wire(),
            )
        )
        waiting_commit = client.begin(end(name, txn(3), 1))
        parked = send(name, b"2")
        parked.producer_id = 2
        parked.follows_txn_ids.append(txn(2).to_wire())
        parked_send = client.begin(parked)
        await time_passes(0.5)
        assert not waiting_commit.done()
        assert not parked_send.done()

        keeper: Any = cluster.broker(0).topic_directory
        cluster.broker(0).topics.delete(topic)
        keeper._directory.topic_changed(topic_id)
        await cluster.create(0, "u")
        await cluster.until(lambda: cluster.names(1) == ["u"])
        for future in (waiting_commit, parked_send):
            with pytest.raises(Gone):
                await future
        for one in (1, 2, 3):
            with pytest.raises(Gone):
                await client.ask(end(name, txn(one), 1))
        environment = cluster.broker(1).environment
        assert environment.metrics.open_txns == 0
        assert not environment.orphan_candidates.of(0)
        for family in ("txnlog", "txnindex", "log", "pendingacks", "subscriptions", "producers"):
            assert not await environment.store.scan(family, b"", b"\xff" * 32, rows_max=10)
        await cluster.restart(1)
        assert cluster.names(1) == ["u"]

    run(scenario)


def test_a_follower_with_a_vanished_directory_serves_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(1, "t", topic_id)
        await cluster.ask(1, send(name, b"0"))
        cluster.crash(1)
        cluster.vanish(1)
        for _ in range(2):
            await cluster.start(1)
            await time_passes(3)
            client = await cluster.client(1)
            for body in (end(name, txn(1), 1), send(name, b"0"), describe("t"), create("u")):
                with pytest.raises(LogUnavailable, match="another store"):
                    await client.ask(body)
            await client.ask(common.CommandHello(protocol_version=PROTOCOL_VERSION))
            await client.ask(topic_wire.CommandGetClusterInfo())
            assert cluster.names(1) == []
            cluster.crash(1)
        assert "accept-loss --everything" in caplog.text
        # Nobody can tell whether transactions are open there.
        with pytest.raises(LogUnavailable):
            await (await cluster.client(0)).ask(delete("t"))
        # It goes on by hand, and its partition is empty under a higher ledger.
        await cluster.accept_loss(1)
        await cluster.start(1)
        await cluster.until(lambda: cluster.names(1) == ["t"])
        answer = await cluster.ask(1, wire.CommandRead(partition=name.to_wire()))
        assert (answer.end_offset, answer.ledger_id) == (0, 1_001)
        assert await cluster.create(1, "u")

    run(scenario)


def test_a_new_follower_waits_for_the_first_broker_and_an_accepted_one_does_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        client = await cluster.client(1)
        for _ in range(2):
            with pytest.raises(LogUnavailable, match="has not met b-0"):
                await client.ask(describe("t"))
            await time_passes(5)
        await cluster.start(0)
        await cluster.until(lambda: cluster.has_met(1))
        with pytest.raises(TopicNotFound):
            await client.ask(describe("t"))
        # Accepted once, it serves at once, as its store says.
        await cluster.create(1, "t")
        cluster.crash(0)
        await cluster.restart(1)
        assert (await (await cluster.client(1)).ask(describe("t"))).partition_count == 3

    run(scenario, start=False)


def test_an_older_store_of_a_follower_is_refused_after_a_newer_one_was_accepted() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, "t")
        cluster.crash(1)
        old = cluster.nodes[1].disk
        cluster.vanish(1)
        await cluster.accept_loss(1)
        await cluster.start(1)
        await cluster.until(lambda: cluster.names(1) == ["t"])
        cluster.crash(1)
        cluster.nodes[1].disk = old
        await cluster.start(1)
        # It was accepted before, so it serves until the first broker has told it.
        guard = cluster.broker(1).topic_directory.guard
        await cluster.until(lambda: not guard.is_accepted)  # type: ignore[union-attr]
        # Then it remembers that, also while nobody could tell it.
        cluster.crash(0)
        await cluster.restart(1)
        with pytest.raises(LogUnavailable):
            await (await cluster.client(1)).ask(describe("t"))

    run(scenario)


def test_a_first_broker_with_an_older_directory_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(1, "t", topic_id)
        await cluster.ask(1, send(name, b"0"))
        cluster.crash(0)
        newest = cluster.nodes[0].disk
        cluster.vanish(0)
        await cluster.start(0)
        await time_passes(5)
        assert cluster.names(0) == []
        complaints = [one for one in caplog.records if one.levelno == logging.CRITICAL]
        # Each of the two followers says it once.
        assert len(complaints) == 2
        assert "give out ids again" in complaints[0].getMessage()
        client = await cluster.client(1)
        with pytest.raises(LogUnavailable):
            await client.ask(describe("u"))
        # Also when the numbers have passed by: it still lacks what was there.
        for topic in ("a", "b", "c"):
            await cluster.create(0, topic)
        for restarted in (False, True):
            if restarted:
                await cluster.restart(1)
            await cluster.restart(0)
            await time_passes(5)
            assert cluster.names(1) == ["t"]
            assert await read(cluster, 1, name) == 1
        # The right directory is put back.
        cluster.crash(0)
        cluster.nodes[0].disk = newest
        await cluster.start(0)
        await cluster.until(lambda: cluster.has_met(1) and cluster.has_met(2))
        await cluster.create(1, "u")
        assert cluster.names(1) == cluster.names(2) == ["t", "u"]

    run(scenario)


def test_a_loss_that_was_accepted_at_the_first_broker_deletes_nothing_elsewhere() -> None:
    """Nobody deleted those topics; whoever gives them up says so at each broker."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        names = [cluster.partition_at(number, "t", topic_id) for number in range(3)]
        for number in (1, 2):
            await cluster.ask(number, send(names[number], b"0"))
        cluster.crash(0)
        cluster.vanish(0)
        await cluster.accept_loss(0)
        await cluster.start(0)
        await cluster.create(0, "u")
        await time_passes(5)
        for number in (1, 2):
            assert cluster.names(number) == ["t"]
            assert await read(cluster, number, names[number]) == 1
        cluster.crash(1)
        await cluster.accept_loss(1)
        await cluster.start(1)
        await cluster.until(lambda: cluster.names(1) == ["u"])
        assert cluster.names(2) == ["t"]
        assert await read(cluster, 2, names[2]) == 1

    run(scenario)


def test_a_creation_waits_a_second_for_a_follower_that_does_not_answer() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, "t")
        client = await cluster.client(0)
        cluster.network.partition("b-0", "b-2", 10.0)
        began = cluster.loop.time()
        await client.ask(create("u"))
        assert 0.9 < cluster.loop.time() - began < 1.2
        assert cluster.names(1) == ["t", "u"]
        # One that is away is not waited for.
        cluster.crash(2)
        await time_passes(1)
        began = cluster.loop.time()
        await client.ask(create("v"))
        assert cluster.loop.time() - began < 0.5

    run(scenario)


def test_a_broker_keeps_its_place_in_the_list() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, "t")
        cluster.crash(1)
        cluster.crash(2)
        cluster._members = (cluster._members[0], *cluster._members[:0:-1])
        assert "moved b-1" in await cluster.refused_at_start(1)

    run(scenario)


def test_no_broker_may_leave_the_list() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, "t")
        cluster.crash(0)
        cluster._members = cluster._members[:2]
        assert "lost b-2" in await cluster.refused_at_start(0)

    run(scenario)


def test_a_follower_hears_of_nothing_that_the_first_broker_could_forget() -> None:
    """A topic that was told and then lost would leave its id to another one."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.create(0, "t")
        cluster.nodes[0].disk.sync_seconds = 60.0
        asked = (await cluster.client(1)).begin(create("u"))
        await cluster.until(lambda: cluster.names(0) == ["t", "u"])
        await time_passes(5)
        assert cluster.names(1) == cluster.names(2) == ["t"]
        cluster.nodes[0].disk.sync_seconds = 0.0
        await cluster.restart(0, power_loss=True)
        with pytest.raises(LogUnavailable):
            await asked
        await cluster.until(lambda: cluster.has_met(1) and cluster.has_met(2))
        await cluster.create(2, "v")
        assert cluster.names(1) == cluster.names(2) == cluster.names(0)

    run(scenario)


def test_a_deletion_looks_again_after_it_has_asked() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(0, "t", topic_id)
        client = await cluster.client(0)
        await take_incarnations(client, 0)
        await client.ask(watermark(0, bound=COUNTER_BOUND))
        # The answer of another one is on its way while something is opened here.
        cluster.network.partition("b-0", "b-2", 0.5)
        deletion = client.begin(delete("t"))
        opening = client.begin(send(name, b"0", in_txn=txn(1)))
        await opening
        with pytest.raises(ResourceInUse):
            await deletion
        await client.ask(end(name, txn(1), 1))
        # Of two deletions at once, one finds nothing any more; a topic that was made since stays.
        first, second = client.begin(delete("t")), client.begin(delete("t"))
        await first
        with pytest.raises((Gone, TopicNotFound)):
            await second
        deletion = client.begin(delete("u"))
        with pytest.raises(TopicNotFound):
            await deletion

    run(scenario)


def test_coordinators_that_have_an_incarnation_are_known_everywhere() -> None:
    """Whoever names another one is refused for good; nobody is while that is not known."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await cluster.create(0, "t")
        name = cluster.partition_at(1, "t", topic_id)
        sent = send(name, b"0", in_txn=txn(1, tcid=5))
        with pytest.raises(TxnNotFound):
            await (await cluster.client(1)).ask(sent)
        cluster.crash(0)
        await cluster.restart(1)
        with pytest.raises(LogUnavailable):
            await (await cluster.client(1)).ask(sent)
        await cluster.start(0)
        await cluster.until(lambda: cluster.has_met(1))
        with pytest.raises(TxnNotFound):
            await (await cluster.client(1)).ask(sent)
        take = topic_wire.CommandTakeIncarnation(tcid=5, store_token="a")
        for number in (2, 1, 0):
            assert (await cluster.ask(number, take)).incarnation == 1
        for number in (1, 2):
            there = send(cluster.partition_at(number, "t", topic_id), b"0", in_txn=txn(1, tcid=5))
            with pytest.raises(LogUnavailable, match="coordinator 5"):
                await (await cluster.client(number)).ask(there)

    run(scenario)


def test_a_new_broker_gets_partitions_of_new_topics_only() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(0)
        old = await cluster.create(0, "old", partitions=2)
        await cluster.ask(0, send(PartitionName("old", 1, old), b"0"))
        cluster.grow(2)
        await cluster.restart(0)
        await cluster.start(1)
        new = await cluster.create(1, "new", partitions=2)
        assert (shard_count_of(old), shard_count_of(new)) == (1, 2)
        assert await read(cluster, 0, PartitionName("old", 1, old)) == 1
        with pytest.raises(PartitionMoved):
            await cluster.ask(1, send(PartitionName("old", 1, old), b"0"))
        for number in (0, 1):
            await cluster.ask(number, send(cluster.partition_at(number, "new", new), b"0"))
        await cluster.ask(1, delete("old"))
        assert cluster.names(0) == cluster.names(1) == ["new"]

    run(scenario, count=1, start=False)


def test_a_name_that_is_used_again_is_the_new_topic_everywhere() -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.create(0, "t")
        name = cluster.partition_at(1, "t", first)
        await cluster.ask(1, send(name, b"0"))
        # The follower is away while the topic is deleted and made again.
        cluster.crash(2)
        cluster.network.partition("b-0", "b-1", 30.0)
        keeper: Any = cluster.broker(0).topic_directory
        cluster.broker(0).topics.delete(cluster.broker(0).topics.get("t"))
        keeper._directory.topic_changed(first)
        second = await cluster.create(0, "t")
        await cluster.until(lambda: cluster.broker(1).topics.get("t").topic_id == second)
        assert await read(cluster, 1, cluster.partition_at(1, "t", second)) == 0
        with pytest.raises(Gone):
            await cluster.ask(1, send(name, b"0"))
        await cluster.start(2)
        await cluster.until(lambda: cluster.broker(2).topics.get("t").topic_id == second)
        for number in range(3):
            await cluster.restart(number)
            assert cluster.broker(number).topics.get("t").topic_id == second

    run(scenario)


def test_a_follower_that_is_closed_at_once_does_not_begin_to_follow() -> None:
    """Its shard may move on before the token of its store is durable.

    The link that it opened while it ended was answered when nothing could be stored any more.
    """

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(0)
        node = cluster.nodes[1]
        node.disk.sync_seconds = 0.5
        node.start()
        await node.ready.wait()
        await node.server.close()
        await time_passes(5.0)
        assert not [one for one in cluster.network.links() if one.client_node == node.name]

    run(scenario, 2, start=False)
