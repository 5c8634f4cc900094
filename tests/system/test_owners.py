"""Shards change their owner: servers die, sleep, stop and join, under load.

Three members have the shards of brokers, two those of coordinators, on a real object server and
three members of etcd. Source: docs/design/0009-owners.md, What it promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd_server import EtcdServer
from tests.object_server import ObjectServer
from tests.system.conftest import Figure
from tests.system.members import (
    BROKERS,
    COORDINATORS,
    Members,
    Watcher,
    is_even,
    shards_of,
    started,
)
from tests.system.owned_load import PARTITIONS, PATIENCE_S, TOPIC, Sender, create_topic
from tests.system.programs import run, values
from tests.system.scene import Scene

import magnetar
from magnetar_cluster.directory.view import BROKER, COORDINATOR
from magnetar_core.membership.placement import shard_of
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2


@pytest.fixture
def members(
    tmp_path: Path, etcd_server: EtcdServer, object_server: ObjectServer
) -> Iterator[Members]:
    settings = {"MAGNETAR_SETTLING_MS": "500"}
    yield from started(tmp_path, etcd_server, object_server, settings, **BROKERS, **COORDINATORS)


def test_a_broker_that_dies_under_load_is_replaced_and_nothing_answered_is_lost(
    members: Members, figure: Figure
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        watcher = Watcher(members.directory())
        await watcher.until(is_even)
        sender = await Sender.begin(members, 20)
        began_s = loop.time()
        members.kill("a")
        await watcher.owned(without="a")
        owned_s = loop.time() - began_s
        await sender.more(1)
        again_s = loop.time() - began_s
        figure("kill to other owners", f"{owned_s:.1f} s")
        figure("kill to a transaction over all partitions", f"{again_s:.1f} s")
        await sender.more(20)
        await sender.finish("b")
        await watcher.close()

    run(program(), timeout_s=240)


def publish(topic_id: int, partition: int, value: bytes) -> broker_pb2.CommandPublish:
    return broker_pb2.CommandPublish(
        partition=common_pb2.Partition(topic=TOPIC, partition=partition, topic_id=topic_id),
        messages=[broker_pb2.Message(value=value)],
    )


def test_a_broker_that_slept_says_nothing_and_writes_nothing(members: Members) -> None:
    async def program() -> None:
        scene = Scene(members)
        await scene.watcher.until(is_even)
        await create_topic(members)
        first = shards_of(scene.watcher.view, "a", BROKER)[0]
        found = await scene.answered(first, topic_pb2.CommandLookup(topic=TOPIC))
        assert isinstance(found, topic_pb2.CommandLookupResponse)
        topic_id = found.topic_id
        partition = next(
            one for one in range(PARTITIONS) if shard_of(topic_id, one) == first.number
        )
        await scene.answered(first, publish(topic_id, partition, b"before"))
        offsets = broker_pb2.CommandListOffsets(topic=TOPIC, partitions=[partition])
        zombie = await scene.talk(first)
        assert (await zombie.ask(offsets)).partitions[0].end_offset == 1

        members.freeze("a")
        # They wait in the network, and are the first thing that it sees when it wakes up.
        unanswered = [zombie.begin(offsets), zombie.begin(publish(topic_id, partition, b"zombie"))]
        await scene.watcher.owned(without="a")
        await scene.answered(first, publish(topic_id, partition, b"after"))
        members.thaw("a")
        await zombie.closed.wait()
        assert not any(one.done() for one in unanswered)

        # It goes on as a member, and has shards again.
        await scene.watcher.until(is_even, PATIENCE_S)
        async with await magnetar.connect(members.address("b")) as client:
            assert await values(client, TOPIC, partition) == [b"before", b"after"]
        assert members.runs("a")
        await scene.close()

    run(program(), timeout_s=240)


def test_a_coordinator_that_slept_denies_no_transaction_that_it_has_not_heard_of(
    members: Members,
) -> None:
    async def program() -> None:
        scene = Scene(members)
        await scene.watcher.until(is_even)
        (shard,) = shards_of(scene.watcher.view, "x", COORDINATOR)
        zombie = await scene.talk(shard)
        begun = await zombie.ask(transaction_pb2.CommandNewTxn())
        describe = transaction_pb2.CommandDescribeTxn(txn_id=begun.txn_id)
        assert (await zombie.ask(describe)).transaction.status == common_pb2.OPEN

        members.freeze("x")
        await scene.watcher.owned(without="x")
        ended = await scene.answered(
            shard,
            transaction_pb2.CommandEndTxn(txn_id=begun.txn_id, txn_action=common_pb2.ABORT),
        )
        assert isinstance(ended, transaction_pb2.CommandEndTxnResponse)
        unheard = await scene.answered(shard, transaction_pb2.CommandNewTxn())
        assert isinstance(unheard, transaction_pb2.CommandNewTxnResponse)
        unanswered = [
            zombie.begin(describe),
            zombie.begin(transaction_pb2.CommandDescribeTxn(txn_id=unheard.txn_id)),
            zombie.begin(transaction_pb2.CommandNewTxn()),
        ]
        members.thaw("x")
        await zombie.closed.wait()
        assert not any(one.done() for one in unanswered)
        await scene.watcher.until(is_even, PATIENCE_S)
        again = await scene.answered(
            shard, transaction_pb2.CommandDescribeTxn(txn_id=unheard.txn_id)
        )
        assert isinstance(again, transaction_pb2.CommandDescribeTxnResponse)
        assert again.transaction.status == common_pb2.OPEN
        assert members.runs("x")
        await scene.close()

    run(program(), timeout_s=240)


def test_a_server_that_stops_hands_its_shards_over_and_one_that_joins_takes_its_share(
    members: Members, figure: Figure
) -> None:
    async def program() -> None:
        watcher = Watcher(members.directory())
        await watcher.until(is_even)
        sender = await Sender.begin(members, 20)
        loop = asyncio.get_running_loop()
        for name in ("a", "x"):
            began_s = loop.time()
            await asyncio.to_thread(members.stop, name)
            figure(f"SIGTERM to the end of {name}", f"{loop.time() - began_s:.1f} s")
            # All of its shards have another owner when it ends.
            await watcher.owned(without=name)
            assert "is lost" not in members.log(name)
            await sender.more(10)
        await asyncio.to_thread(lambda: members.start(d=BROKER, z=COORDINATOR))
        await watcher.until(lambda view: is_even(view) and shards_of(view, "d", BROKER), PATIENCE_S)
        await sender.more(10)
        await sender.finish("d")
        assert members.metric("d", "magnetar_member_shards") == 2
        await watcher.close()

    run(program(), timeout_s=240)
