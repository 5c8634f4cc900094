"""What the wire alone says of who keeps what."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.cluster_wiretap import ClusterWiretap
from tests.simulation.raw import send_command

from magnetar.testing.envelope import command
from magnetar_core.membership.placement import new_topic_id, shard_of
from magnetar_core.wire import broker_pb2, common_pb2, topic_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

BROKERS = ["broker", "broker-1"]
TOPIC_ID = new_topic_id("in", 7, 2)
# Partitions of the first broker, and of the other one.
HERE, THERE = sorted(range(2), key=lambda number: shard_of(TOPIC_ID, number))


class Seen(Exception):
    pass


class Wire:
    """A link to each broker, with its shard's number; "in" exists."""

    def __init__(self) -> None:
        self.tap = ClusterWiretap(BROKERS, self._violation)
        for shard, name in enumerate(BROKERS):
            self.tap.on_connected(shard, name)
        self.asks(0, topic_pb2.CommandCreateTopic(topic="in", partitions=2))
        self.hears(0, topic_pb2.CommandCreateTopicResponse(topic_id=TOPIC_ID))

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def asks(self, link: int, body: Any) -> None:
        self.tap.on_request(link, pb.Frame(commands=[command(body, 1)]))

    def hears(self, link: int, body: Any) -> None:
        self.tap.on_reply(link, pb.Frame(commands=[command(body, 1)]))

    def refuses(self, link: int, code: common_pb2.ErrorCode) -> None:
        self.hears(link, common_pb2.ServerError(code=code))


def _send(partition: int) -> broker_pb2.CommandSend:
    wire = common_pb2.Partition(topic="in", partition=partition, topic_id=TOPIC_ID)
    return send_command(wire, 1, 0, [b"a"])


def _end(partition: int) -> transaction_pb2.CommandEndTxnOnPartition:
    wire = common_pb2.Partition(topic="in", partition=partition, topic_id=TOPIC_ID)
    return transaction_pb2.CommandEndTxnOnPartition(partition=wire)


@pytest.mark.parametrize("code", [common_pb2.GONE, common_pb2.TOPIC_NOT_FOUND])
@pytest.mark.parametrize("shard", [0, 1])
def test_nobody_denies_what_exists(shard: int, code: common_pb2.ErrorCode) -> None:
    wire = Wire()
    for body in (_end(THERE), _end(HERE)):
        wire.asks(shard, body)
        with pytest.raises(Seen, match=r"is denied|is gone"):
            wire.refuses(shard, code)


def test_nobody_says_of_the_partition_of_another_that_it_is_gone() -> None:
    wire = Wire()
    wire.asks(1, topic_pb2.CommandDeleteTopic(topic="in"))
    wire.asks(0, _end(HERE))
    wire.refuses(0, common_pb2.GONE)
    wire.asks(0, _end(THERE))
    with pytest.raises(Seen, match="is gone, as if it kept it"):
        wire.refuses(0, common_pb2.GONE)


def test_nobody_speaks_for_the_partition_of_another() -> None:
    wire = Wire()
    wire.asks(1, _send(HERE))
    with pytest.raises(Seen, match="is answered, and broker 0 keeps it"):
        wire.hears(1, broker_pb2.CommandSendResponse())
    wire.asks(1, _send(HERE))
    wire.refuses(1, common_pb2.PARTITION_MOVED)
    wire.asks(1, _send(THERE))
    with pytest.raises(Seen, match="is told that it lies elsewhere"):
        wire.refuses(1, common_pb2.PARTITION_MOVED)


def test_what_is_being_deleted_may_be_gone() -> None:
    wire = Wire()
    wire.asks(0, _send(HERE))
    wire.asks(1, topic_pb2.CommandDeleteTopic(topic="in"))
    wire.refuses(0, common_pb2.GONE)
    wire.hears(1, topic_pb2.CommandDeleteTopicResponse())
    # A late answer brings it back to nobody's mind; another topic of the name is one.
    wire.asks(0, topic_pb2.CommandLookup(topic="in"))
    wire.hears(0, topic_pb2.CommandLookupResponse(topic_id=TOPIC_ID))
    assert not wire.tap.exists(TOPIC_ID)
    other = new_topic_id("in", 8, 2)
    wire.asks(0, topic_pb2.CommandCreateTopic(topic="in", partitions=2))
    wire.hears(0, topic_pb2.CommandCreateTopicResponse(topic_id=other))
    assert wire.tap.exists(other)


def test_a_deletion_that_nobody_answered_may_happen_any_time() -> None:
    wire = Wire()
    wire.asks(1, topic_pb2.CommandDeleteTopic(topic="in"))
    wire.tap.on_closed(1)
    other = new_topic_id("in", 8, 2)
    wire.asks(0, topic_pb2.CommandCreateTopic(topic="in", partitions=2))
    wire.hears(0, topic_pb2.CommandCreateTopicResponse(topic_id=other))
    assert not wire.tap.exists(other)


def test_a_subscription_may_be_gone_where_its_partition_lies() -> None:
    wire = Wire()
    place = common_pb2.Subscription(topic="in", topic_id=TOPIC_ID, partition=HERE, subscription="s")
    wire.asks(0, transaction_pb2.CommandEndTxnOnSubscription(subscription=place))
    wire.refuses(0, common_pb2.GONE)
    wire.asks(1, transaction_pb2.CommandEndTxnOnSubscription(subscription=place))
    with pytest.raises(Seen, match="is gone, as if it kept it"):
        wire.refuses(1, common_pb2.GONE)


def test_the_directory_denies_no_topic() -> None:
    for shard in (1, 0):
        for asked in (topic_pb2.CommandLookup, topic_pb2.CommandDescribeTopic):
            wire = Wire()
            wire.asks(shard, asked(topic="in"))
            with pytest.raises(Seen, match="in is denied"):
                wire.refuses(shard, common_pb2.TOPIC_NOT_FOUND)


def test_a_follower_may_say_what_was_true_when_it_was_asked() -> None:
    wire = Wire()
    wire.asks(1, topic_pb2.CommandLookup(topic="out"))
    wire.asks(0, topic_pb2.CommandCreateTopic(topic="out", partitions=2))
    wire.hears(0, topic_pb2.CommandCreateTopicResponse(topic_id=new_topic_id("out", 8, 2)))
    wire.refuses(1, common_pb2.TOPIC_NOT_FOUND)


def test_a_lookup_names_the_keepers() -> None:
    wire = Wire()
    keepers = [BROKERS[shard_of(TOPIC_ID, number)] for number in range(2)]
    wire.asks(1, topic_pb2.CommandLookup(topic="in"))
    wire.hears(1, topic_pb2.CommandLookupResponse(topic_id=TOPIC_ID, broker_addresses=keepers))
    wire.asks(1, topic_pb2.CommandLookup(topic="in"))
    with pytest.raises(Seen, match="is said to be at"):
        wire.hears(
            1, topic_pb2.CommandLookupResponse(topic_id=TOPIC_ID, broker_addresses=keepers[::-1])
        )


@pytest.mark.parametrize("kept", [[], [HERE, THERE], [THERE]])
def test_a_broker_describes_what_it_keeps(kept: list[int]) -> None:
    wire = Wire()
    wire.asks(0, topic_pb2.CommandDescribeTopic(topic="in"))
    answer = topic_pb2.CommandDescribeTopicResponse(
        topic="in",
        topic_id=TOPIC_ID,
        partition_count=2,
        partitions=[topic_pb2.PartitionDescription(partition=one) for one in sorted(kept)],
    )
    with pytest.raises(Seen, match=f"and keeps \\[{HERE}\\]"):
        wire.hears(0, answer)


def test_an_end_goes_where_its_partition_lies() -> None:
    wire = Wire()
    frame = pb.Frame(commands=[command(_end(THERE), 1)])
    wire.tap.on_said(1, "coordinator", frame)
    with pytest.raises(Seen, match="goes to 0, not 1"):
        wire.tap.on_said(0, "coordinator", frame)
