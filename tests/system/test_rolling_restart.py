"""All servers are restarted, one after the other, under load: clients of the SDK meet no error."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmarks.results import quantile
from tests.etcd_server import EtcdServer
from tests.object_server import ObjectServer
from tests.system.conftest import Figure
from tests.system.members import BROKERS, COORDINATORS, Members, Watcher, started
from tests.system.owned_load import Sender
from tests.system.processes import BROKER, COORDINATOR, MAGNETAR, Servers
from tests.system.programs import run

from magnetar_cli.errors import STATUS_OF_KIND
from magnetar_core.error_kinds import ErrorKind

pytestmark = pytest.mark.xdist_group("outside")

COUNTS = {BROKER: 3, COORDINATOR: 2}
BETWEEN = 20
PATIENCE_S = 60.0
TEST_S = 400.0
# A cluster is restarted again and again in the soak.
ROUNDS_LONG = 10


def recorded(figure: Figure, sender: Sender) -> None:
    took_s = sorted(sender.took_s)
    figure(
        "transactions during the restarts",
        f"{len(took_s)}, p50 {quantile(took_s, 0.5):.2f} s,"
        f" p99 {quantile(took_s, 0.99):.2f} s, longest {took_s[-1]:.2f} s",
    )


class ListedServers:
    """Servers of a list, as a sender sees them."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def addresses(self) -> list[str]:
        return [self._servers.address]

    def address(self, name: str) -> str:
        return self._servers.address


def roll_listed(tmp_path: Path, figure: Figure, rounds: int) -> None:
    servers = Servers(tmp_path / "servers", counts=COUNTS)
    servers.start()

    async def program() -> None:
        sender = await Sender.begin(ListedServers(servers), BETWEEN, PATIENCE_S)
        for _ in range(rounds):
            for kind, count in COUNTS.items():
                for number in range(count):
                    await asyncio.to_thread(servers.restart, kind, number)
                    await sender.more(BETWEEN)
        await sender.finish(BROKER)
        recorded(figure, sender)

    try:
        run(program(), TEST_S * rounds)
        servers.stop()
    finally:
        servers.end()


def test_servers_of_a_list(tmp_path: Path, figure: Figure) -> None:
    roll_listed(tmp_path, figure, 1)


@pytest.mark.soak
def test_servers_of_a_list_for_long(tmp_path: Path, figure: Figure) -> None:
    roll_listed(tmp_path, figure, ROUNDS_LONG)


@pytest.fixture
def members(
    tmp_path: Path, etcd_server: EtcdServer, object_server: ObjectServer
) -> Iterator[Members]:
    yield from started(tmp_path, etcd_server, object_server, {}, **BROKERS, **COORDINATORS)


async def roll_members(members: Members, figure: Figure, rounds: int) -> None:
    watcher = Watcher(members.directory())
    sender = await Sender.begin(members, BETWEEN, PATIENCE_S)
    for _ in range(rounds):
        for name, kind in {**BROKERS, **COORDINATORS}.items():
            await asyncio.to_thread(members.stop, name)
            await watcher.owned(name)
            await sender.more(BETWEEN)
            await asyncio.to_thread(partial(members.start_again, **{name: kind}))
            await sender.more(BETWEEN)
    await sender.finish("a")
    await watcher.close()
    recorded(figure, sender)


@pytest.mark.soak
def test_members_whose_shards_move(members: Members, figure: Figure) -> None:
    run(roll_members(members, figure, 1), TEST_S)


@pytest.mark.soak
def test_members_whose_shards_move_for_long(members: Members, figure: Figure) -> None:
    run(roll_members(members, figure, ROUNDS_LONG), TEST_S * ROUNDS_LONG)


def test_a_backup_of_shards(members: Members, tmp_path: Path) -> None:
    """Each shard is a server to a backup, whoever has it."""

    async def magnetar(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*MAGNETAR, "--broker", members.address("a"), *map(str, arguments)]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=120, check=False
        )

    async def program() -> None:
        sender = await Sender.begin(members, BETWEEN, PATIENCE_S)
        for number in itertools.count():
            backup = tmp_path / f"backup-{number}"
            done = await magnetar("backup", backup)
            # Members that have only just begun still share the shards out.
            if done.returncode != STATUS_OF_KIND[ErrorKind.RETRY]:
                break
        assert done.returncode == 0, done.stderr
        assert len(list(backup.glob("*.rows"))) == 8
        done = await magnetar("restore", backup, "--verify")
        assert done.returncode == 0, done.stderr
        await sender.finish("a")

    run(program(), TEST_S)
