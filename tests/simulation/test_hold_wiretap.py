"""What the wire alone says of who has a message."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.hold_wiretap import HoldWiretap

from magnetar.testing.envelope import command
from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

PLACE = common_pb2.Subscription(topic="in", topic_id=1, subscription="s")
SHARED = broker_pb2.SHARED


class Seen(Exception):
    pass


class Wire:
    """Consumers 1 and 2, each on the link of its number."""

    def __init__(self, type: broker_pb2.SubscriptionType = SHARED) -> None:
        self.tap = HoldWiretap(self._violation)
        self._type = type
        for consumer in (1, 2):
            self.attaches(consumer)

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def asks(self, link: int, body: Any) -> None:
        self.tap.on_request(link, pb.Frame(commands=[command(body, 1)]))

    def attaches(self, consumer: int, *, link: int | None = None) -> None:
        body = broker_pb2.CommandSubscribe(
            subscription=PLACE, consumer_id=consumer, type=self._type
        )
        self.asks(link or consumer, body)

    def delivers(
        self, consumer: int, first: int, count: int = 1, *, link: int | None = None
    ) -> None:
        batch = broker_pb2.DeliveredBatch(entry_id=first, num_messages=count)
        body = broker_pb2.CommandDeliver(consumer_id=consumer, topic_id=1, batches=[batch])
        self.tap.on_reply(link or consumer, pb.Frame(commands=[command(body)]))


def _ranges(first: int, last: int) -> list[common_pb2.OffsetRange]:
    return [common_pb2.OffsetRange(first=first, last=last)]


@pytest.mark.parametrize("to", [1, 2])
def test_what_somebody_has_goes_to_nobody(to: int) -> None:
    wire = Wire()
    wire.delivers(1, 0, 3)
    wire.delivers(2, 3)
    with pytest.raises(Seen, match=f"1 goes to {to}, and 1 has it"):
        wire.delivers(to, 1)


def test_what_was_given_back_goes_out_again() -> None:
    wire = Wire()
    wire.delivers(1, 0, 3)
    nack = broker_pb2.CommandNack(subscription=PLACE, consumer_id=1, ranges=_ranges(1, 1 << 62))
    wire.asks(1, nack)
    wire.delivers(2, 1)
    # Whoever has given it back says nothing by saying so again.
    wire.asks(1, nack)
    with pytest.raises(Seen, match="1 goes to 1, and 2 has it"):
        wire.delivers(1, 1)


def test_what_is_acknowledged_is_nobodys() -> None:
    wire = Wire()
    wire.delivers(1, 0, 2)
    wire.asks(1, broker_pb2.CommandAck(subscription=PLACE, consumer_id=1, ranges=_ranges(0, 0)))
    wire.delivers(2, 0)  # Whether it may come again is for others to say.
    with pytest.raises(Seen):
        wire.delivers(2, 1)


def test_who_leaves_has_nothing() -> None:
    wire = Wire()
    wire.delivers(1, 0)
    wire.asks(1, broker_pb2.CommandCloseConsumer(subscription=PLACE, consumer_id=1))
    wire.delivers(2, 0)
    # Written before it had gone.
    wire.delivers(1, 0)
    wire.tap.on_closed(2)
    wire.attaches(1)
    wire.delivers(1, 0)


def test_who_attaches_anew_begins_anew() -> None:
    wire = Wire()
    wire.delivers(1, 0)
    wire.attaches(1, link=3)
    wire.delivers(2, 0)
    wire.delivers(1, 0)  # On the old link, on its way since long.
    with pytest.raises(Seen):
        wire.delivers(1, 0, link=3)


def test_a_crash_and_a_seek_forget_everything() -> None:
    wire = Wire()
    wire.delivers(1, 0)
    wire.asks(1, broker_pb2.CommandSeek(subscription=PLACE))
    wire.delivers(2, 0)
    wire.tap.on_crash()
    wire.attaches(1)
    wire.delivers(1, 0)


def test_of_failover_nothing_is_said() -> None:
    wire = Wire(broker_pb2.FAILOVER)
    wire.delivers(1, 0)
    wire.delivers(2, 0)
