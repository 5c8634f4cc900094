"""The simulator's own parts: loop, network, nodes; against small servers that only echo."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from random import Random
from typing import Any, TypeVar

import pytest
from tests.core.envelope import framed
from tests.simulation.client_wiretap import Asked, ClientWiretaps
from tests.simulation.network import Network
from tests.simulation.nodes import ClientNode, Environment, ServerNode
from tests.simulation.planting import replaced
from tests.simulation.raw import BROKER, NoAnswer, RawClient
from tests.simulation.trace import Trace
from tests.virtual_loop import DeadlineExceeded, Deadlock, VirtualLoop

import magnetar
from magnetar.testing.envelope import command
from magnetar.testing.lives import Incarnation, SimulationFailure, UnhandledException
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.server.commands import CommandSession, Conversation, Reply, each
from magnetar_core.wire import common_pb2
from magnetar_storage.memory.engine import MemoryStore
from magnetar_storage.store import WriteBatch

T = TypeVar("T")


class EchoServer:
    """Answers Hello with the client's own name; keeps a row for each."""

    def __init__(self, store: MemoryStore, on_fatal: Callable[[BaseException], None]) -> None:
        self.store = store
        self.on_fatal = on_fatal
        self.sessions: list[CommandSession] = []

    async def start(self) -> None:
        self.names = [value for _, value in await self.store.scan("t", b"", b"z", rows_max=1000)]

    def accept(self, conversation: Conversation) -> CommandSession:
        session = CommandSession(
            {"hello": each(self._hello)}, conversation, lambda error, reply: None
        )
        self.sessions.append(session)
        return session

    def _hello(self, body: common_pb2.CommandHello, reply: Reply) -> None:
        asyncio.get_running_loop().create_task(self._keep(body, reply))

    async def _keep(self, body: common_pb2.CommandHello, reply: Reply) -> None:
        rows = WriteBatch()
        rows.put("t", body.client_name.encode(), body.client_name.encode())
        try:
            await self.store.write(rows)
            await self.store.sync()
        except Exception as error:
            self.on_fatal(error)
            return
        reply.send(common_pb2.CommandHelloResponse(server_name=body.client_name))


class Small:
    """A loop, a network and an echo server."""

    def __init__(self, seed: int = 1, *, deadline: float = 1_000.0) -> None:
        self.loop = VirtualLoop(deadline=deadline)
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, Random(f"{seed}/network"), self.trace)
        self.environment = Environment(self.loop, self.network, self.trace, str(seed))
        self.server = ServerNode(self.environment, "server", self._make, ("t",))

    def _make(
        self, node: ServerNode, store: MemoryStore, incarnation: Incarnation
    ) -> tuple[EchoServer, dict[str, EchoServer]]:
        server = EchoServer(store, node.on_fatal)
        return server, {BROKER: server}

    def client(
        self, name: str, program: Callable[[ClientNode], Coroutine[Any, Any, None]]
    ) -> ClientNode:
        node = ClientNode(self.environment, name, program)
        node.start()
        return node

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            result = self.loop.run_until_complete(work)
            self.loop.check_tasks()
            return result
        finally:
            self.loop.bury()

    def run_program(self, program: Callable[[ClientNode], Coroutine[Any, Any, None]]) -> None:
        """Run a client's program to its end, beside a server that serves."""

        async def work() -> None:
            self.server.start()
            await self.server.ready.wait()
            node = self.client("client", program)
            while not node.finished:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert node.main is not None
            node.main.result()

        self.run(work())


def hello(name: str) -> common_pb2.CommandHello:
    return common_pb2.CommandHello(protocol_version=PROTOCOL_VERSION, client_name=name)


def raw(node: ClientNode) -> RawClient:
    return RawClient(node.name, node.transport(), {BROKER: "server"})


def test_an_async_generator_that_is_left_half_read_is_noticed() -> None:
    loop = VirtualLoop()

    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number
            await asyncio.sleep(0)

    async def closes() -> None:
        async with aclosing(numbers()) as found:
            async for number in found:
                if number:
                    return

    async def leaves() -> None:
        async for number in numbers():
            if number:
                break
        await asyncio.sleep(1)

    loop.run_until_complete(closes())
    with pytest.raises(UnhandledException, match=r"numbers was left half-read"):
        loop.run_until_complete(leaves())
    loop.bury()


def test_what_reads_when_the_run_is_over_is_buried_in_silence() -> None:
    """Closing a coroutine closes no async generator that it waits for (CPython before 3.13)."""
    loop = VirtualLoop()
    left: list[str] = []

    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(1_000)

    async def reads() -> None:
        async for _ in numbers():
            pass

    async def main() -> None:
        loop.spawn(loop.incarnate("reader"), reads())
        await asyncio.sleep(1)

    before = sys.unraisablehook
    sys.unraisablehook = lambda one: left.append(str(one.exc_value))
    try:
        loop.run_until_complete(main())
        loop.bury()
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert left == []


def test_time_is_virtual() -> None:
    loop = VirtualLoop()

    async def sleep() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(sleep()) == 3600
    loop.bury()


def test_a_deadlock_is_an_error_that_names_the_tasks() -> None:
    loop = VirtualLoop()

    async def stuck() -> None:
        await loop.create_future()

    with pytest.raises(Deadlock, match="stuck"):
        loop.run_until_complete(stuck())
    loop.bury()


def test_virtual_time_has_an_end() -> None:
    loop = VirtualLoop(deadline=10)
    with pytest.raises(DeadlineExceeded):
        loop.run_until_complete(asyncio.sleep(11))
    loop.bury()


def test_threads_are_refused() -> None:
    loop = VirtualLoop()
    with pytest.raises(SimulationFailure, match="thread"):
        loop.run_until_complete(asyncio.to_thread(print))
    loop.bury()


def test_a_task_that_fails_unseen_fails_the_run() -> None:
    loop = VirtualLoop()

    async def fail() -> None:
        raise ValueError("unseen")

    async def work() -> None:
        loop.create_task(fail())
        await asyncio.sleep(1)

    loop.run_until_complete(work())
    with pytest.raises(UnhandledException, match="unseen"):
        loop.check_tasks()
    loop.bury()


@pytest.mark.parametrize("awaited", [True, False])
def test_a_failure_is_unseen_if_nobody_has_looked_by_the_next_time(awaited: bool) -> None:
    """Seed 463: it was looked between a failure and the step of whoever awaited it."""
    loop = VirtualLoop()
    incarnation = loop.incarnate("server")

    async def fail() -> None:
        raise ValueError("unseen")

    async def await_it() -> None:
        task = asyncio.ensure_future(fail())
        # It runs after the task, and before what the task's end wakes.
        asyncio.get_running_loop().call_soon(incarnation.prune)
        if awaited:
            with pytest.raises(ValueError, match="unseen"):
                await task

    async def work() -> None:
        loop.spawn(incarnation, await_it())
        await asyncio.sleep(1)
        incarnation.prune()

    if awaited:
        loop.run_until_complete(work())
        loop.check_tasks()
    else:
        with pytest.raises(UnhandledException, match="unseen"):
            loop.run_until_complete(work())
    loop.bury()


def test_a_callback_that_fails_fails_the_run() -> None:
    loop = VirtualLoop()

    async def work() -> None:
        loop.call_later(1, lambda: 1 / 0)
        await asyncio.sleep(2)

    with pytest.raises(UnhandledException, match="division"):
        loop.run_until_complete(work())
    loop.bury()


def test_the_dead_take_no_further_step() -> None:
    """As after kill -9: not even `finally` runs."""
    small = Small()
    steps: list[float] = []

    async def program(node: ClientNode) -> None:
        try:
            while True:
                steps.append(small.loop.time())
                await asyncio.sleep(1)
        finally:
            steps.append(-1)

    async def work() -> None:
        node = small.client("client", program)
        await asyncio.sleep(2.5)
        node.crash(restart_after=None)
        await asyncio.sleep(10)
        assert steps == [0, 1, 2]

    small.run(work())


def test_a_server_answers_and_survives_a_crash() -> None:
    small = Small()
    answers: list[str] = []

    async def program(node: ClientNode) -> None:
        client = raw(node)
        for number in range(50):
            reply = await client.insist(BROKER, hello(f"{number:02}"))
            answers.append(reply.server_name)

    async def work() -> None:
        small.server.start()
        await small.server.ready.wait()
        node = small.client("client", program)
        while not node.finished:
            await asyncio.sleep(0.1)
            small.server.crash(power_loss=True)
            await small.server.ready.wait()
        assert [f"{number:02}".encode() for number in range(50)] == [
            name for name in small.server.server.names if name != b"client"
        ]

    small.run(work())
    assert len(answers) == 50
    assert small.server.crash_count > 0


def test_a_failing_disk_ends_the_process_and_it_comes_back() -> None:
    small = Small()

    async def program(node: ClientNode) -> None:
        await raw(node).insist(BROKER, hello("a"))
        small.server.disk.fail_next_sync()
        await raw(node).insist(BROKER, hello("b"))

    small.run_program(program)
    assert small.server.fatal_count == 1


def test_frames_arrive_in_order_until_the_link_breaks() -> None:
    small = Small(seed=3)
    arrived: list[int] = []
    closed: list[float] = []

    async def program(node: ClientNode) -> None:
        link = await node.transport().connect(
            "server",
            BROKER,
            lambda frame: arrived.extend(one.request_id for one in frame.commands),
            lambda: closed.append(small.loop.time()),
        )
        for number in range(100):
            link.write(framed(command(hello("x"), number)))
        await asyncio.sleep(0.002)
        small.network.break_link(small.network.links()[0])
        await asyncio.sleep(5)

    small.run_program(program)
    assert 0 < len(arrived) < 100
    assert arrived == list(range(len(arrived)))
    assert len(closed) == 1


def test_a_half_open_link_is_silent() -> None:
    small = Small()

    async def program(node: ClientNode) -> None:
        client = raw(node)
        session = await client.session(BROKER)
        session_link = small.network.links()[0]
        session_link.go_half_open(both=True)
        with pytest.raises(NoAnswer):
            await session.ask(hello("x"))
        assert not session.closed
        await client.insist(BROKER, hello("y"))

    small.run_program(program)


@pytest.mark.parametrize("leaver", ["client", "server"])
def test_who_was_not_heard_hanging_up_is_noticed_when_the_silence_ends(leaver: str) -> None:
    """Short seed 28391: a client asked on such a link for seconds after nothing was wrong."""
    small = Small()
    told: list[str] = []

    async def program(node: ClientNode) -> None:
        link = await node.transport().connect(
            "server", BROKER, lambda frame: None, lambda: told.append("client")
        )
        link.on_left = lambda: told.append("server")
        link.go_half_open(both=True)
        if leaver == "client":
            link.close()
        else:
            link.end()
        await asyncio.sleep(1.0)
        assert told == [leaver]
        link.break_off()
        await asyncio.sleep(0.1)
        assert sorted(told) == ["client", "server"]
        # Each hears of it once.
        await asyncio.sleep(50.0)
        assert len(told) == 2

    small.run_program(program)


@pytest.mark.parametrize("heals", [True, False])
def test_what_a_partition_holds_up_arrives_when_the_faults_end(heals: bool) -> None:
    """Short seed 7165: a coordinator heard no answer for seconds after the faults were over."""
    small = Small()
    arrived: list[int] = []

    async def program(node: ClientNode) -> None:
        link = await node.transport().connect(
            "server",
            BROKER,
            lambda frame: arrived.extend(one.request_id for one in frame.commands),
            lambda: None,
        )
        link.write(framed(command(hello("x"), 1)))
        await asyncio.sleep(0.1)
        assert arrived == [1]
        # The link itself goes on; nothing comes through.
        with replaced(small.network.random, "random", lambda: 1.0):
            small.network.partition("client", "server", 25.0)
        for number in (2, 3):
            link.write(framed(command(hello("x"), number)))
        await asyncio.sleep(0.5)
        assert arrived == [1]
        if heals:
            small.network.heal()
            link.write(framed(command(hello("x"), 4)))
        await asyncio.sleep(0.5)
        assert arrived == ([1, 2, 3, 4] if heals else [1])

    small.run_program(program)


def test_a_short_cut_does_not_end_a_long_one() -> None:
    small = Small()
    arrived: list[int] = []

    async def program(node: ClientNode) -> None:
        link = await node.transport().connect(
            "server",
            BROKER,
            lambda frame: arrived.extend(one.request_id for one in frame.commands),
            lambda: None,
        )
        for seconds in (25.0, 1.0):
            small.network.hold_up("client", "server", seconds)
        link.write(framed(command(hello("x"), 1)))
        await asyncio.sleep(24.0)
        assert arrived == []
        await asyncio.sleep(2.0)
        assert arrived == [1]

    small.run_program(program)


def test_a_client_that_hangs_up_has_lost_its_link_also_if_that_is_broken() -> None:
    """Short seed 2757: an abort waited for nothing on such a link, and was said not to wait."""
    small = Small()
    lost: list[int] = []

    class Listener:
        on_lost = staticmethod(lost.append)

        def on_asked(self, asked: Asked) -> None:
            pass

    small.network.client_wiretap = ClientWiretaps(small.loop.time, Listener())

    async def program(node: ClientNode) -> None:
        link = await node.transport().connect("server", BROKER, lambda frame: None, lambda: None)
        link.write(framed(command(hello(magnetar.ClientConfig().client_name), 1)))
        link.break_off()
        # The client knows nothing of it: it still waits for answers.
        assert lost == []
        link.close()
        assert lost == [link.number]
        await asyncio.sleep(5)
        assert lost == [link.number]

    small.run_program(program)


def test_the_same_seed_gives_the_same_trace() -> None:
    def digest(seed: int) -> str:
        small = Small(seed)

        async def program(node: ClientNode) -> None:
            client = raw(node)
            for number in range(30):
                await client.insist(BROKER, hello(str(number)))

        async def work() -> None:
            small.server.start()
            await small.server.ready.wait()
            nodes = [small.client(f"client-{number}", program) for number in range(3)]
            while not all(node.finished for node in nodes):
                await asyncio.sleep(0.05)
                for link in small.network.links()[:1]:
                    small.network.break_link(link)

        small.run(work())
        return small.trace.digest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
