"""etcd is restored from a backup while a cluster runs: docs/design/0009-owners.md.

What its servers have learned since then is not true any more, though etcd renews their leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import etcd_server
from tests.etcd_server import EtcdServer
from tests.object_server import ObjectServer
from tests.system.conftest import Figure
from tests.system.members import BROKERS, COORDINATORS, Members, Watcher, is_even, started
from tests.system.owned_load import Sender
from tests.system.programs import run

# sysexits.h, EX_SOFTWARE: whoever started it starts it again.
EXIT_FATAL = 70


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    yield from etcd_server.started(tmp_path)


@pytest.fixture
def members(tmp_path: Path, own_etcd: EtcdServer, object_server: ObjectServer) -> Iterator[Members]:
    settings = {"MAGNETAR_SETTLING_MS": "500"}
    yield from started(tmp_path, own_etcd, object_server, settings, **BROKERS, **COORDINATORS)


def test_servers_notice_that_etcd_was_restored_and_go_on_when_they_are_started_again(
    members: Members, own_etcd: EtcdServer, tmp_path: Path, figure: Figure
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        watcher = Watcher(members.directory())
        await watcher.until(is_even)
        sender = await Sender.begin(members, 10, patience_s=120.0, starts_over=True)
        backup = tmp_path / "backup"
        await asyncio.to_thread(own_etcd.back_up, backup)
        # The backup knows nothing of this.
        await asyncio.to_thread(members.stop, "c")
        await watcher.owned(without="c")
        await sender.more(5)
        await asyncio.to_thread(own_etcd.restore, backup)
        began_s = loop.time()
        left = {
            name: kind for name, kind in (*BROKERS.items(), *COORDINATORS.items()) if name != "c"
        }
        for name in left:
            assert await asyncio.to_thread(members.ended, name) == EXIT_FATAL
            assert "went back from revision" in members.log(name)
        figure("etcd is back to the end of all servers", f"{loop.time() - began_s:.1f} s")
        await asyncio.to_thread(lambda: members.start_again(**left))
        await sender.more(10)
        await sender.finish("a")
        await watcher.close()

    run(program(), timeout_s=300)
