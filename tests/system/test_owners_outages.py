"""What clusters stand on is away for a while: etcd as a whole, or the object server.

Source: docs/design/0009-owners.md, Zombies.
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
    LEASE_MS,
    Members,
    Watcher,
    is_even,
    shards_of,
    started,
)
from tests.system.owned_load import Sender
from tests.system.programs import run
from tests.system.scene import Scene

from magnetar_cluster.directory.view import BROKER, MemberName

# Beyond the end of all leases; and as long as a client waits.
AWAY_S = [pytest.param(LEASE_MS / 1_000 + 4.0), pytest.param(30.0, marks=pytest.mark.soak)]


@pytest.fixture
def members(
    tmp_path: Path, etcd_server: EtcdServer, object_server: ObjectServer
) -> Iterator[Members]:
    yield from started(tmp_path, etcd_server, object_server, {}, **BROKERS, **COORDINATORS)


async def moment(at_s: float) -> None:
    """How long an outage lasts is the test's to say."""
    come = asyncio.Event()
    asyncio.get_running_loop().call_at(at_s, come.set)
    await come.wait()


@pytest.mark.parametrize("away_s", AWAY_S)
def test_without_etcd_nobody_speaks_after_the_lease_and_all_go_on_when_it_is_back(
    members: Members, etcd_server: EtcdServer, figure: Figure, away_s: float
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        scene = Scene(members)
        await scene.watcher.until(is_even)
        sender = await Sender.begin(members, 10, patience_s=away_s + 60.0)
        talks = [await scene.talk(one) for one in shards_of(scene.watcher.view, "b", BROKER)]
        began_s = loop.time()
        for one in etcd_server.members:
            one.freeze()
        try:
            for talk in talks:
                await talk.closed.wait()
            figure("etcd away to silence", f"{loop.time() - began_s:.1f} s")
            while_silent = len(sender.committed)
            await moment(began_s + away_s)
            assert len(sender.committed) - while_silent <= 1, "one may have been on its way"
        finally:
            back_s = loop.time()
            etcd_server.mend()
        await sender.more(1)
        figure("etcd back to a transaction over all partitions", f"{loop.time() - back_s:.1f} s")
        await sender.more(10)
        await sender.finish("c")
        assert all(members.runs(name) for name in (*BROKERS, *COORDINATORS))
        await scene.close()

    run(program(), timeout_s=300)


def test_a_server_that_is_stopped_while_etcd_is_away_ends_and_says_what_it_left(
    members: Members, etcd_server: EtcdServer, figure: Figure
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        watcher = Watcher(members.directory())
        await watcher.until(is_even)
        sender = await Sender.begin(members, 10)
        left = len(shards_of(watcher.view, "a", BROKER))
        began_s = loop.time()
        for one in etcd_server.members:
            one.freeze()
        try:
            await asyncio.to_thread(members.stop, "a", status=75)
            figure("SIGTERM without etcd to the end", f"{loop.time() - began_s:.1f} s")
        finally:
            etcd_server.mend()
        said = members.log("a").splitlines()[-1]
        assert f"broker a stops with {left} shards that it could not hand over" in said
        assert "since the directory does not answer" in said
        await watcher.owned(without="a")
        await sender.more(10)
        await sender.finish("b")
        await watcher.close()

    run(program(), timeout_s=300)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        # Nobody listens there: it waits, until it is not waited for any more.
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "it was not open after 2000 ms"),
        pytest.param(
            {"AWS_SECRET_ACCESS_KEY": "another"},
            "the object store refuses what",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["endpoint", "credentials"],
)
def test_shards_of_a_server_that_cannot_open_them_go_to_others(
    members: Members, figure: Figure, wrong: dict[str, str], reason: str
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        watcher = Watcher(members.directory())
        await watcher.until(is_even)
        sender = await Sender.begin(members, 10)
        settings = {**wrong, "MAGNETAR_OPENING_MS_MAX": "2000"}
        await asyncio.to_thread(members.start_with, settings, d=BROKER)
        began_s = loop.time()
        name = MemberName(BROKER, "d")
        # It joins when it is ready, and the watcher may hear of that later.
        refusing = await watcher.until(
            lambda view: name in view.members and bool(view.members[name].refused)
        )
        refused = len(refusing.members[name].refused)
        assert members.metric("d", "magnetar_member_shards_refused") == refused
        await watcher.owned(without="d")
        figure("until others have its shards", f"{loop.time() - began_s:.1f} s")
        await sender.more(10)
        await sender.finish("b")
        assert reason in members.log("d")
        await watcher.close()

    run(program(), timeout_s=300)


@pytest.mark.parametrize("away_s", AWAY_S)
def test_without_the_object_server_nothing_is_answered_and_nothing_is_lost(
    members: Members, object_server: ObjectServer, figure: Figure, away_s: float
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        watcher = Watcher(members.directory())
        owners = (await watcher.until(is_even)).shard_owners
        sender = await Sender.begin(members, 10, patience_s=away_s + 60.0)
        began_s = loop.time()
        object_server.freeze()
        try:
            # What was stored before is answered still.
            await moment(began_s + 1.0)
            before = len(sender.committed)
            await moment(began_s + away_s)
            assert len(sender.committed) - before <= 1
        finally:
            back_s = loop.time()
            object_server.thaw()
        await sender.more(1)
        figure("object server back to a transaction", f"{loop.time() - back_s:.1f} s")
        await sender.more(10)
        await sender.finish("c")
        assert watcher.view.shard_owners == owners, "nobody had to take over"
        assert all(members.runs(name) for name in (*BROKERS, *COORDINATORS))
        await watcher.close()

    run(program(), timeout_s=300)
