"""Strangers hold connections to all ports of a server: clients work, and files can be opened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import selectors
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.environment import without_settings
from tests.waiting import until

import magnetar
from magnetar_core.process import descriptors
from magnetar_core.process.descriptors import shares_of
from magnetar_core.server.connection_metrics import OPEN_FILES, OPEN_FILES_MAX

PATIENCE_S = 120.0


@contextmanager
def standalone(directory: Path, files_max: int) -> Iterator[dict[str, dict[str, str]]]:
    """A cluster on a machine that lets a process open so many files; what its ready file says."""
    ready = directory / "ready"
    program = [sys.executable, "-m", "magnetar_cli", "standalone", "--no-restart"]
    options = ["--data-dir", str(directory / "data"), "--ready-file", str(ready)]
    options += ["--port", "0", "--metrics-port", "0"]
    command = f'ulimit -n {files_max}; ulimit -S -n {min(256, files_max)}; exec "$@"'
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            ["sh", "-c", command, "sh", *program, *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=without_settings(),
        )
        assert process.stdout is not None
        with process, process.stdout:
            line = process.stdout.readline()
            assert line.startswith("ready:"), (directory / "log").read_text()
            try:
                yield json.loads(ready.read_text())
                assert process.poll() is None, (directory / "log").read_text()
            finally:
                process.terminate()


class Strangers:
    """Connections that say nothing; one that is closed is made again."""

    def __init__(self, ports: list[int], count: int) -> None:
        self._ports = ports
        self._count = count
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._stay)
        self.made = 0

    def __enter__(self) -> Strangers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _stay(self) -> None:
        held = selectors.DefaultSelector()
        while not self._stopping.is_set():
            for place in range(min(200, self._count - len(held.get_map()))):
                connection = socket.socket()
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.connect(("127.0.0.1", self._ports[place % len(self._ports)]))
                held.register(connection, selectors.EVENT_READ)
                self.made += 1
            for key, _ in held.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                if _is_over(key.fileobj):
                    held.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(held.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        held.close()


def _is_over(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1_000)
    except OSError:
        return True


def listening(pid: int) -> list[int]:
    """All ports at which a server listens: of gRPC, of streams, and for metrics."""
    inodes = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{entry}"))
            if found:
                inodes.add(found[1])
    ports = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and rest[5] in inodes:
            ports.append(int(local.rpartition(":")[2], 16))
    return ports


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=30) as reply:
        (line,) = re.findall(rf"^{name} (.*)$", reply.read().decode(), re.MULTILINE)
        return float(line)


@pytest.mark.parametrize(
    ("files_max", "count"),
    [(1_024, 1_250), pytest.param(4_096, 19_000, marks=pytest.mark.soak)],
)
def test_clients_work_while_strangers_hold_connections(
    tmp_path: Path, files_max: int, count: int
) -> None:
    """So many on the port of gRPC alone ended a broker, as if its disk had failed."""
    descriptors.raise_limit()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + 500:
        pytest.skip("this process may not have so many connections")

    async def commit(producer: magnetar.Producer, client: magnetar.Client, times: int) -> None:
        for _ in range(times):
            async with client.transaction() as txn:
                await producer.send(bytes(10_000), txn=txn)

    async def scenario(ready: dict[str, dict[str, str]]) -> None:
        broker = ready["broker"]
        async with await magnetar.connect(broker["address"]) as client:
            await client.admin.topics.create("t")
            producer = await client.create_producer("t")
            await commit(producer, client, 5)
            with Strangers(listening(int(broker["pid"])), count) as strangers:
                await until(lambda: strangers.made >= count, PATIENCE_S)
                # Those that were let in before go on, files can be opened ...
                await commit(producer, client, 50)
                assert len(os.listdir(f"/proc/{broker['pid']}/fd")) < files_max - 64
                # ... and who comes now gets a place.
                async with await connected(broker["address"]) as another:
                    await commit(await another.create_producer("t"), another, 5)
            assert len([one async for one in client.read("t")]) == 60
        shares = shares_of(files_max)
        assert await asyncio.to_thread(metric, broker["metrics"], OPEN_FILES_MAX) == files_max
        await until(
            lambda: metric(broker["metrics"], OPEN_FILES) < shares.files, patience_s=PATIENCE_S
        )

    with standalone(tmp_path, files_max) as ready:
        asyncio.run(scenario(ready))
    assert "Too many open files" not in (tmp_path / "log").read_text()


async def connected(address: str) -> magnetar.Client:
    """Come again until there is a place, as programs do."""
    while True:
        with contextlib.suppress(magnetar.MagnetarError, ConnectionError):
            return await magnetar.connect(address)
