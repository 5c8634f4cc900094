"""Doors of a server whose shards come and go, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import pytest
from tests.core.envelope import framed, parsed
from tests.core.fakes import FakeServer
from tests.core.test_grpc import LIST_TOPICS, health, raw_call
from tests.waiting import until

from magnetar.testing.envelope import command
from magnetar_core.config import ListenConfig
from magnetar_core.errors import LogUnavailable, PartitionMoved
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.link.grpc_transport import GrpcLink, GrpcTransport
from magnetar_core.membership.shard_address import SHARD_KEY, ShardPlace
from magnetar_core.server import doors as doors_module
from magnetar_core.server.commands import Conversation
from magnetar_core.server.doors import Door, Doors
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.server.leased import LeasedCommands, LeasedTransport
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, topic_pb2

THREE = ShardPlace(3, 17)
FIVE = ShardPlace(5, 18)


class Talk:
    """A conversation, and what came of it."""

    link: GrpcLink

    def __init__(self) -> None:
        self.received: list[service_pb2.Command] = []
        self.closed = asyncio.Event()
        self._arrival = asyncio.Event()

    async def received_at_least(self, count: int) -> list[service_pb2.Command]:
        while len(self.received) < count:
            self._arrival.clear()
            await self._arrival.wait()
        return self.received

    async def ask(self, name: str) -> str:
        """Greet the server; the answer says the name that was given."""
        count = len(self.received)
        self.greet(name)
        reply = (await self.received_at_least(count + 1))[-1]
        return str(reply.hello_response.server_name)

    def greet(self, name: str) -> None:
        hello = common_pb2.CommandHello(client_name=name)
        self.link.write(framed(command(hello, 1)))

    def on_frame(self, frame: Carried) -> None:
        assert not self.closed.is_set()
        self.received.extend(frame.commands)
        self._arrival.set()

    def on_closed(self) -> None:
        self.closed.set()


class SeenDoors(Doors):
    """Doors, and which of them somebody has come to."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[ShardPlace | None] = []

    async def enter(self, place: ShardPlace | None) -> Door:
        self.entered.append(place)
        return await super().enter(place)


class World:
    """A server of shards, and clients."""

    def __init__(self) -> None:
        self.doors = SeenDoors()
        self.server = GrpcServer("Broker", ListenConfig(stop_grace_ms=100), self.doors)
        self.own = FakeServer()
        self.transport = GrpcTransport()

    async def connect(self, place: ShardPlace | None) -> Talk:
        talk = Talk()
        address = self.server.address
        talk.link = await self.transport.connect(
            address if place is None else f"{address}#{place}",
            "Broker",
            talk.on_frame,
            talk.on_closed,
        )
        return talk

    def has(self, place: ShardPlace) -> FakeServer:
        """Open a shard."""
        fake = FakeServer()
        self.doors.announce(place)
        self.doors.open(place, fake)
        return fake

    async def list_topics(self, shard: str | None) -> list[str]:
        metadata = ((SHARD_KEY, shard),) if shard is not None else ()
        async with grpc.aio.insecure_channel(self.server.address) as channel:
            data = await raw_call(channel, LIST_TOPICS)(b"", metadata=metadata)
        return [one.topic for one in topic_pb2.CommandListTopicsResponse.FromString(data).topics]

    async def list_topics_error(self, shard: str | None) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.list_topics(shard)
        return caught.value.code(), caught.value.details() or ""


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        await world.server.open()
        await world.server.serve(world.own)
        try:
            async with asyncio.timeout(10):
                await scenario(world)
        finally:
            await world.transport.close()
            await world.server.close()

    asyncio.run(run())


def test_a_conversation_reaches_the_shard_that_it_names() -> None:
    async def scenario(world: World) -> None:
        three, five = world.has(THREE), world.has(FIVE)
        first, second = await world.connect(THREE), await world.connect(FIVE)
        assert await first.ask("a") == "a"
        assert await second.ask("b") == "b"
        assert (len(three.sessions), len(five.sessions), len(world.own.sessions)) == (1, 1, 0)

    play(scenario)


def test_whoever_names_no_shard_gets_one_that_is_ready_or_else_the_server() -> None:
    async def scenario(world: World) -> None:
        await world.connect(None)
        world.doors.announce(THREE)
        await world.connect(None)
        assert len(world.own.sessions) == 2
        five = world.has(FIVE)
        await world.connect(None)
        assert len(five.sessions) == 1
        assert await world.list_topics(None) == ["orders"]
        assert await health(world.server.address, "") == 1

    play(scenario)


@pytest.mark.parametrize("place", [ShardPlace(3, 16), ShardPlace(3, 18), ShardPlace(4, 17)])
def test_another_epoch_and_an_unknown_shard_are_refused_at_once(place: ShardPlace) -> None:
    async def scenario(world: World) -> None:
        world.has(THREE)
        with pytest.raises(LinkClosed, match="ask any server where it is now"):
            await world.connect(place)
        assert await world.list_topics("3.17") == ["orders"]
        code, details = await world.list_topics_error(str(place))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "ask any server" in details

    play(scenario)


def test_a_server_that_keeps_one_shard_for_good_has_no_other() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(LinkClosed, match="does not have shard 3"):
            await world.connect(THREE)
        await world.connect(None)

    play(scenario)


def test_a_conversation_waits_while_its_shard_is_being_opened() -> None:
    async def scenario(world: World) -> None:
        world.doors.announce(THREE)
        connecting = asyncio.create_task(world.connect(THREE))
        listing = asyncio.create_task(world.list_topics("3.17"))
        other = await world.connect(None)
        assert await other.ask("still there") == "still there"
        assert not connecting.done()
        assert not listing.done()
        fake = FakeServer()
        world.doors.open(THREE, fake)
        talk = await connecting
        assert await talk.ask("a") == "a"
        assert await listing == ["orders"]
        assert len(fake.sessions) == 1

    play(scenario)


def test_it_waits_no_more_when_the_opening_has_failed() -> None:
    async def scenario(world: World) -> None:
        world.doors.announce(THREE)
        connecting = asyncio.create_task(world.connect(THREE))
        other = await world.connect(None)
        await other.ask("others are served meanwhile")
        await world.doors.shut(THREE, gracefully=True)
        with pytest.raises(LinkClosed, match="does not have shard 3 in epoch 17"):
            await connecting

    play(scenario)


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors_module, "OPENING_WAIT_MS_MAX", 20)

    async def scenario() -> None:
        doors = Doors()
        doors.announce(THREE)
        async with asyncio.timeout(10):
            with pytest.raises(LogUnavailable, match="still being opened"):
                await doors.enter(THREE)

    asyncio.run(scenario())


def test_a_server_that_stops_lets_nobody_wait() -> None:
    async def scenario(world: World) -> None:
        world.doors.announce(THREE)
        connecting = asyncio.create_task(world.connect(THREE))
        other = await world.connect(None)
        await other.ask("a")
        await until(lambda: THREE in world.doors.entered)
        await world.server.close()
        with pytest.raises(LinkClosed, match="stopping"):
            await connecting
        with pytest.raises(LogUnavailable):
            await world.doors.enter(None)

    play(scenario)


def test_a_shard_that_was_shut_is_not_opened_by_who_was_late() -> None:
    async def scenario() -> None:
        doors = Doors()
        doors.announce(THREE)
        await doors.shut(THREE, gracefully=False)
        with pytest.raises(BrokenInvariant):
            doors.open(THREE, FakeServer())
        with pytest.raises(PartitionMoved):
            await doors.enter(THREE)

    asyncio.run(scenario())


def test_shutting_ends_the_conversations_of_that_shard_alone() -> None:
    async def scenario(world: World) -> None:
        three = world.has(THREE)
        world.has(FIVE)
        first, second = await world.connect(THREE), await world.connect(FIVE)
        await world.doors.shut(THREE, gracefully=True)
        assert three.sessions[0].closed
        await first.closed.wait()
        assert await second.ask("b") == "b"
        with pytest.raises(LinkClosed):
            await world.connect(THREE)
        # Its next ownership has another epoch.
        world.has(ShardPlace(3, 19))
        await world.connect(ShardPlace(3, 19))

    play(scenario)


def test_what_is_answered_leaves_before_a_graceful_end_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        three = world.has(THREE)
        talk = await world.connect(THREE)
        await talk.ask("a")
        (session,) = three.sessions
        for number in range(1_000):
            session.push(common_pb2.CommandHelloResponse(server_name=str(number)))
        session._writer.flush()
        await world.doors.shut(THREE, gracefully=True)
        await talk.closed.wait()
        assert len(talk.received) == 1_001

    play(scenario)


def test_silence_ends_conversations_and_keeps_the_doors() -> None:
    async def scenario(world: World) -> None:
        world.has(THREE)
        world.has(FIVE)
        first, second = await world.connect(THREE), await world.connect(FIVE)
        world.doors.mute(THREE)
        await first.closed.wait()
        assert await second.ask("b") == "b"
        third = await world.connect(THREE)
        world.doors.mute()
        await second.closed.wait()
        await third.closed.wait()
        assert await (await world.connect(THREE)).ask("a") == "a"

    play(scenario)


def test_an_end_at_once_sends_nothing_any_more() -> None:
    async def scenario(world: World) -> None:
        three = world.has(THREE)
        talk = await world.connect(THREE)
        await talk.ask("a")
        (session,) = three.sessions
        session.push(common_pb2.CommandHelloResponse(server_name="late"))
        session._writer.flush()
        await world.doors.shut(THREE, gracefully=False)
        session.push(common_pb2.CommandHelloResponse(server_name="later"))
        await talk.closed.wait()
        assert len(talk.received) == 1

    play(scenario)


def test_a_client_that_does_not_read_does_not_hold_the_door_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doors_module, "FINISHING_MS_MAX", 50)

    async def scenario(world: World) -> None:
        three = world.has(THREE)
        talk = await world.connect(THREE)
        await talk.ask("a")
        reading = asyncio.Event()

        async def hold(_: service_pb2.Frame) -> None:
            await reading.wait()

        monkeypatch.setattr(talk.link, "_hand_over", hold)
        flow = broker_pb2.CommandFlow(permits=1_000)
        talk.link.write(framed(command(flow, 2)))
        await until(lambda: not three.sessions[0].writable)
        await world.doors.shut(THREE, gracefully=True)
        assert three.sessions[0].closed
        reading.set()

    play(scenario)


def test_who_loses_a_shard_while_handing_it_over_ends_at_once() -> None:
    """The lease ends while the last answers are on their way."""

    class Visitor:
        def __init__(self, door: Door) -> None:
            self._door = door
            self.heard: list[str] = []

        def finish(self) -> None:
            self.heard.append("finish")

        def end(self) -> None:
            self.heard.append("end")
            self._door.leave(self)

    async def scenario() -> None:
        doors = Doors()
        doors.announce(THREE)
        doors.open(THREE, FakeServer())
        door = await doors.enter(THREE)
        visitor = Visitor(door)
        door.come(visitor)
        handing_over = asyncio.create_task(doors.shut(THREE, gracefully=True))
        await until(lambda: visitor.heard == ["finish"])
        assert not handing_over.done()
        await doors.shut(THREE, gracefully=False)
        assert visitor.heard == ["finish", "end"]
        await handing_over
        await doors.shut(THREE, gracefully=False)

    asyncio.run(scenario())


def test_a_unary_call_ends_with_its_shard() -> None:
    async def scenario(world: World) -> None:
        three = world.has(THREE)
        three.held = []
        async with grpc.aio.insecure_channel(world.server.address) as channel:
            method = raw_call(channel, "/magnetar.v1.Broker/Read")
            request = broker_pb2.CommandRead(bytes_max=1).SerializeToString()
            call = method(request, metadata=((SHARD_KEY, "3.17"),))
            other = await world.connect(None)
            while not three.held:
                await other.ask("a")
            await world.doors.shut(THREE, gracefully=False)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            # Its answer comes too late, and harms nobody.
            three.held.pop()()

    play(scenario)


def test_a_unary_call_that_waited_for_room_does_not_reach_a_shard_that_is_shut() -> None:
    size = 16 << 20

    async def scenario(world: World) -> None:
        three = world.has(THREE)
        three.held = []
        async with grpc.aio.insecure_channel(world.server.address) as channel:
            method = raw_call(channel, "/magnetar.v1.Broker/Read")
            request = broker_pb2.CommandRead(bytes_max=size).SerializeToString()
            calls = [method(request, metadata=((SHARD_KEY, "3.17"),)) for _ in range(2)]
            ended = asyncio.gather(*calls, return_exceptions=True)
            await until(lambda: len((world.doors._doors[THREE])._visits) == 2)
            assert three.made_bytes == size
            await world.doors.shut(THREE, gracefully=False)
            for error in await ended:
                assert isinstance(error, grpc.aio.AioRpcError)
                assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert three.made_bytes == size

    play(scenario)


def test_a_place_that_is_none_is_an_invalid_argument() -> None:
    async def scenario(world: World) -> None:
        code, details = await world.list_topics_error("three")
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "SHARD.EPOCH" in details
        with pytest.raises(LinkClosed, match="is not an address"):
            await world.transport.connect(
                f"{world.server.address}#3", "Broker", lambda _: None, lambda: None
            )

    play(scenario)


def test_nobody_is_asked_for_a_shard_that_nobody_has() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(LinkClosed, match="shard 3"):
            await world.transport.connect("#3.0", "Broker", lambda _: None, lambda: None)

    play(scenario)


def test_all_conversations_are_told_of_other_owners() -> None:
    async def scenario(world: World) -> None:
        world.has(THREE)
        talks = [await world.connect(THREE), await world.connect(THREE)]
        for talk in talks:
            await talk.ask("a")
        world.server.push(common_pb2.CommandOwnersChanged())
        for talk in talks:
            assert (await talk.received_at_least(2))[-1].HasField("owners_changed")

    play(scenario)


class Lease:
    """Ends when a test says so."""

    lasts = True

    def may_speak(self) -> bool:
        return self.lasts


def test_nothing_is_said_after_the_lease() -> None:
    async def scenario(world: World) -> None:
        lease, fake = Lease(), FakeServer()
        world.doors.announce(THREE)
        world.doors.open(THREE, LeasedCommands(fake, lease.may_speak))
        talk = await world.connect(THREE)
        assert await talk.ask("a") == "a"
        assert await world.list_topics("3.17") == ["orders"]
        lease.lasts = False
        talk.greet("b")
        await talk.closed.wait()
        assert len(talk.received) == 1
        assert fake.hello_count == 2
        with pytest.raises(LinkClosed, match="lease"):
            await world.connect(THREE)
        code, details = await world.list_topics_error("3.17")
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "lease" in details

    play(scenario)


@pytest.mark.parametrize("method", ["Lookup", "Read"])
def test_a_refusal_is_not_said_after_the_lease_either(method: str) -> None:
    async def scenario(world: World) -> None:
        lease, fake = Lease(), FakeServer()
        world.doors.announce(THREE)
        world.doors.open(THREE, LeasedCommands(fake, lease.may_speak))
        lease.lasts = False
        async with grpc.aio.insecure_channel(world.server.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw_call(channel, f"/magnetar.v1.Broker/{method}")(b"")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    play(scenario)


def test_a_conversation_that_missed_a_frame_stays_silent_when_the_lease_comes_back() -> None:
    async def scenario() -> None:
        lease, fake = Lease(), FakeServer()
        frames: list[service_pb2.Frame] = []
        ends: list[bool] = []
        conversation = Conversation(write=parsed(frames.append), end=lambda: ends.append(True))
        session = LeasedCommands(fake, lease.may_speak).accept(conversation)
        body = common_pb2.CommandHelloResponse(server_name="a")
        for lasts in (True, False, False, True):
            lease.lasts = lasts
            session.push(body)
            session._writer.flush()
        assert len(frames) == 1
        assert len(ends) == 1

    asyncio.run(scenario())


def test_questions_to_other_servers_end_with_the_lease() -> None:
    async def scenario(world: World) -> None:
        three = world.has(THREE)
        lease = Lease()
        transport = LeasedTransport(world.transport, lease.may_speak)
        talk = Talk()
        link = await transport.connect(
            f"{world.server.address}#{THREE}", "Broker", talk.on_frame, talk.on_closed
        )
        hello = common_pb2.CommandHello(client_name="a")
        link.write(framed(command(hello, 1)))
        await link.drain()
        await talk.received_at_least(1)
        lease.lasts = False
        link.write(framed(command(hello, 2)))
        lease.lasts = True
        link.write(framed(command(hello, 3)))
        await talk.closed.wait()
        assert three.hello_count == 1
        lease.lasts = False
        with pytest.raises(LinkClosed, match="lease"):
            await transport.connect(world.server.address, "Broker", lambda _: None, lambda: None)

    play(scenario)
