"""What the wire says of ends: who is told one thing while something else is so is seen."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.ending_wiretap import EndingWiretap

from magnetar.testing.envelope import command
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

CLIENT, TO_BROKER, ANOTHER = 1, 2, 3
LIFE = "a life of the coordinator"
TXN = TxnID.of(0, 1, 7).to_wire()
PARTITION = common_pb2.Partition(topic="in", topic_id=4)
SUBSCRIPTION = common_pb2.Subscription(topic="in", topic_id=4, subscription="work")
HELLO = common_pb2.CommandHello()
ISSUED = transaction_pb2.CommandTxnsIssued()
COMMIT, ABORT = common_pb2.COMMIT, common_pb2.ABORT


class Seen(Exception):
    pass


class Wire:
    """A wire with a transaction that has begun."""

    def __init__(self, *, subscription: bool = False) -> None:
        self.seconds = 0.0
        self.tap = EndingWiretap(lambda: self.seconds, self._violation)
        self._request_id = 0
        begin = transaction_pb2.CommandNewTxn(partitions=[PARTITION])
        if subscription:
            begin.subscriptions.append(SUBSCRIPTION)
        self.ask(begin, transaction_pb2.CommandNewTxnResponse(txn_id=TXN))

    def _violation(self, invariant: str, text: str) -> NoReturn:
        raise Seen(f"{invariant}: {text}")

    def ask(self, body: Any, answer: Any, link: int = CLIENT) -> None:
        self._request_id += 1
        self.tap.on_request(link, pb.Frame(commands=[command(body, self._request_id)]))
        self.tap.on_reply(link, pb.Frame(commands=[command(answer, self._request_id)]))

    def end(self, action: int, status: int, **more: Any) -> None:
        self.ask(
            transaction_pb2.CommandEndTxn(txn_id=TXN, txn_action=action, **more),  # type: ignore[arg-type]
            transaction_pb2.CommandEndTxnResponse(txn_id=TXN, status=status),  # type: ignore[arg-type]
        )

    def say(self, body: Any, link: int = TO_BROKER) -> None:
        self.tap.on_said(link, LIFE, pb.Frame(commands=[command(body, 1)]))

    def say_end(self, action: int = COMMIT, link: int = TO_BROKER) -> None:
        self.say(_end_here(action), link)

    def broker_ends(self) -> None:
        answer = transaction_pb2.CommandEndTxnOnPartitionResponse(txn_id=TXN)
        self.ask(_end_here(COMMIT), answer, TO_BROKER)


def _end_here(action: int) -> transaction_pb2.CommandEndTxnOnPartition:
    return transaction_pb2.CommandEndTxnOnPartition(
        txn_id=TXN,
        partition=PARTITION,
        txn_action=action,  # type: ignore[arg-type]
    )


def test_an_end_is_answered_with_itself() -> None:
    with pytest.raises(Seen, match=r"7: .* the other one holds"):
        Wire().end(ABORT, common_pb2.COMMITTED)


def test_brokers_hear_what_clients_were_told() -> None:
    wire = Wire()
    wire.end(COMMIT, common_pb2.COMMITTING)
    wire.say_end(COMMIT)
    with pytest.raises(Seen, match=r"7: .* has two outcomes"):
        wire.say_end(ABORT)


def test_what_took_part_unasked_is_aborted_whatever_the_outcome() -> None:
    wire = Wire()
    wire.end(COMMIT, common_pb2.COMMITTING)
    elsewhere = _end_here(ABORT)
    elsewhere.partition.partition = 1
    wire.say(elsewhere)


@pytest.mark.parametrize("wait_finished", [True, False])
def test_it_is_over_when_every_participant_has_ended_it(*, wait_finished: bool) -> None:
    status = common_pb2.COMMITTING if wait_finished else common_pb2.COMMITTED
    with pytest.raises(Seen, match=r"7: .* has not ended it"):
        Wire().end(COMMIT, status, wait_finished=wait_finished)
    wire = Wire()
    wire.broker_ends()
    wire.end(COMMIT, status, wait_finished=wait_finished)


def test_a_watermark_covers_what_is_over() -> None:
    wire = Wire()
    word = transaction_pb2.CommandLowWatermark(tcid=0, incarnation=1, low_watermark=8)
    word.live.add(first=7, last=7)
    wire.say(word)
    del word.live[:]
    with pytest.raises(Seen, match="the watermark covers it"):
        wire.say(word)


def test_a_subscription_hears_of_a_commit_when_its_messages_are_in_place() -> None:
    said = transaction_pb2.CommandEndTxnOnSubscription(
        txn_id=TXN, subscription=SUBSCRIPTION, txn_action=COMMIT
    )
    with pytest.raises(Seen, match=r"p: .* has its messages"):
        Wire(subscription=True).say(said)
    wire = Wire(subscription=True)
    wire.broker_ends()
    wire.say(said)


def test_nothing_takes_part_after_the_end_was_told() -> None:
    wire = Wire()
    wire.end(COMMIT, common_pb2.COMMITTING)
    add = transaction_pb2.CommandAddPartitionToTxn(txn_id=TXN, partitions=[PARTITION])
    with pytest.raises(Seen, match=r"9: .* takes participants"):
        wire.ask(add, transaction_pb2.CommandAddPartitionToTxnResponse(txn_id=TXN))


def test_a_link_that_comes_back_brings_what_has_no_answer() -> None:
    wire = Wire()
    wire.say_end()
    wire.say(HELLO, ANOTHER)
    wire.say(ISSUED, ANOTHER)
    wire.seconds = 1.0
    with pytest.raises(Seen, match=r"time: .* not said there again"):
        wire.say(ISSUED, ANOTHER)


@pytest.mark.parametrize("answered", [True, False])
def test_a_link_that_brings_all_of_it_is_right(*, answered: bool) -> None:
    wire = Wire()
    wire.say_end()
    wire.say(ISSUED, ANOTHER)
    if answered:
        wire.broker_ends()
    else:
        wire.say_end(link=ANOTHER)
    wire.seconds = 1.0
    wire.say(ISSUED, ANOTHER)


def test_the_next_one_of_an_id_begins_when_the_last_one_is_over() -> None:
    whose = common_pb2.ProducerIdentity(transactional_id="id", producer_id=1, producer_epoch=0)
    begin = transaction_pb2.CommandNewTxn(partitions=[PARTITION], identity=whose)
    wire = Wire()
    wire.ask(begin, transaction_pb2.CommandNewTxnResponse(txn_id=TXN))
    later = TxnID.of(0, 1, 8).to_wire()
    with pytest.raises(Seen, match=r"has begun the next one"):
        wire.ask(begin, transaction_pb2.CommandNewTxnResponse(txn_id=later))
