"""Answers in columns at the client's end of a link."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest
from tests import virtual_time
from tests.client.fakes import FAST, FakeCluster
from tests.virtual_loop import VirtualClock
from tests.waiting import turns

from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession
from magnetar.testing.envelope import command
from magnetar_core.ids import MessageId, PartitionName
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.transport.columns.column import ROWS_MIN
from magnetar_core.transport.columns.sends import Send, Sent
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2

SEND = Send(PartitionName("t", 0, 1), 1, 0, 1, b"batch")
COUNT = ROWS_MIN


class Conversation:
    """A link with sends under way, numbered from 2; the handshake was the first request."""

    def __init__(self) -> None:
        self.written: list[service_pb2.Frame] = []
        self.is_closed = False
        self.results: dict[int, Any] = {}
        runtime = Runtime(FakeCluster().transport(), VirtualClock(), Random(7), FAST)
        self.session = LinkSession("broker:1", runtime, lambda *_: None)

    async def begin(self) -> None:
        handshake = asyncio.ensure_future(self.session.handshake(self))
        await turns()
        hello = common_pb2.CommandHelloResponse(protocol_version=PROTOCOL_VERSION)
        self.hear(command(hello, 1))
        await handshake
        for number in range(2, 2 + COUNT):
            self.session.request(SEND, partial(self.results.__setitem__, number))
        await turns()
        (sends,) = self.written[-1].commands
        assert list(sends.sends.request_ids) == list(range(2, 2 + COUNT))

    def hear(self, *commands: service_pb2.Command) -> None:
        self.session.on_frame(service_pb2.Frame(commands=commands))

    def write(self, frame: bytes) -> None:
        self.written.append(service_pb2.Frame.FromString(frame))

    async def drain(self) -> None:
        return

    def close(self) -> None:
        self.is_closed = True


def answers(*request_ids: int, **columns: Any) -> service_pb2.Command:
    return command(broker_pb2.CommandSendsResponse(request_ids=request_ids, **columns))


def test_answers_come_in_columns_and_alone() -> None:
    async def test() -> None:
        one = Conversation()
        await one.begin()
        one.hear(answers(2, 3, 5, ledger_ids=[1, 1, 1], entry_ids=[7, 8, 9]))
        error = common_pb2.ServerError(code=common_pb2.SEQUENCE_GAP)
        place = common_pb2.MessageIdData(ledger_id=1, entry_id=10)
        alone = broker_pb2.CommandSendResponse(message_id=place, duplicate=True)
        assert one.results.keys() == {2, 3, 5}
        one.hear(command(error, 4), command(alone, 6))
        assert one.results[3] == Sent(MessageId(1, 8, 0))
        assert one.results[6] == Sent(MessageId(1, 10, 0), duplicate=True, settled=[])
        assert type(one.results[4]).__name__ == "SequenceGap"
        assert not one.is_closed
        assert one.results.keys() == {2, 3, 4, 5, 6}

    virtual_time.run(test())


@pytest.mark.parametrize(
    "wrong",
    [
        answers(2, 3, 3),
        answers(2, 3, 2 + COUNT),
        answers(2, 3, ledger_ids=[1]),
        command(broker_pb2.CommandAcksResponse(request_ids=[2], consumer_ids=[1])),
    ],
    ids=["twice", "one more", "unreadable", "another kind"],
)
def test_answers_that_do_not_fit_break_the_link_and_none_counts(
    wrong: service_pb2.Command,
) -> None:
    async def test() -> None:
        one = Conversation()
        await one.begin()
        one.hear(wrong)
        assert one.is_closed
        assert len(one.results) == COUNT
        assert all(isinstance(result, LinkClosed) for result in one.results.values())

    virtual_time.run(test())
