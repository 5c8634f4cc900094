"""The fixtures, in a run of pytest of its own: in all styles, and after tests that fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio
import threading

import anyio
import pytest

import magnetar
from magnetar import blocking
from magnetar.errors import MagnetarError


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_blocking(magnetar_server):
    client = blocking.connect(magnetar_server.address)
    client.admin.topics.create("t")
    client.create_producer("t").send(b"v")
    assert [one.value for one in client.read("t")] == [b"v"]


@pytest.mark.anyio
async def test_anyio(magnetar_server):
    client = await magnetar.connect(magnetar_server.address)
    await client.admin.topics.create("t")
    async with client.transaction() as txn:
        await txn.send("t", b"v")
    assert [one.value async for one in client.read("t")] == [b"v"]


@pytest.mark.anyio
async def test_virtual(magnetar_virtual_server):
    client = await magnetar_virtual_server.connect()
    txn = await client.begin_transaction(timeout_s=60)
    await magnetar_virtual_server.advance_async(61)
    assert await client.admin.transactions.list() == []


def test_asyncio(magnetar_server):
    async def program():
        async with await magnetar.connect(magnetar_server.address) as client:
            await client.admin.topics.create("t")

    asyncio.run(program())


@pytest.mark.magnetar(brokers=2)
def test_two_servers(magnetar_server, magnetar_virtual_server):
    for server in (magnetar_server, magnetar_virtual_server):
        assert server.names == ["broker-0", "broker-1", "coordinator-0"]
        blocking.connect(server.address).admin.topics.create("t")


@pytest.mark.parametrize("number", range(4))
def test_nothing_is_left(magnetar_server, number):
    blocking.connect(magnetar_server.address).admin.topics.create("t")
"""
FAILING = """
import pytest

import magnetar
from magnetar import blocking


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_blocking_fails(magnetar_server):
    client = blocking.connect(magnetar_server.address)
    client.admin.topics.create("t")
    held = magnetar_server.hold("Send")
    client.create_producer("t").enqueue(b"v")
    txn = client.begin_transaction()
    assert False, "on purpose"


@pytest.mark.anyio
async def test_anyio_fails(magnetar_server):
    client = await magnetar.connect(magnetar_server.address)
    await client.admin.topics.create("t")
    txn = await client.begin_transaction()
    await txn.send("t", b"v")
    magnetar_server.stop()
    assert False, "on purpose"
"""
# Fails a run that leaves a thread of ours.
CONFTEST = """
import threading


def pytest_sessionfinish(session):
    left = [one.name for one in threading.enumerate() if "magnetar" in one.name]
    print("threads:", left)
"""


def run(directory: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_program.py").write_text(program)
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "pytest", "-q", "-s"]
    return subprocess.run(
        [*command, "-p", "no:randomly", "--strict-markers", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONASYNCIODEBUG": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_styles(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM)
    assert re.search(r"\b9 passed\b", done.stdout), done.stdout + done.stderr
    assert "threads: []" in done.stdout
    assert "ResourceWarning" not in done.stdout + done.stderr


def test_several_workers(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM, "-n", "2")
    assert re.search(r"\b9 passed\b", done.stdout), done.stdout + done.stderr


def test_a_test_that_fails_leaves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING)
    assert re.search(r"\b2 failed\b", done.stdout), done.stdout + done.stderr
    assert "error" not in done.stdout.splitlines()[-1]
    assert "threads: []" in done.stdout
    text = done.stdout + done.stderr
    assert not re.search("ResourceWarning|Unraisable|never retrieved|was destroyed", text), text


def test_the_plugin_imports_nothing_until_it_is_needed() -> None:
    code = (
        "import sys, pytest_magnetar;"
        "print([n for n in sys.modules if n.split('.')[0].startswith('magnetar')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["grpc", "rocksdict", "pydantic", "psutil", "uvloop", "click"])
def test_what_other_extras_have_is_not_needed(missing: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
import magnetar.testing
with magnetar.testing.Server() as server:
    client = server.connect_blocking()
    client.admin.topics.create("t")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_extra_is_named_where_it_is_missing() -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; import magnetar.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'magnetar[testing]'" in done.stderr
