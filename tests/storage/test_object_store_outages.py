"""The object store is away, slow, or loses answers: nothing is lost, and nobody starts again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest
from tests.core.ports import free_ports
from tests.object_server import ObjectServer, environment
from tests.storage.slate_stores import new_prefix
from tests.tcp_proxy import TcpProxy
from tests.waiting import until

from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb import background as slate_background
from magnetar_storage.slatedb.engine import SlateStore
from magnetar_storage.store import KEY_END

# SlateDB's client waits for up to 15 s between its attempts.
PATIENCE_S = 90.0


@pytest.fixture
def proxy(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    between = TcpProxy(object_server.port)
    between.start()
    for name, value in environment(between.port).items():
        monkeypatch.setenv(name, value)
    yield between
    between.stop()


class Load:
    """Appends numbers in groups for ever, and knows which are durable."""

    def __init__(self, store: SlateStore) -> None:
        self.store = store
        self.durable: list[int] = []
        self.failures: list[BaseException] = []
        self.commits = GroupCommit(store, on_failure=self.failures.append)
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.commits.start()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            for _ in range(5):
                number = self._number
                self._number += 1
                self.commits.batch.put("numbers", number.to_bytes(8, "big"), b"v" * 100)
                self.commits.when_durable(
                    self.commits.position(), partial(self.durable.append, number)
                )
            await self.commits.durable()

    async def more(self, count: int = 20) -> None:
        """Wait until so many more are durable."""
        enough = len(self.durable) + count
        await until(lambda: len(self.durable) >= enough or self.failures, PATIENCE_S)
        assert not self.failures

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.commits.close()


async def opened(url: ObjectStoreUrl) -> SlateStore:
    return await SlateStore.open(url, ("numbers",))


@asynccontextmanager
async def under_load(url: ObjectStoreUrl) -> AsyncIterator[Load]:
    """A store that is written all the while; what became durable is there in the end."""
    store = await opened(url)
    load = Load(store)
    await load.start()
    await load.more()
    yield load
    await load.stop()
    await store.close()
    await check_all_there(url, load)


async def check_all_there(url: ObjectStoreUrl, load: Load) -> None:
    store = await opened(url)
    rows = await store.scan("numbers", b"", KEY_END, rows_max=1_000_000)
    found = [int.from_bytes(key, "big") for key, _ in rows]
    assert found[: len(load.durable)] == load.durable == list(range(len(load.durable)))
    await store.close()


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_server_that_comes_back_is_waited_for(
    fault: str,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is answered meanwhile, nothing is lost, and the same process goes on."""
    monkeypatch.setattr(slate_background, "SLOW_SECONDS", 0.5)
    caplog.set_level(logging.WARNING)
    for name, value in object_server.environment().items():
        monkeypatch.setenv(name, value)
    url = new_prefix()

    async def scenario() -> None:
        async with under_load(url) as load:
            with away(object_server, fault):
                # The store waits, and says so. A slow machine may have said so before.
                caplog.clear()
                await until(lambda: "goes on when it answers" in caplog.text)
                count = len(load.durable)
                await until(lambda: caplog.text.count("goes on when it answers") >= 2)
                assert len(load.durable) == count, "nothing is acknowledged meanwhile"
            await load.more()
            assert "went on after" in caplog.text

    asyncio.run(scenario())


@contextmanager
def away(server: ObjectServer, fault: str) -> Iterator[None]:
    """A server that others use is there again whatever happens."""
    if fault == "killed":
        assert server.sockets()
        server.kill()
        assert not server.sockets(), "another server may get its ports, and must not find them"
    else:
        server.freeze()
    try:
        yield
    finally:
        if fault == "killed":
            server.start()
        else:
            server.thaw()


@pytest.mark.chaos
def test_an_answer_that_is_lost_does_not_look_like_another_owner(proxy: TcpProxy) -> None:
    """The server has the object, the client does not know: creating it again finds it there."""
    url = new_prefix()
    lost: set[bytes] = set()

    def lose_every_tenth_log_object(request: bytes) -> bool:
        target = request.split(b" ", 2)[1] if request.startswith(b"PUT ") else b""
        if b"/wal/" not in target or target in lost or len(lost) > 5:
            return False
        lost.add(target)
        return True

    async def scenario() -> None:
        async with under_load(url) as load:
            proxy.lose_answers = lose_every_tenth_log_object
            await until(lambda: proxy.lost_count > 3 or load.failures, PATIENCE_S)
            await load.more()

    asyncio.run(scenario())


@pytest.mark.chaos
def test_answers_that_come_late_only_take_longer(proxy: TcpProxy) -> None:
    url = new_prefix()

    async def scenario() -> None:
        async with under_load(url) as load:
            proxy.delay_s = 0.2
            await load.more(10)
            proxy.delay_s = 0.0
            await load.more()

    asyncio.run(scenario())


@pytest.mark.chaos
def test_a_store_is_opened_when_its_server_comes(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server process that starts before its object store waits for it, and says so."""
    caplog.set_level(logging.WARNING)
    (port,) = free_ports(1)
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
    proxy = TcpProxy(object_server.port, port)

    async def scenario() -> None:
        opening = asyncio.ensure_future(opened(new_prefix()))
        await until(lambda: "does not answer, and is asked again" in caplog.text)
        assert not opening.done()
        await asyncio.to_thread(proxy.start)
        store = await opening
        await store.close()

    try:
        asyncio.run(scenario())
    finally:
        proxy.stop()
