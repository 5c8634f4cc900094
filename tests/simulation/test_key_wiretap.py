"""The wiretap of keys finds planted bugs without a look into the dispatcher."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any, NoReturn

import pytest
from tests.simulation.key_order import KeyOrder
from tests.simulation.key_wiretap import KeyWiretap
from tests.simulation.planted import PLANTED
from tests.simulation.planting import replaced
from tests.simulation.short.runner import run_history

from magnetar.testing.envelope import command
from magnetar_core.batch import encode
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

pytestmark = pytest.mark.sim

PLACE = common_pb2.Subscription(topic="in", topic_id=1, subscription="s")
TXN_ID = common_pb2.TxnId(least_bits=5)


class Seen(Exception):
    pass


@pytest.mark.parametrize(
    ("planted", "scenario", "said"),
    [
        ("keys-move-at-once", "crowd", "and .* has"),
        ("pending-acks-hold-no-key", "crowd", "is pending with"),
        ("keys-of-pending-acks-not-learned", "keys held", "is pending with"),
    ],
)
def test_a_key_with_two_consumers_is_seen_on_the_wire(
    planted: str, scenario: str, said: str
) -> None:
    with PLANTED[planted](), replaced(KeyOrder, "watching", lambda self: nullcontext()):
        failures = (run_history(seed, scenario, checks_servers=False).failure for seed in range(60))
        said_so = re.compile(rf"invariant q: .* {said}")
        assert any(failure is not None and said_so.search(failure) for failure in failures)


class Wire:
    """Consumers 1 and 2, each on the link of its number, and messages of one key."""

    def __init__(self) -> None:
        self._tap = KeyWiretap(lambda: 0.0, lambda: 0.0, self._violation)
        for consumer in (1, 2):
            self.asks(
                consumer,
                broker_pb2.CommandSubscribe(
                    subscription=PLACE, consumer_id=consumer, type=broker_pb2.KEY_SHARED
                ),
            )
            self.answers(consumer, broker_pb2.CommandSubscribeResponse())

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def asks(self, link: int, body: Any) -> None:
        self._tap.on_request(link, pb.Frame(commands=[command(body, 1)]))

    def answers(self, link: int, body: Any) -> None:
        self._tap.on_reply(link, pb.Frame(commands=[command(body, 1)]))

    def delivers(self, consumer: int, offset: int) -> None:
        batch = broker_pb2.DeliveredBatch(
            entry_id=offset, num_messages=1, batch=encode([b"value"], keys=[b"key"])
        )
        self.answers(
            consumer,
            broker_pb2.CommandDeliver(consumer_id=consumer, topic_id=1, batches=[batch]),
        )

    def acknowledges(self, consumer: int, offset: int) -> None:
        ranges = [common_pb2.OffsetRange(first=offset, last=offset)]
        self.asks(
            consumer,
            broker_pb2.CommandAck(
                subscription=PLACE, consumer_id=consumer, ranges=ranges, txn_id=TXN_ID
            ),
        )


def test_a_key_stays_while_an_ack_is_pending() -> None:
    wire = Wire()
    wire.delivers(1, 0)
    wire.acknowledges(1, 0)
    wire.answers(1, broker_pb2.CommandAckResponse())
    with pytest.raises(Seen, match="0 is pending with"):
        wire.delivers(2, 1)


def test_an_ack_that_is_answered_after_the_end_of_its_transaction_is_not_pending() -> None:
    """The broker took it before the end, and both were durable at once: seed 57541."""
    wire = Wire()
    wire.delivers(1, 0)
    wire.acknowledges(1, 0)
    wire.asks(3, transaction_pb2.CommandEndTxnOnSubscription(subscription=PLACE, txn_id=TXN_ID))
    wire.answers(1, broker_pb2.CommandAckResponse())
    wire.delivers(2, 1)
