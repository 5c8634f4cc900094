"""What the wire says of acks: what a message's ack and its transaction's end must bring about."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.wiretap import Wiretap

from magnetar.testing.envelope import command
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

PLACE = common_pb2.Subscription(topic="in", topic_id=4, subscription="work")
TXN = TxnID.of(0, 1, 7).to_wire()
CLIENT, COORDINATOR, INSPECTOR = 1, 2, 3
ACK = broker_pb2.CommandAck(
    subscription=PLACE, consumer_id=9, ranges=[common_pb2.OffsetRange(first=0, last=0)], txn_id=TXN
)
END = transaction_pb2.CommandEndTxnOnSubscription(
    txn_id=TXN, subscription=PLACE, txn_action=common_pb2.COMMIT
)


class Seen(Exception):
    pass


def _violation(invariant: str, text: str) -> NoReturn:
    raise Seen(f"{invariant}: {text}")


def frame(body: Any) -> pb.Frame:
    return pb.Frame(commands=[command(body, 1)])


@pytest.fixture
def tap() -> Wiretap:
    """Offset 0 is acknowledged in a transaction that is open."""
    tap = Wiretap(lambda: 0.0, _violation)
    tap.on_request(CLIENT, frame(ACK))
    tap.on_reply(CLIENT, frame(broker_pb2.CommandAckResponse()))
    return tap


def tell_mark_delete(tap: Wiretap) -> None:
    one = topic_pb2.SubscriptionDescription(subscription="work", mark_delete_offset=1)
    partition = topic_pb2.PartitionDescription(partition=0, subscriptions=[one])
    described = topic_pb2.CommandDescribeTopicResponse(topic_id=4, partitions=[partition])
    tap.on_reply(INSPECTOR, frame(described))


def test_the_mark_delete_offset_does_not_pass_what_is_pending(tap: Wiretap) -> None:
    with pytest.raises(Seen, match="i: "):
        tell_mark_delete(tap)


def test_it_may_pass_what_is_committed(tap: Wiretap) -> None:
    tap.on_request(COORDINATOR, frame(END))
    tell_mark_delete(tap)


def test_it_may_pass_what_a_former_owner_has_perhaps_committed(tap: Wiretap) -> None:
    """A host slept while its shard got another owner, which had not opened the store yet."""
    tap.on_doubtful_request(COORDINATOR, frame(END))
    tell_mark_delete(tap)
