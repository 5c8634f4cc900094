"""Commands that are answered late are logged, without flooding the log."""

from __future__ import annotations

import asyncio

import pytest
from tests.core.envelope import framed
from tests.core.fakes import FakeServer
from tests.core.test_grpc import raw_call
from tests.waiting import turns

from magnetar.testing.envelope import command
from magnetar_core.config import ListenConfig
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.process.observability import JsonLines
from magnetar_core.server.commands import CommandSession, Conversation, Reply, each
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.wire import service_pb2, topic_pb2


class Time:
    def __init__(self) -> None:
        self.now_ms = 5_000.0

    def __call__(self) -> float:
        return self.now_ms


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.endswith("slow_operations")]


def test_what_takes_longer_than_the_limit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    slow = SlowOperations(100, time)
    for took_ms in (100, 101):
        begun_ms = slow.begun()
        time.now_ms += took_ms
        slow.answered("send", "ipv4:10.0.0.7", begun_ms)
    (line,) = lines(caplog)
    assert "send of ipv4:10.0.0.7 was answered after 101 ms" in line
    (record,) = caplog.records
    assert '"operation": "send"' in JsonLines().format(record)
    assert '"duration_ms": "101"' in JsonLines().format(record)


def test_a_kind_has_a_line_a_second_which_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    slow = SlowOperations(100, time)
    for _ in range(50):
        slow.answered("send", "", time.now_ms - 200)
    slow.answered("ack", "", time.now_ms - 200)
    assert [line.split()[1] for line in lines(caplog)] == ["send", "ack"]
    time.now_ms += 999
    slow.answered("send", "", time.now_ms - 200)
    assert len(lines(caplog)) == 2
    time.now_ms += 1
    slow.answered("send", "", time.now_ms - 200)
    assert lines(caplog)[2].endswith("50 more of its kind since the last line")


def test_with_zero_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    slow = SlowOperations(0, time)
    begun_ms = slow.begun()
    time.now_ms += 1_000_000
    slow.answered("send", "", begun_ms)
    assert not lines(caplog)


def test_who_waits_for_news_is_not_slow(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    SlowOperations(100, time).answered("follow_directory", "", time.now_ms - 60_000)
    assert not lines(caplog)


@pytest.mark.parametrize("refused", [False, True])
def test_a_conversation_tells_when_it_is_answered(
    refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply that was parked is answered when it leaves, and a refusal is an answer."""

    async def ask() -> None:
        time, parked = Time(), []

        def handler(_: object, reply: Reply) -> None:
            parked.append(reply)

        def refuse(error: MagnetarError, reply: Reply) -> None:
            reply.fail(error)

        conversation = Conversation(
            write=lambda frame: None,
            origin="ipv4:10.0.0.7",
            slow_operations=SlowOperations(100, time),
        )
        session = CommandSession({"lookup": each(handler)}, conversation, refuse)
        lookup = command(topic_pb2.CommandLookup(topic="t"), 7)
        session.on_frame(service_pb2.Frame(commands=[lookup]))
        time.now_ms += 300
        assert not lines(caplog)
        if refused:
            parked[0].fail(InvalidArgument("no"))
        else:
            parked[0].send(topic_pb2.CommandLookupResponse())
        await turns()

    asyncio.run(ask())
    (line,) = lines(caplog)
    assert "lookup of ipv4:10.0.0.7 was answered after 300 ms" in line


@pytest.mark.parametrize("form", ["stream", "unary"])
def test_a_server_logs_in_both_forms(form: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its answer waits until the loop's clock has gone beyond the limit."""

    async def scenario() -> None:
        import grpc.aio

        fake = FakeServer()
        loop = asyncio.get_running_loop()

        def late(_: object, reply: Reply) -> None:
            loop.call_later(0.02, reply.send, topic_pb2.CommandLookupResponse())

        fake.handlers = {**fake.handlers, "lookup": each(late)}
        server = GrpcServer("Broker", ListenConfig(stop_grace_ms=100, slow_operation_ms=10))
        await server.open()
        await server.serve(fake)
        transport, answered = GrpcTransport(), asyncio.Event()
        try:
            async with asyncio.timeout(10):
                if form == "unary":
                    async with grpc.aio.insecure_channel(server.address) as channel:
                        await raw_call(channel, "/magnetar.v1.Broker/Lookup")(
                            topic_pb2.CommandLookup(topic="t").SerializeToString()
                        )
                else:
                    link = await transport.connect(
                        server.address, "Broker", lambda frame: answered.set(), lambda: None
                    )
                    lookup = command(topic_pb2.CommandLookup(topic="t"), 7)
                    link.write(framed(lookup))
                    await answered.wait()
        finally:
            await transport.close()
            await server.close()

    asyncio.run(scenario())
    (line,) = lines(caplog)
    assert "lookup of ipv4:127.0.0.1" in line
