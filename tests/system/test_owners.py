"""Shards change their owner: servers die, sleep, stop and join, under load.

Three members have the shards of brokers, two those of coordinators, on a real object server and
three members of etcd. Source: docs/design/0009-owners.md, What it promises.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd_server import EtcdServer
from tests.object_server import ObjectServer
from tests.raw_talk import RawTalk
from tests.system.conftest import Figure
from tests.system.members import FORMAT, Members, Watcher, shards_of
from tests.system.programs import run, values
from tests.waiting import until

import magnetar
from magnetar import Client, ClientConfig
from magnetar_cluster.view import BROKER, COORDINATOR, ShardName, View
from magnetar_cluster.whereabouts import where_is
from magnetar_core.errors import MagnetarError
from magnetar_core.grpc_transport import GrpcTransport
from magnetar_core.placement import shard_of
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2

PARTITIONS = 6
BROKERS = {"a": BROKER, "b": BROKER, "c": BROKER}
COORDINATORS = {"x": COORDINATOR, "y": COORDINATOR}
PATIENCE_S = 90.0
_numbers = itertools.count(1)


@pytest.fixture
def members(
    tmp_path: Path, etcd_server: EtcdServer, object_server: ObjectServer
) -> Iterator[Members]:
    cluster_id = f"owners-{next(_numbers)}"
    settings = {"MAGNETAR_SETTLING_MS": "500"}
    running = Members(tmp_path / "members", etcd_server, object_server, cluster_id, settings)
    try:
        running.start(**BROKERS, **COORDINATORS)
        yield running
    finally:
        running.close()


def is_even(view: View) -> bool:
    """Whether each member has its share."""
    shares = {name: len(shards_of(view, name.name, name.kind)) for name in view.members}
    for kind in (BROKER, COORDINATOR):
        counts = [count for name, count in shares.items() if name.kind == kind]
        if sum(counts) != len(FORMAT.shards(kind)) or max(counts) - min(counts) > 1:
            return False
    return True


class Sender:
    """Commits transactions of a message in each partition, and knows what was answered.

    It has a single client, which meets no error, whatever happens to the servers.
    """

    def __init__(self, members: Members, topic: str, patience_s: float = 30.0) -> None:
        self._members = members
        self._topic = topic
        self._patience_s = patience_s
        self.committed: list[bytes] = []
        self.sent: list[bytes] = []
        self._stopping = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def more(self, count: int) -> None:
        """Wait for so many more."""
        enough = len(self.committed) + count
        await until(lambda: len(self.committed) >= enough or self._task.done(), PATIENCE_S)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Let the last transaction end."""
        self._stopping = True
        await self._task

    async def _run(self) -> None:
        addresses = ",".join(self._members.addresses())
        config = ClientConfig(operation_timeout_ms=self._patience_s * 1_000)
        async with await magnetar.connect(addresses, config=config) as client:
            producer = await client.create_producer(self._topic)
            for number in itertools.count():
                value = b"%06d" % number
                txn = await client.begin_transaction(timeout_s=self._patience_s)
                for partition in range(PARTITIONS):
                    await producer.send(value, partition=partition, txn=txn)
                self.sent.append(value)
                await txn.commit()
                self.committed.append(value)
                if self._stopping:
                    return


async def check_all_there(client: Client, topic: str, sender: Sender) -> None:
    """What was answered is there, once, in order, in all partitions, and so is nothing else."""

    async def none_left() -> bool:
        return not await client.admin.transactions.list()

    await until(none_left, PATIENCE_S)
    found = [await values(client, topic, partition) for partition in range(PARTITIONS)]
    assert all(one == found[0] for one in found), "whole transactions"
    assert found[0] == sorted(set(found[0])), "in order, and once"
    assert set(sender.committed) <= set(found[0]) <= set(sender.sent)


def test_a_broker_that_dies_under_load_is_replaced_and_nothing_answered_is_lost(
    members: Members, figure: Figure
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        watcher = Watcher(members.directory())
        await watcher.until(is_even)
        async with await magnetar.connect(members.address("a")) as client:
            await client.admin.topics.create("t", partitions=PARTITIONS)
        sender = Sender(members, "t")
        await sender.more(20)
        began_s = loop.time()
        members.kill("a")
        await watcher.owned(without="a")
        owned_s = loop.time() - began_s
        await sender.more(1)
        again_s = loop.time() - began_s
        figure("kill to other owners", f"{owned_s:.1f} s")
        figure("kill to a transaction over all partitions", f"{again_s:.1f} s")
        await sender.more(20)
        await sender.stop()
        async with await magnetar.connect(members.address("b")) as client:
            await check_all_there(client, "t", sender)
        await watcher.close()

    run(program(), timeout_s=240)


class Scene:
    """Raw conversations with shards, wherever they are."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.watcher = Watcher(members.directory())
        self._transport = GrpcTransport()

    async def talk(self, shard: ShardName) -> RawTalk:
        """Converse with the owner of now."""
        service = "Broker" if shard.kind == BROKER else "TransactionCoordinator"

        async def connected() -> RawTalk | None:
            address = str(where_is(self.watcher.view, shard).address)
            try:
                return await RawTalk().connect(self._transport, address, service)
            except OSError:
                return None

        while (talk := await connected()) is None:
            await until(lambda: shard in self.watcher.view.owners)
        return talk

    async def close(self) -> None:
        await self._transport.close()
        await self.watcher.close()


async def answered(scene: Scene, shard: ShardName, body: object) -> object:
    """Ask until the owner of a shard answers, as clients do."""
    while True:
        talk = await scene.talk(shard)
        answer = talk.begin(body)
        closed = asyncio.ensure_future(talk.closed.wait())
        await asyncio.wait((answer, closed), return_when=asyncio.FIRST_COMPLETED)
        closed.cancel()
        if not answer.done():
            continue
        error = answer.exception()
        if error is None:
            return answer.result()
        assert isinstance(error, MagnetarError)
        assert error.retriable, error


def publish(topic_id: int, partition: int, value: bytes) -> broker_pb2.CommandPublish:
    return broker_pb2.CommandPublish(
        partition=common_pb2.Partition(topic="t", partition=partition, topic_id=topic_id),
        messages=[broker_pb2.Message(value=value)],
    )


def test_a_broker_that_slept_says_nothing_and_writes_nothing(members: Members) -> None:
    async def program() -> None:
        scene = Scene(members)
        await scene.watcher.until(is_even)
        async with await magnetar.connect(members.address("b")) as client:
            await client.admin.topics.create("t", partitions=PARTITIONS)
        first = shards_of(scene.watcher.view, "a", BROKER)[0]
        found = await answered(scene, first, topic_pb2.CommandLookup(topic="t"))
        assert isinstance(found, topic_pb2.CommandLookupResponse)
        topic_id = found.topic_id
        partition = next(
            one for one in range(PARTITIONS) if shard_of(topic_id, one) == first.number
        )
        await answered(scene, first, publish(topic_id, partition, b"before"))
        offsets = broker_pb2.CommandListOffsets(topic="t", partitions=[partition])
        zombie = await scene.talk(first)
        assert (await zombie.ask(offsets)).partitions[0].end_offset == 1

        members.freeze("a")
        # They wait in the network, and are the first thing that it sees when it wakes up.
        unanswered = [zombie.begin(offsets), zombie.begin(publish(topic_id, partition, b"zombie"))]
        await scene.watcher.owned(without="a")
        await answered(scene, first, publish(topic_id, partition, b"after"))
        members.thaw("a")
        await zombie.closed.wait()
        assert not any(one.done() for one in unanswered)

        # It goes on as a member, and has shards again.
        await scene.watcher.until(is_even, PATIENCE_S)
        async with await magnetar.connect(members.address("b")) as client:
            assert await values(client, "t", partition) == [b"before", b"after"]
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
        ended = await answered(
            scene,
            shard,
            transaction_pb2.CommandEndTxn(txn_id=begun.txn_id, txn_action=common_pb2.ABORT),
        )
        assert isinstance(ended, transaction_pb2.CommandEndTxnResponse)
        unheard = await answered(scene, shard, transaction_pb2.CommandNewTxn())
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
        again = await answered(
            scene, shard, transaction_pb2.CommandDescribeTxn(txn_id=unheard.txn_id)
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
        async with await magnetar.connect(members.address("b")) as client:
            await client.admin.topics.create("t", partitions=PARTITIONS)
        sender = Sender(members, "t")
        await sender.more(20)
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
        await sender.stop()
        assert members.metric("d", "magnetar_member_shards") == 2
        async with await magnetar.connect(members.address("d")) as client:
            await check_all_there(client, "t", sender)
        await watcher.close()

    run(program(), timeout_s=240)
