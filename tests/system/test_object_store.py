"""A broker and a coordinator without disks: their rows are in an object store on a real server."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.ports import free_ports
from tests.object_server import BUCKET, ObjectServer, environment
from tests.system.conftest import Figure
from tests.system.processes import BROKER, COORDINATOR, MAGNETAR, Servers
from tests.system.programs import run, values
from tests.system.test_kills import PARTITIONS, check_converged, set_up
from tests.waiting import until, wait_until

import magnetar
from magnetar import Client, ClientConfig, TransactionStatus

_numbers = itertools.count(1)
CONVERGED_S = 20.0
PATIENCE_S = 90.0


def settings(server: ObjectServer, store: str) -> dict[str, str]:
    return {
        **server.environment(),
        "MAGNETAR_STORE": store,
        # Another server may take over at another address.
        "MAGNETAR_STABLE_ADDRESSES": "0",
        "MAGNETAR_METRICS_PORT": "0",
    }


@pytest.fixture
def store(object_server: ObjectServer) -> str:
    return f"s3://{BUCKET}/clusters/{next(_numbers)}"


@pytest.fixture
def diskless(tmp_path: Path, object_server: ObjectServer, store: str) -> Iterator[Servers]:
    running = Servers(tmp_path / "first", settings(object_server, store))
    running.start()
    yield running
    running.stop()


def check_no_data(directory: Path) -> None:
    """Nothing but logs lies on the disk, so that nothing else can be what a restart finds."""
    assert sorted(one.name for one in directory.iterdir()) == ["broker.log", "coordinator.log"]


class Sender:
    """Commits transactions of two messages, one in each partition, and knows what was answered."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self.committed: list[bytes] = []
        self.sent: list[bytes] = []
        self.failure: BaseException | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._producer = await self._client.create_producer(self._topic)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        for number in itertools.count():
            value = b"%06d" % number
            try:
                txn = await self._client.begin_transaction(timeout_s=10.0)
                for partition in range(PARTITIONS):
                    await self._producer.send(value, partition=partition, txn=txn)
                self.sent.append(value)
                await txn.commit()
            except magnetar.InvalidTxnState:
                # Its coordinator was killed before it was stored that it had begun: it is aborted.
                continue
            except magnetar.MagnetarError as error:
                self.failure = error
                return
            self.committed.append(value)
            if self._stopping:
                return

    async def more(self, count: int) -> None:
        enough = len(self.committed) + count
        await until(lambda: len(self.committed) >= enough or self.failure, PATIENCE_S)

    async def stop(self) -> None:
        """Let the last transaction end."""
        assert self._task is not None
        self._stopping = True
        await self._task


async def check_all_there(client: Client, topic: str, sender: Sender) -> None:
    """What was answered is there, once, in order, in all partitions, and so is nothing else."""

    async def none_left() -> bool:
        return not await client.admin.transactions.list()

    await until(none_left, CONVERGED_S)
    found = [await values(client, topic, partition) for partition in range(PARTITIONS)]
    assert all(one == found[0] for one in found), "whole transactions"
    assert found[0] == sorted(set(found[0])), "in order, and once"
    assert set(sender.committed) <= set(found[0]) <= set(sender.sent)


def test_servers_that_lost_their_machines_finish_what_they_had_decided(
    diskless: Servers, tmp_path: Path, figure: Figure
) -> None:
    """Both are killed with transactions in all states, and start where nothing is on the disk."""

    async def program() -> None:
        scene = await set_up(diskless)
        diskless.kill(BROKER)
        await scene.committing.commit()
        await scene.aborting.abort()
        assert scene.committing.status is TransactionStatus.COMMITTING
        diskless.kill(COORDINATOR)
        check_no_data(tmp_path / "first")
        await asyncio.to_thread(diskless.start)

        await check_converged(diskless, scene, figure, CONVERGED_S)
        await scene.client.close()

    run(program(), timeout_s=90)


def test_everything_answered_before_a_kill_under_load_is_there(
    diskless: Servers, tmp_path: Path
) -> None:
    async def program() -> None:
        async with await magnetar.connect(diskless.address) as client:
            await client.admin.topics.create("load", partitions=PARTITIONS)
            sender = Sender(client, "load")
            await sender.start()
            await sender.more(30)
            diskless.kill()
            check_no_data(tmp_path / "first")
            await asyncio.to_thread(diskless.start)
            # The same client goes on.
            await sender.more(30)
            await sender.stop()
            assert sender.failure is None
            await check_all_there(client, "load", sender)
        puts = "magnetar_broker_object_store_requests_total"
        assert diskless.metric(BROKER, puts + '{component="db",operation="put"}') > 0

    run(program(), timeout_s=120)


def test_a_second_broker_on_the_store_ends_the_first_and_nobody_is_told_a_falsehood(
    diskless: Servers, tmp_path: Path, object_server: ObjectServer, store: str
) -> None:
    second = Servers(tmp_path / "second", settings(object_server, store))
    # It is the same broker at another address, with the same coordinator.
    second.addresses[COORDINATOR] = diskless.addresses[COORDINATOR]
    second.environ["MAGNETAR_COORDINATORS"] = diskless.environ["MAGNETAR_COORDINATORS"]
    first = diskless.let_go(BROKER)

    async def program() -> None:
        # What it has not delivered to the first, it can deliver to nobody.
        client = await magnetar.connect(diskless.address, config=ClientConfig(close_timeout_ms=100))
        await client.admin.topics.create("plain")
        producer = await client.create_producer("plain")
        acknowledged: list[bytes] = []

        async def send() -> None:
            for number in itertools.count():
                value = b"%06d" % number
                await producer.send(value)
                acknowledged.append(value)

        sending = asyncio.ensure_future(send())
        await until(lambda: len(acknowledged) >= 50)
        await asyncio.to_thread(second.start, BROKER)

        # When the second serves, the first is gone, by itself: it answers nobody any more.
        assert first.poll() == 70, diskless.log(BROKER)
        assert "another process opened this store" in diskless.log(BROKER)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        async with await magnetar.connect(second.address) as witness:
            found = await values(witness, "plain")
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) <= len(acknowledged) + 1, "and what was under way"
            other = await witness.create_producer("plain")
            await other.send(b"of the second")
            assert (await values(witness, "plain"))[-1] == b"of the second"
        await client.close()

    try:
        run(program(), timeout_s=90)
    finally:
        first.kill()
        first.wait()
        assert first.stdout is not None
        first.stdout.close()
        second.stop()


def test_the_object_store_goes_away_under_load_and_comes_back(
    own_object_server: ObjectServer, tmp_path: Path
) -> None:
    """Nothing is answered meanwhile; nobody restarts a server, and nothing is lost or doubled."""
    servers = Servers(tmp_path / "first", settings(own_object_server, f"s3://{BUCKET}/cluster"))
    servers.start()

    async def program() -> None:
        async with await magnetar.connect(servers.address) as client:
            await client.admin.topics.create("load", partitions=PARTITIONS)
            sender = Sender(client, "load")
            await sender.start()
            await sender.more(20)
            pids = [servers.pid(kind) for kind in (BROKER, COORDINATOR)]
            own_object_server.kill()
            committed = len(sender.committed)
            await asyncio.to_thread(own_object_server.start)
            # A transaction takes several puts, so that one at most had all of them.
            assert len(sender.committed) <= committed + 1
            await sender.more(20)
            assert sender.failure is None
            await sender.stop()
            assert pids == [servers.pid(kind) for kind in (BROKER, COORDINATOR)]
            await check_all_there(client, "load", sender)

    try:
        run(program(), timeout_s=150)
    finally:
        servers.stop()


def test_a_server_that_waits_for_its_object_store_can_be_stopped(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    servers = Servers(tmp_path, {**environment(port), "MAGNETAR_STORE": f"s3://{BUCKET}/away"})
    with (tmp_path / "broker.log").open("w") as log:
        process = subprocess.Popen(
            [*MAGNETAR, BROKER, "--name", "broker-0"], stderr=log, env=servers.environ
        )
    try:
        wait_until(lambda: "does not answer, and is asked again" in servers.log(BROKER))
        process.terminate()
        assert process.wait(20) == 0
        assert "Traceback" not in servers.log(BROKER)
    finally:
        process.kill()
        process.wait()
