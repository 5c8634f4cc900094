"""Answers in columns at the client's end of a link."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from magnetar_core.ids import MessageId, PartitionName, TxnID
from magnetar_core.protocol_version import PROTOCOL_VERSION
from magnetar_core.transport.columns.end_txns import Ended, EndTxn
from magnetar_core.transport.columns.sends import SENDS, Send, Sent
from magnetar_core.transport.transport import LinkClosed
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, transaction_pb2

SEND = Send(PartitionName("t", 0, 1), 1, 0, 1, b"batch")
COUNT = SENDS.rows_min


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


# Answers to a message as a whole.

END = EndTxn(TxnID.of(0, 1, 2))


class Ending(Conversation):
    """A link with ends of transactions under way, which left in a message, numbered from 2."""

    async def begin(self) -> None:
        handshake = asyncio.ensure_future(self.session.handshake(self))
        await turns()
        hello = common_pb2.CommandHelloResponse(protocol_version=PROTOCOL_VERSION)
        self.hear(command(hello, 1))
        await handshake
        for number in range(2, 2 + COUNT):
            self.session.request(END, partial(self.results.__setitem__, number))
        await turns()
        (ends,) = self.written[-1].commands
        assert list(ends.end_txns.request_ids) == list(range(2, 2 + COUNT))


def ended(first: int, count: int, left_out: Sequence[int], answered: int) -> service_pb2.Command:
    txn_ids: dict[str, Any] = {"txn_most_bits": [1] * answered, "txn_least_bits": [2] * answered}
    return command(
        transaction_pb2.CommandEndTxnsResponse(
            first_request_id=first, count=count, left_out=left_out, stamp=9, **txn_ids
        )
    )


def test_all_but_those_that_are_left_out_are_answered() -> None:
    async def test() -> None:
        one = Ending()
        await one.begin()
        one.hear(ended(2, COUNT, [1, 3], COUNT - 2))
        assert one.results.keys() == {*range(2, 2 + COUNT)} - {3, 5}
        assert one.results[2] == Ended(TxnID(1, 2), common_pb2.COMMITTING, 9)
        error = common_pb2.ServerError(code=common_pb2.TXN_NOT_FOUND)
        alone = transaction_pb2.CommandEndTxnResponse(status=common_pb2.COMMITTED, stamp=7)
        one.hear(command(error, 3), command(alone, 5))
        assert type(one.results[3]).__name__ == "TxnNotFound"
        assert one.results[5] == Ended(None, common_pb2.COMMITTED, 7)
        assert not one.is_closed

    virtual_time.run(test())


@pytest.mark.parametrize(
    "wrong",
    [
        ended(2, COUNT + 1, [], COUNT + 1),
        ended(2, COUNT - 1, [], COUNT - 1),
        ended(2, COUNT, [], COUNT - 1),
        ended(2, COUNT, [1], COUNT),
        ended(3, COUNT, [], COUNT),
        ended(2, COUNT, [COUNT], COUNT - 1),
        ended(2, COUNT, [3, 1], COUNT - 2),
        command(
            transaction_pb2.CommandNewTxnsResponse(
                first_request_id=2,
                count=COUNT,
                txn_most_bits=[1] * COUNT,
                txn_least_bits=[2] * COUNT,
                txn_timeouts_ms=[3] * COUNT,
            )
        ),
    ],
    ids=[
        "one more",
        "one less",
        "one too few",
        "one too many",
        "another message",
        "not there",
        "not in order",
        "another kind",
    ],
)
def test_an_answer_to_another_number_breaks_the_link_and_nothing_is_known(
    wrong: service_pb2.Command,
) -> None:
    async def test() -> None:
        one = Ending()
        await one.begin()
        one.hear(wrong)
        assert one.is_closed
        assert len(one.results) == COUNT
        assert all(isinstance(result, LinkClosed) for result in one.results.values())

    virtual_time.run(test())


def test_a_message_is_answered_once() -> None:
    async def test() -> None:
        one = Ending()
        await one.begin()
        one.hear(ended(2, COUNT, [1], COUNT - 1))
        assert len(one.results) == COUNT - 1
        one.hear(ended(2, COUNT, list(range(COUNT)), 0))
        assert one.is_closed
        assert isinstance(one.results[3], LinkClosed)

    virtual_time.run(test())
