"""A server process with a fake inside: `python -m tests.cli.fake_server DIRECTORY MODE`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.core.fakes import FakeServer
from tests.waiting import for_ever

from magnetar_cli.servers.open_store import Rows
from magnetar_cli.servers.server_process import ServerProcess, World, run
from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.recording.config import HistoryConfig
from magnetar_core.security.link_security import PLAIN
from magnetar_core.traces.config import TracesConfig
from magnetar_storage.store import StoreFailed


class FakeComponent:
    def __init__(self, world: World, mode: str) -> None:
        self.server = FakeServer()
        self._world = world
        self._mode = mode

    async def start(self) -> None:
        if self._mode == "slow":
            print("recovering", flush=True)
            await for_ever()
        if self._mode == "fatal":
            loop = asyncio.get_running_loop()
            failed = StoreFailed("the disk is gone")
            loop.add_signal_handler(signal.SIGUSR1, self._world.on_fatal, failed)

    async def close(self) -> None:
        print("closed", flush=True)

    def abandon(self) -> None:
        raise NotImplementedError


if __name__ == "__main__":
    directory, mode = Path(sys.argv[1]), sys.argv[2]
    run(
        ServerProcess(
            service="Broker",
            rows=Rows(
                kind="broker",
                name="fake",
                data_dir=directory / "data",
                families=("rows",),
                block_cache_bytes=1 << 20,
                memtables_bytes=8 << 20,
            ),
            listen=ListenConfig(metrics_port=0),
            access=AccessConfig(),
            links=PLAIN,
            traces=TracesConfig(),
            history=HistoryConfig(),
            build=lambda world: FakeComponent(world, mode),
            supervised=mode == "supervised",
            ready_file=directory / "ready.json",
        )
    )
