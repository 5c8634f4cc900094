"""The wiretap of permits and redeliveries finds planted bugs."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.flow_wiretap import FlowWiretap

from magnetar.testing.envelope import command
from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

LINK = 1
PLACE = common_pb2.Subscription(topic="in", topic_id=1, subscription="s")
SUBSCRIBE = broker_pb2.CommandSubscribe(subscription=PLACE, consumer_id=5)


class Seen(Exception):
    pass


class Wire:
    """A wire with one consumer."""

    def __init__(self, permits: int) -> None:
        self.tap = FlowWiretap(self._violation)
        self._count = 0
        self.asks(SUBSCRIBE)
        self.asks(broker_pb2.CommandFlow(subscription=PLACE, consumer_id=5, permits=permits))

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def asks(self, body: Any) -> None:
        self._count += 1
        self.tap.on_request(LINK, pb.Frame(commands=[command(body, self._count)]))

    def answers(self, body: Any) -> None:
        self.tap.on_reply(LINK, pb.Frame(commands=[command(body, self._count)]))

    def delivers(self, first: int, count: int, *, redelivery_count: int = 0) -> None:
        batch = broker_pb2.DeliveredBatch(
            entry_id=first, num_messages=count, redelivery_count=redelivery_count
        )
        body = broker_pb2.CommandDeliver(consumer_id=5, topic_id=1, batches=[batch])
        self.tap.on_reply(LINK, pb.Frame(commands=[command(body)]))

    def gives_back(self, first: int, last: int) -> None:
        ranges = [common_pb2.OffsetRange(first=first, last=last)]
        self.asks(broker_pb2.CommandNack(subscription=PLACE, consumer_id=5, ranges=ranges))
        self.answers(broker_pb2.CommandNackResponse())


def test_the_last_batch_may_exceed_the_permits() -> None:
    wire = Wire(permits=2)
    wire.delivers(0, 1)
    wire.delivers(1, 4)


def test_without_permits_nothing_goes_out() -> None:
    wire = Wire(permits=2)
    wire.delivers(0, 4)
    with pytest.raises(Seen, match="has no permits left"):
        wire.delivers(4, 1)


def test_who_attaches_again_owes_nothing() -> None:
    wire = Wire(permits=2)
    wire.delivers(0, 4)
    wire.asks(SUBSCRIBE)
    wire.asks(broker_pb2.CommandFlow(subscription=PLACE, consumer_id=5, permits=1))
    wire.delivers(4, 1)


def test_what_came_back_is_told_as_such() -> None:
    wire = Wire(permits=9)
    wire.delivers(0, 3)
    wire.gives_back(0, 1)
    wire.delivers(0, 1, redelivery_count=1)
    with pytest.raises(Seen, match="1 came back, and is told as new"):
        wire.delivers(1, 1)


def test_after_a_restart_nobody_knows_what_came_back() -> None:
    wire = Wire(permits=9)
    wire.delivers(0, 3)
    wire.gives_back(0, 1)
    wire.tap.on_crash()
    wire.delivers(0, 2)


def test_what_somebody_else_holds_cannot_be_given_back() -> None:
    wire = Wire(permits=9)
    wire.gives_back(0, 1)
    wire.delivers(0, 2)
