"""The gRPC server and transport over loopback, with a fake server behind them.

Each test is played three times: with frames that stay in gRPC, and with streams of their own on
both event loops.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar

import grpc
import grpc.aio
import pytest
import uvloop
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry, Counter
from tests.core.calls import failed_call
from tests.core.envelope import framed
from tests.core.fakes import FakeServer

from magnetar.testing.envelope import command
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.errors import InvalidArgument, TopicNotFound, from_wire
from magnetar_core.link.grpc_transport import GrpcLink, GrpcTransport
from magnetar_core.process.observability import MetricsEndpoint
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.transport.frames import COMMAND_BYTES_MAX, Carried
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, topic_pb2

RawCall = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
LIST_TOPICS = "/magnetar.v1.Broker/ListTopics"
LOOKUP = "/magnetar.v1.Broker/Lookup"


wants_streams: ContextVar[bool] = ContextVar("wants_streams")
new_loop: ContextVar[Callable[[], asyncio.AbstractEventLoop] | None] = ContextVar("new_loop")


@pytest.fixture(autouse=True, params=["grpc", "stream", "stream on uvloop"])
def _carrier(request: pytest.FixtureRequest) -> Iterator[None]:
    wants = wants_streams.set(request.param != "grpc")
    loop = new_loop.set(uvloop.new_event_loop if "uvloop" in request.param else None)
    yield
    wants_streams.reset(wants)
    new_loop.reset(loop)


class World:
    """A served fake, and a client of it."""

    def __init__(self, config: ListenConfig) -> None:
        self.fake = FakeServer()
        self.server = GrpcServer("Broker", config)
        self.transport = GrpcTransport(wants_streams=wants_streams.get())
        self.received: list[service_pb2.Command] = []
        self.arrival = asyncio.Event()
        self.closed = asyncio.Event()
        self.closed_count = 0

    async def connect(self, service: str = "Broker") -> GrpcLink:
        return await self.transport.connect(
            self.server.address, service, self._on_frame, self._on_closed
        )

    async def received_at_least(self, count: int) -> list[service_pb2.Command]:
        while len(self.received) < count:
            self.arrival.clear()
            await self.arrival.wait()
        return self.received

    def _on_frame(self, frame: Carried) -> None:
        assert not self.closed.is_set()
        self.received.extend(frame.commands)
        self.arrival.set()

    def _on_closed(self) -> None:
        self.closed_count += 1
        self.closed.set()


def raw_call(channel: grpc.aio.Channel, method: str) -> RawCall:
    """A method that is called with bytes, whatever they are."""
    call: RawCall = channel.unary_unary(method)
    return call


def play(
    scenario: Callable[[World], Awaitable[None]],
    config: ListenConfig | None = None,
    *,
    ready: bool = True,
) -> None:
    async def run() -> None:
        world = World(config or ListenConfig(stop_grace_ms=100))
        await world.server.open()
        if ready:
            await world.server.serve(world.fake)
        try:
            async with asyncio.timeout(10):
                await scenario(world)
        finally:
            await world.transport.close()
            await world.server.close()

    with asyncio.Runner(loop_factory=new_loop.get()) as runner:
        runner.run(run())


class Listener:
    """Hears how a server's conversation fares."""

    def __init__(self) -> None:
        self.writable: asyncio.Queue[bool] = asyncio.Queue()
        self.closed = asyncio.Event()

    def session_writable(self, writable: bool) -> None:
        self.writable.put_nowait(writable)

    def session_closed(self) -> None:
        self.closed.set()


def send(sequence_id: int, size: int = 10) -> service_pb2.Command:
    body = broker_pb2.CommandSend(sequence_id=sequence_id, batch=bytes(size))
    return command(body, sequence_id + 1)


def test_frames_are_answered_in_order() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        for sequence_id in range(500):
            link.write(framed(send(sequence_id)))
        await link.drain()
        replies = await world.received_at_least(500)
        assert [reply.request_id for reply in replies] == list(range(1, 501))
        assert [reply.send_response.message_id.entry_id for reply in replies] == list(range(500))

    play(scenario)


def test_drain_holds_a_fast_writer_back() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        for sequence_id in range(40):
            link.write(framed(send(sequence_id, 1 << 20)))
            await link.drain()
            assert link._outbox.byte_count < 6 << 20
        assert len(await world.received_at_least(40)) == 40

    play(scenario)


def test_what_a_handler_raises_goes_through_refuse() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        link.write(framed(command(topic_pb2.CommandLookup(topic="none"), 1)))
        (reply,) = await world.received_at_least(1)
        error = from_wire(reply.error)
        assert isinstance(error, TopicNotFound)
        assert error.details == {"topic": "none"}
        assert [type(one) for one in world.fake.refusals] == [TopicNotFound]

    play(scenario)


def test_close_is_told_to_both_ends_once() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        link.write(framed(send(0)))
        await world.received_at_least(1)
        (session,) = world.fake.sessions
        listener = Listener()
        session.listen(listener)
        link.close()
        link.close()
        assert not world.closed.is_set()
        await world.closed.wait()
        await listener.closed.wait()
        link.write(framed(send(1)))
        await link.drain()
        assert session.closed
        assert world.closed_count == 1

    play(scenario)


def test_a_link_closes_when_the_server_stops() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        link.write(framed(send(0)))
        await world.received_at_least(1)
        await world.server.close()
        await world.closed.wait()
        assert world.fake.sessions[0].closed
        with pytest.raises(LinkClosed, match="refused"):
            await world.connect()

    play(scenario)


def test_an_unused_port_is_refused_promptly_again_and_again() -> None:
    """gRPC's own backoff after the first failure would be a second, and grow."""

    async def scenario(world: World) -> None:
        await world.server.close()
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        for _ in range(5):
            with pytest.raises(LinkClosed, match="refused"):
                await world.connect()
        assert loop.time() - started_s < 1

    play(scenario)


def test_a_server_that_comes_back_is_reached_at_once() -> None:
    async def scenario(world: World) -> None:
        port = world.server.port
        await world.server.close()
        with pytest.raises(LinkClosed):
            await world.connect()
        world.server = GrpcServer("Broker", ListenConfig(port=port, stop_grace_ms=100))
        await world.server.open()
        await world.server.serve(world.fake)
        link = await world.connect()
        link.write(framed(send(0)))
        await world.received_at_least(1)

    play(scenario)


def test_a_wrong_service_is_refused() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(LinkClosed, match="cannot talk to"):
            await world.connect("TransactionCoordinator")

    play(scenario)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        link.write(framed(command(broker_pb2.CommandFlow(permits=400), 1)))
        await world.closed.wait()
        assert world.fake.sessions[0].closed
        assert len(world.received) < 400

    config = ListenConfig(
        session_push_bytes_max=1 << 20, session_queue_bytes_max=4 << 20, stop_grace_ms=100
    )
    play(scenario, config)


def test_a_server_is_told_how_much_its_client_leaves_unread() -> None:
    """A consumer of large messages was disconnected, again and again, for what was pushed to it."""

    async def scenario(world: World) -> None:
        link = await world.connect()
        link.write(framed(command(broker_pb2.CommandFlow(permits=1), 1)))
        await world.received_at_least(1)
        (session,) = world.fake.sessions
        listener = Listener()
        session.listen(listener)
        assert session.writable
        link.write(framed(command(broker_pb2.CommandFlow(permits=100), 2)))
        assert await listener.writable.get() is False
        await world.received_at_least(101)
        assert await listener.writable.get() is True
        assert session.writable
        assert listener.writable.empty()
        session.unlisten(listener)

    play(scenario, ListenConfig(session_push_bytes_max=1 << 20, stop_grace_ms=100))


def test_bytes_that_are_no_frame_end_the_conversation() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        link._outbox.put(b"\xff\xff\xff")
        await world.closed.wait()
        assert world.fake.sessions[0].closed

    play(scenario)


def test_columns_that_cannot_be_read_end_the_conversation() -> None:
    async def scenario(world: World) -> None:
        link = await world.connect()
        link.write(framed(command(broker_pb2.CommandSends(request_ids=[1, 2]))))
        await world.closed.wait()
        assert world.fake.sessions[0].closed

    play(scenario)


def test_unary_calls_reach_the_same_handlers() -> None:
    async def scenario(world: World) -> None:
        async with grpc.aio.insecure_channel(world.server.address) as channel:
            call = channel.unary_unary(
                LIST_TOPICS,
                topic_pb2.CommandListTopics.SerializeToString,
                topic_pb2.CommandListTopicsResponse.FromString,
            )
            reply = await call(topic_pb2.CommandListTopics())
            assert [one.topic for one in reply.topics] == ["orders"]

    play(scenario)


def test_unary_errors_have_a_status_and_a_typed_detail() -> None:
    async def scenario(world: World) -> None:
        with grpc.insecure_channel(world.server.address) as channel:
            call: grpc.UnaryUnaryMultiCallable[topic_pb2.CommandLookup, bytes] = (
                channel.unary_unary(LOOKUP, topic_pb2.CommandLookup.SerializeToString)
            )
            with pytest.raises(grpc.RpcError) as caught:
                await asyncio.to_thread(call, topic_pb2.CommandLookup(topic="none"))
        failed = failed_call(caught.value)
        assert failed.code() is grpc.StatusCode.NOT_FOUND
        status = rpc_status.from_call(failed)
        assert status is not None
        detail = common_pb2.ServerError()
        assert status.details[0].Unpack(detail)
        assert detail.code == common_pb2.TOPIC_NOT_FOUND
        assert dict(detail.details) == {"topic": "none"}
        assert detail.message == failed.details() == "no topic 'none'"

    play(scenario)


def test_every_method_of_both_services_is_served() -> None:
    """Whatever the descriptor names has a field in the envelope, or the server would not start."""
    for service in ("Broker", "TransactionCoordinator"):
        handlers = GrpcServerMethods(service)
        assert handlers == {
            method.name for method in service_pb2.DESCRIPTOR.services_by_name[service].methods
        }


def GrpcServerMethods(service: str) -> set[str]:
    async def names() -> set[str]:
        return set(GrpcServer(service, ListenConfig())._method_handlers())

    return asyncio.run(names())


async def health(address: str, service: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        return int((await call(health_pb2.HealthCheckRequest(service=service))).status)


def test_nothing_is_served_before_recovery_is_done() -> None:
    async def scenario(world: World) -> None:
        assert await health(world.server.address, "") == health_pb2.HealthCheckResponse.NOT_SERVING
        # Supervisors restart what does not live, and leave alone what is not ready.
        assert await health(world.server.address, "live") == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(LinkClosed, match="starting"):
            await world.connect()
        async with grpc.aio.insecure_channel(world.server.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw_call(channel, LIST_TOPICS)(b"")
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await world.server.serve(world.fake)
        for service in ("", "magnetar.v1.Broker"):
            assert (
                await health(world.server.address, service)
                == health_pb2.HealthCheckResponse.SERVING
            )
        await world.connect()

    play(scenario, ready=False)


def test_reflection_describes_the_service() -> None:
    def describe(address: str) -> tuple[set[str], set[str]]:
        with grpc.insecure_channel(address) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            found = DescriptorPool(database).FindServiceByName("magnetar.v1.Broker")
            return set(database.get_services()), set(found.methods_by_name)

    async def scenario(world: World) -> None:
        services, methods = await asyncio.to_thread(describe, world.server.address)
        assert {"magnetar.v1.Broker", "grpc.health.v1.Health"} <= services
        assert {"Exchange", "Publish", "Lookup"} <= methods

    play(scenario)


def test_a_port_in_use_is_an_error_that_says_so() -> None:
    async def scenario(world: World) -> None:
        second = GrpcServer("Broker", ListenConfig(port=world.server.port))
        with pytest.raises(InvalidConfig, match="choose another port"):
            await second.open()

    play(scenario)


def test_servers_that_were_not_opened_are_not_deallocated_while_they_run() -> None:
    """grpcio tells a debug log of such a server with a reference to what is about to be freed.

    pytest keeps records: a worker crashed. The texts are kept here, not the records.
    """
    told: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    async def scenario(world: World) -> None:
        GrpcServer("Broker", ListenConfig())
        with pytest.raises(InvalidConfig):
            await GrpcServer("Broker", ListenConfig(port=world.server.port)).open()
        with pytest.raises(InvalidConfig):
            await GrpcServer(
                "Broker", ListenConfig(tls_certificate_file="none", tls_key_file="none")
            ).open()

    grpc_log, listening = logging.getLogger("grpc._cython.cygrpc"), Listening(logging.DEBUG)
    level = grpc_log.level
    grpc_log.addHandler(listening)
    grpc_log.setLevel(logging.DEBUG)
    grpc_log.propagate = False
    try:
        gc.collect()
        told.clear()
        play(scenario)
        gc.collect()
    finally:
        grpc_log.removeHandler(listening)
        grpc_log.setLevel(level)
        grpc_log.propagate = True
    assert not [one for one in told if "__dealloc__" in one]


def test_metrics_are_served_on_loopback() -> None:
    registry = CollectorRegistry()
    Counter("commands", "Commands answered.", registry=registry).inc()
    endpoint = MetricsEndpoint(registry, host="127.0.0.1", port=0)
    try:
        with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=5) as reply:
            assert b"commands_total 1.0" in reply.read()
        port = int(endpoint.address.rpartition(":")[2])
        with pytest.raises(InvalidConfig, match="choose another port"):
            MetricsEndpoint(registry, host="127.0.0.1", port=port)
    finally:
        endpoint.close()


def test_a_frame_beyond_the_limit_ends_the_conversation_and_clients_are_told_the_limit() -> None:
    limit = 4 << 20

    async def scenario(world: World) -> None:
        link = await world.connect()
        assert world.fake.sessions[0].frame_bytes_max == limit
        link.write(framed(send(0, limit - 200)))
        await world.received_at_least(1)
        link.write(framed(send(1, limit + 1)))
        await world.closed.wait()

    play(scenario, ListenConfig(frame_bytes_max=limit, stop_grace_ms=100))


NOT_UTF_8 = b"\xff\xfe\xfd"


def test_text_that_is_not_utf_8_is_refused_and_nothing_else_is() -> None:
    """It ended the conversation, with all that was under way on it."""

    async def scenario(world: World) -> None:
        link = await world.connect()
        whole = framed(send(0), command(topic_pb2.CommandLookup(topic="abc"), 2), send(2))
        link._outbox.put(whole.replace(b"abc", NOT_UTF_8))
        first, second, third = sorted(
            await world.received_at_least(3), key=lambda one: one.request_id
        )
        assert first.HasField("send_response")
        assert second.request_id == 2
        assert isinstance(from_wire(second.error), InvalidArgument)
        assert third.HasField("send_response")
        assert not world.closed.is_set()

    play(scenario)


async def unary_error(
    world: World, request: bytes
) -> tuple[grpc.StatusCode, common_pb2.ServerError]:
    async with grpc.aio.insecure_channel(world.server.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await raw_call(channel, LOOKUP)(request)
    failed = caught.value
    detail = common_pb2.ServerError()
    for key, value in failed.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            assert status_pb2.Status.FromString(value).details[0].Unpack(detail)
    return failed.code(), detail


@pytest.mark.parametrize(
    "topic", [NOT_UTF_8, b"n" * 5_000, b"n" * (COMMAND_BYTES_MAX + 1), "\u2603".encode() * 5_000]
)
def test_a_unary_call_with_a_text_that_is_none_gets_invalid_argument(topic: bytes) -> None:
    """The text came back in the error, which then was more than a client takes of an error."""

    async def scenario(world: World) -> None:
        placeholder = topic_pb2.CommandLookup(topic="n" * len(topic)).SerializeToString()
        request = placeholder.replace(b"n" * len(topic), topic)
        code, detail = await unary_error(world, request)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert detail.code == common_pb2.INVALID_ARGUMENT

    play(scenario)


def test_an_error_of_many_words_arrives_as_that_error() -> None:
    async def scenario(world: World) -> None:
        name = "\u2603" * 900
        world.fake.details = {f"open_txn_{number}": name for number in range(9)}
        request = topic_pb2.CommandLookup(topic=name).SerializeToString()
        code, detail = await unary_error(world, request)
        assert code is grpc.StatusCode.NOT_FOUND
        assert detail.code == common_pb2.TOPIC_NOT_FOUND
        assert detail.message.startswith("no topic '\u2603")

    play(scenario)


def read(request_id: int, size: int) -> service_pb2.Command:
    return command(broker_pb2.CommandRead(bytes_max=size), request_id)


def test_a_client_that_does_not_read_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of them, with reads of 16 MiB each, took 730 MiB; everybody else waited for 19 s."""
    size, budget = 1 << 20, 4 << 20

    async def scenario(world: World) -> None:
        reading = asyncio.Event()
        link = await world.transport.connect(
            world.server.address, "Broker", lambda _: None, lambda: None
        )
        # Whoever reads nothing: frames are handed over one after the other.
        hand_over = link._hand_over

        async def hold(one: service_pb2.Frame) -> None:
            await reading.wait()
            await hand_over(one)

        monkeypatch.setattr(link, "_hand_over", hold)
        link.write(framed(*(read(number, size) for number in range(1, 201))))
        for number in range(201, 401):
            link.write(framed(read(number, size)))
        other = await world.connect()
        for number in range(50):
            other.write(framed(send(number)))
            await world.received_at_least(number + 1)
        made = world.fake.made_bytes
        # What gRPC itself holds for the client comes on top of the budget.
        assert size < made <= budget + (24 << 20)
        reading.set()
        while world.fake.made_bytes < 400 * size:
            other.write(framed(send(0)))
            before = len(world.received)
            await world.received_at_least(before + 1)

    config = ListenConfig(
        session_push_bytes_max=1 << 20, session_answer_bytes_max=budget, stop_grace_ms=100
    )
    play(scenario, config)


def test_small_answers_that_are_not_read_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    count, name, budget = 60_000, "n" * 900, 4 << 20

    async def scenario(world: World) -> None:
        link = await world.transport.connect(
            world.server.address, "Broker", lambda _: None, lambda: None
        )

        is_over = asyncio.Event()

        async def hold(_: service_pb2.Frame) -> None:
            await is_over.wait()

        monkeypatch.setattr(link, "_hand_over", hold)
        some = [command(common_pb2.CommandHello(client_name=name), number) for number in range(100)]
        for _ in range(count // 100):
            link.write(framed(*some))
        try:
            other = await world.connect()
            for number in range(300):
                other.write(framed(send(number)))
                await world.received_at_least(number + 1)
        finally:
            # The link cannot be closed before.
            is_over.set()
        assert 100 < world.fake.hello_count < (budget + (24 << 20)) // len(name)

    config = ListenConfig(
        session_push_bytes_max=1 << 20, session_answer_bytes_max=budget, stop_grace_ms=100
    )
    play(scenario, config)


def test_unary_calls_of_one_connection_share_a_budget() -> None:
    size, budget = 1 << 20, 4 << 20

    async def scenario(world: World) -> None:
        held: list[Callable[[], None]] = []
        world.fake.held = held
        # Each channel a connection of its own.
        options = (("grpc.use_local_subchannel_pool", 1),)
        request = broker_pb2.CommandRead(bytes_max=size).SerializeToString()

        async def calls(count: int) -> None:
            async with grpc.aio.insecure_channel(world.server.address, options=options) as channel:
                method = raw_call(channel, "/magnetar.v1.Broker/Read")
                await asyncio.gather(*(method(request) for _ in range(count)))

        async def other_answers(count: int) -> None:
            link = await world.connect()
            for number in range(count):
                before = len(world.received)
                link.write(framed(send(number)))
                await world.received_at_least(before + 1)

        many = asyncio.create_task(calls(20))
        while len(held) < budget // size:
            await other_answers(1)
        await other_answers(50)
        assert world.fake.made_bytes == budget
        few = asyncio.create_task(calls(2))
        while world.fake.made_bytes < budget + 2 * size:
            await other_answers(1)
        while not (many.done() and few.done()):
            for answer in [held.pop() for _ in range(len(held))]:
                answer()
            await other_answers(1)
        await asyncio.gather(many, few)
        assert world.fake.made_bytes == 22 * size

    config = ListenConfig(
        session_push_bytes_max=1 << 20, session_answer_bytes_max=budget, stop_grace_ms=100
    )
    play(scenario, config)
