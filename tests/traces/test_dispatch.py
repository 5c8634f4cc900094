"""Spans of single commands at a server, by the stream and by unary calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from tests.core.fakes import FakeServer
from tests.traces.world import Spans

from magnetar_core.config import ListenConfig
from magnetar_core.errors import MagnetarError, TopicNotFound
from magnetar_core.server.commands import CommandSession, Conversation, Reply, each, each_of
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.traces.descriptions import TEXT_LENGTH_MAX, describe
from magnetar_core.traces.spans import ServerTraces
from magnetar_core.transport.columns.kinds import as_row
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, topic_pb2, transaction_pb2

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADER = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
UNSAMPLED = HEADER[:-1] + b"0"
SEND = service_pb2.Command(
    request_id=1,
    send=broker_pb2.CommandSend(partition=common_pb2.Partition(topic="t", partition=3)),
)


class Talk:
    """A conversation with a server whose handler keeps the reply."""

    def __init__(
        self, traces: ServerTraces | None, slow_operations: SlowOperations | None = None
    ) -> None:
        self.replies: list[Reply] = []
        self.session = CommandSession(
            dict.fromkeys(("send", "ack", "lookup"), each(self._handle)),
            Conversation(write=lambda frame: None, slow_operations=slow_operations, traces=traces),
            lambda error, reply: reply.fail(error),
        )

    def _handle(self, command: Any, reply: Reply) -> None:
        self.replies.append(reply)

    def take(self, command: service_pb2.Command, traceparent: bytes = b"") -> Reply:
        copy = service_pb2.Command()
        copy.CopyFrom(command)
        copy.traceparent = traceparent
        self.session.handle([copy])
        return self.replies[-1]


def converse(
    scenario: Callable[[Talk], None],
    traces: ServerTraces | None,
    slow_operations: SlowOperations | None = None,
) -> None:
    async def run() -> None:
        scenario(Talk(traces, slow_operations))

    asyncio.run(run())


def test_a_span_lasts_from_the_command_to_its_answer() -> None:
    spans = Spans()

    def scenario(talk: Talk) -> None:
        reply = talk.take(SEND, HEADER)
        assert reply.span is not None
        assert spans.all() == []
        # What stands between the server and a handler passes it on.
        assert reply.through(lambda answer: None).span is reply.span
        reply.send(broker_pb2.CommandSendResponse())
        (span,) = spans.all()
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}" == TRACE
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == "t"
        assert reply.span.traceparent.decode().split("-")[2] == f"{span.context.span_id:016x}"

    converse(scenario, spans.server("b-0"))


def test_a_refused_command_says_why() -> None:
    spans = Spans()

    def scenario(talk: Talk) -> None:
        talk.take(SEND, HEADER).fail(TopicNotFound("there is no such topic: secret"))
        (span,) = spans.all()
        assert span.attributes is not None
        assert span.attributes["error.type"] == "TOPIC_NOT_FOUND"
        # What errors say may name keys of messages.
        assert "secret" not in span.to_json()

    converse(scenario, spans.server("b-0"))


@pytest.mark.parametrize(
    ("sampler", "header", "recorded"),
    [
        (ALWAYS_ON, b"", True),
        (ALWAYS_ON, b"damaged \xff", True),
        (ALWAYS_ON, UNSAMPLED, False),
        (ALWAYS_OFF, b"", False),
        (ParentBased(ALWAYS_OFF), HEADER, True),
        (ParentBased(ALWAYS_OFF), b"damaged", False),
    ],
)
def test_the_head_decides(sampler: Sampler, header: bytes, recorded: bool) -> None:
    spans = Spans(sampler)

    def scenario(talk: Talk) -> None:
        reply = talk.take(SEND, header)
        assert (reply.span is not None) is recorded
        reply.send(broker_pb2.CommandSendResponse())
        assert len(spans.all()) == recorded

    converse(scenario, spans.server("b-0"))


def test_acks_and_lookups_begin_no_trace() -> None:
    spans = Spans()

    def scenario(talk: Talk) -> None:
        lookup = service_pb2.Command(request_id=1, lookup=topic_pb2.CommandLookup(topic="t"))
        ack = service_pb2.Command(request_id=1, ack=broker_pb2.CommandAck())
        assert talk.take(lookup, HEADER).span is None
        assert talk.take(ack).span is None
        assert talk.take(ack, HEADER).span is not None

    converse(scenario, spans.server("b-0"))


def test_without_traces_nothing_is_made() -> None:
    def scenario(talk: Talk) -> None:
        assert talk.take(SEND, HEADER).span is None

    converse(scenario, None)


def test_a_span_that_cannot_be_made_harms_no_command(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sampler):  # type: ignore[misc]
        def should_sample(self, *arguments: object, **more: object) -> Any:
            raise ArithmeticError("planted")

        def get_description(self) -> str:
            return "broken"

    spans = Spans(Broken())

    def scenario(talk: Talk) -> None:
        assert talk.take(SEND, HEADER).span is None

    converse(scenario, spans.server("b-0"))
    assert "could not be made" in caplog.text


@pytest.mark.parametrize("traced", [False, True])
def test_the_log_of_slow_commands_names_the_trace(
    traced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]

    def scenario(talk: Talk) -> None:
        reply = talk.take(SEND, HEADER)
        now[0] += 150.0
        reply.send(broker_pb2.CommandSendResponse())

    with caplog.at_level(logging.WARNING):
        traces = Spans().server("b-0") if traced else None
        converse(scenario, traces, SlowOperations(100, lambda: now[0]))
    (line,) = [one for one in caplog.records if "slow" in one.name]
    assert f"trace {TRACE}" in line.getMessage()
    assert line.__dict__["trace_id"] == TRACE


def test_a_long_name_is_shortened() -> None:
    name = "x" * 10_000
    command = broker_pb2.CommandSend(partition=common_pb2.Partition(topic=name))
    found = describe("send", command)
    assert found is not None
    assert len(found.name) < TEXT_LENGTH_MAX + 10
    assert all(len(str(one)) <= TEXT_LENGTH_MAX for one in found.attributes.values())


def test_every_described_command_is_described() -> None:
    """With nothing set, as a stranger may send it."""
    described = set()
    for field in service_pb2.Command.DESCRIPTOR.oneofs_by_name["body"].fields:
        body = getattr(service_pb2.Command(), field.name)
        found = describe(field.name, as_row(body))
        if found is not None:
            described.add(field.name)
            assert found.attributes["messaging.system.name"] == "magnetar"
    assert described == {
        "ack",
        "add_partition_to_txn",
        "add_subscription_to_txn",
        "end_txn",
        "end_txn_on_participants",
        "end_txn_on_partition",
        "end_txn_on_subscription",
        "init_producer",
        "new_txn",
        "publish",
        "send",
    }


def test_ends_say_whether_they_commit() -> None:
    for action, said in ((common_pb2.COMMIT, "commit"), (common_pb2.ABORT, "abort")):
        found = describe("end_txn", transaction_pb2.CommandEndTxn(txn_action=action))
        assert found is not None
        assert found.attributes["magnetar.txn.action"] == said


def test_a_unary_call_has_the_header_among_its_metadata() -> None:
    spans = Spans()

    async def call(address: str, metadata: tuple[tuple[str, str], ...]) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            method: Any = channel.unary_unary("/magnetar.v1.Broker/Send")
            try:
                await method(SEND.send.SerializeToString(), metadata=metadata, timeout=10)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.NOT_FOUND  # noqa: PT017

    async def run() -> None:
        server = GrpcServer("Broker", ListenConfig(stop_grace_ms=100), traces=spans.server("b-0"))
        await server.open()
        await server.serve(_Refusing())
        try:
            await call(server.address, (("traceparent", HEADER.decode()),))
            await call(server.address, ())
        finally:
            await server.close()

    asyncio.run(run())
    continued, begun = spans.all()
    assert continued.parent is not None
    assert f"{continued.context.trace_id:032x}" == TRACE
    assert begun.parent is None
    for one in (continued, begun):
        assert one.attributes is not None
        assert one.attributes["error.type"] == "TOPIC_NOT_FOUND"


class _Refusing(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.handlers = each_of({"send": self._refuse})

    def _refuse(self, command: Any, reply: Reply) -> None:
        error: MagnetarError = TopicNotFound("no such topic")
        raise error
