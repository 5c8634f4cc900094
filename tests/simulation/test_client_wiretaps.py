"""The wiretaps at clients of the SDK find planted bugs, and let pass what an SDK may do."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.asked_wiretap import AskedWiretap
from tests.simulation.client_wiretap import ClientWiretaps
from tests.simulation.follow_wiretap import FollowWiretap
from tests.simulation.sending_wiretap import SendingWiretap

import magnetar
from magnetar.testing.envelope import command
from magnetar.testing.lives import Incarnation
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

PLACE = common_pb2.Partition(topic="in", topic_id=1)
CURSOR = common_pb2.Subscription(topic="in", topic_id=1, subscription="s")
FIRST, SECOND, THIRD = (common_pb2.TxnId(least_bits=number) for number in (1, 2, 3))
FIRST_ID, SECOND_ID = TxnID.from_wire(FIRST), TxnID.from_wire(SECOND)
STORED = broker_pb2.CommandSendResponse()
REFUSED = common_pb2.ServerError(code=common_pb2.SEQUENCE_GAP)
DRAIN_SECONDS = 0.3


class Seen(Exception):
    pass


class Client:
    """A client of the SDK with a link; each step takes 10 ms."""

    def __init__(self, name: str = magnetar.ClientConfig().client_name) -> None:
        self.now = 0.0
        self.link = 1
        self.incarnation = Incarnation("client")
        self._count = 0
        self._name = name
        sending = SendingWiretap(self._time, self._violation)
        self.follow = FollowWiretap(sending, self._violation)
        self.asked = AskedWiretap(sending, lambda: DRAIN_SECONDS, self._violation)
        self.taps = ClientWiretaps(self._time, sending, self.follow, self.asked)
        self._greet()

    def _time(self) -> float:
        return self.now

    def _violation(self, what: str, text: str) -> NoReturn:
        raise Seen(f"{what}: {text}")

    def _greet(self) -> None:
        self.asks(common_pb2.CommandHello(client_name=self._name))

    def reconnects(self) -> None:
        self.taps.on_lost(self.link)
        self.link += 1
        self._greet()

    def asks(self, body: Any) -> int:
        self.now += 0.01
        self._count += 1
        frame = pb.Frame(commands=[command(body, self._count)])
        self.taps.on_written(self.link, self.incarnation, frame)
        return self._count

    def hears(self, request: int, body: Any) -> None:
        self.now += 0.01
        if isinstance(body, common_pb2.ServerError):
            frame = pb.Frame(commands=[pb.Command(request_id=request, error=body)])
        else:
            frame = pb.Frame(commands=[command(body, request)])
        self.taps.on_heard(self.link, frame)

    def sends(
        self,
        sequence: int,
        *follows: Any,
        payload: bytes = b"",
        producer_id: int = 7,
        txn: Any = None,
        count: int = 1,
    ) -> int:
        return self.asks(
            broker_pb2.CommandSend(
                partition=PLACE,
                producer_id=producer_id,
                sequence_id=sequence,
                num_messages=count,
                batch=payload or b"%d" % sequence,
                txn_id=txn,
                follows_txn_ids=follows,
            )
        )

    def stores(self, sequence: int, *follows: Any, **more: Any) -> None:
        self.hears(self.sends(sequence, *follows, **more), STORED)

    def begins(self, txn: Any) -> None:
        request = self.asks(transaction_pb2.CommandNewTxn())
        self.hears(request, transaction_pb2.CommandNewTxnResponse(txn_id=txn))

    def enrolls(self, txn: Any) -> None:
        body = transaction_pb2.CommandAddPartitionToTxn(txn_id=txn, partitions=[PLACE])
        self.hears(self.asks(body), transaction_pb2.CommandAddPartitionToTxnResponse())

    def asks_commit(self, txn: Any, count: int = 1, acks: int = 0) -> int:
        body = transaction_pb2.CommandEndTxn(txn_id=txn, counts_given=True)
        if count:
            counted = body.partition_counts.add(partition=PLACE)
            counted.producers.add(writer_id=7, count=count)
        if acks:
            acked = body.subscription_counts.add(subscription=CURSOR)
            acked.consumers.add(writer_id=5, count=acks)
        return self.asks(body)

    def asks_abort(self, txn: Any) -> int:
        return self.asks(transaction_pb2.CommandEndTxn(txn_id=txn, txn_action=common_pb2.ABORT))

    def is_told(self, request: int, status: Any) -> None:
        self.hears(request, transaction_pb2.CommandEndTxnResponse(status=status))

    def commits(self, txn: Any, *follows: Any) -> None:
        """A transaction with one message."""
        self.begins(txn)
        self.enrolls(txn)
        self.stores(0, *follows, txn=txn)
        self.is_told(self.asks_commit(txn), common_pb2.COMMITTING)

    def gives_back(self, first: int, last: int) -> None:
        ranges = [common_pb2.OffsetRange(first=first, last=last)]
        self.asks(broker_pb2.CommandNack(subscription=CURSOR, consumer_id=5, ranges=ranges))

    def acks(self, first: int, last: int, *, txn: Any = None, number: int = 0) -> int:
        return self.asks(
            broker_pb2.CommandAck(
                subscription=CURSOR,
                consumer_id=5,
                ranges=[common_pb2.OffsetRange(first=first, last=last)],
                txn_id=txn,
                ack_sequence=number,
            )
        )


# Numbers, and what may have arrived.


def test_numbers_that_follow_each_other_and_repeats() -> None:
    client = Client()
    client.stores(0, count=2)
    client.sends(2)
    client.reconnects()
    client.stores(2)
    client.stores(3)


def test_a_gap_between_numbers() -> None:
    client = Client()
    client.stores(0)
    with pytest.raises(Seen, match="2 leaves, and the next number is 1"):
        client.sends(2)


def test_whoever_speaks_by_hand_may_leave_gaps() -> None:
    Client(name="by hand").sends(2)


def test_a_repeat_with_another_content() -> None:
    client = Client()
    client.sends(0)
    client.reconnects()
    with pytest.raises(Seen, match="another content"):
        client.sends(0, payload=b"other")


def test_after_a_new_link_the_first_is_left_out() -> None:
    client = Client()
    client.sends(0)
    client.sends(1)
    client.reconnects()
    client.sends(1)
    with pytest.raises(Seen, match=r"order: .* 2 leaves, and 0 has not been written again"):
        client.sends(2)


def test_after_a_refusal_the_first_is_left_out() -> None:
    client = Client()
    first = client.sends(0)
    client.sends(1)
    client.hears(first, REFUSED)
    client.sends(1)
    with pytest.raises(Seen, match="order"):
        client.sends(2)


def test_what_was_refused_leaves_under_another_number() -> None:
    client = Client()
    client.stores(0)
    client.hears(client.sends(1, payload=b"x"), REFUSED)
    client.sends(0, payload=b"x", producer_id=8)


def test_what_may_have_arrived_leaves_under_another_number() -> None:
    client = Client()
    client.stores(0)
    client.sends(1, payload=b"x")
    client.reconnects()
    client.hears(client.sends(1, payload=b"x"), REFUSED)
    with pytest.raises(Seen, match="may have arrived leaves as 0"):
        client.sends(0, payload=b"x", producer_id=8)


# Whom sends follow.


def test_sends_follow_a_commit_until_one_is_confirmed() -> None:
    client = Client()
    client.commits(FIRST)
    client.stores(0, FIRST)
    client.sends(1)


def test_a_producer_goes_on_under_another_id() -> None:
    client = Client()
    client.commits(FIRST)
    client.stores(0, FIRST, producer_id=8)
    client.commits(SECOND)


def test_a_plain_send_does_not_follow_a_commit() -> None:
    client = Client()
    client.commits(FIRST)
    with pytest.raises(Seen, match=r"k: .* does not name"):
        client.sends(0)


def test_a_transaction_does_not_follow_the_one_before_it() -> None:
    client = Client()
    client.commits(FIRST)
    with pytest.raises(Seen, match=r"k: .* do not name"):
        client.commits(SECOND)


@pytest.mark.parametrize("settled", [True, False])
def test_a_transaction_is_told_that_all_it_names_are_settled(settled: bool) -> None:
    client = Client()
    client.commits(FIRST)
    client.begins(SECOND)
    request = client.sends(0, FIRST, txn=SECOND)
    client.hears(request, broker_pb2.CommandSendResponse(all_settled=settled))
    if settled:
        client.sends(0)
    else:
        with pytest.raises(Seen, match=r"k: .* does not name"):
            client.sends(0)


def test_the_second_transaction_stands_for_the_first() -> None:
    client = Client()
    client.commits(FIRST)
    client.commits(SECOND, FIRST)
    client.sends(0, SECOND)


def test_a_commit_that_never_left_stands_for_what_it_follows() -> None:
    """Seed 5221: the link broke before the commit could leave, and its outcome is not known."""
    client = Client()
    client.commits(FIRST)
    client.begins(SECOND)
    client.stores(0, FIRST, txn=SECOND)
    client.begins(THIRD)
    client.sends(0, SECOND, txn=THIRD)
    client.sends(0, THIRD)


def test_what_a_confirmed_plain_send_names_stands_for_what_it_follows() -> None:
    """Seed 2444 of owners that change: the commit that was named had never left."""
    client = Client()
    client.commits(FIRST)
    client.begins(SECOND)
    client.sends(0, FIRST, txn=SECOND)
    client.stores(0, SECOND)
    client.sends(1)


def test_one_that_follows_nobody_stands_for_nobody() -> None:
    client = Client()
    client.begins(SECOND)
    client.stores(0, txn=SECOND)
    client.commits(FIRST)
    client.begins(THIRD)
    with pytest.raises(Seen, match=r"k: .* do not name"):
        client.sends(0, SECOND, txn=THIRD)


def test_a_repeat_follows_somebody_else() -> None:
    client = Client()
    client.commits(FIRST)
    client.begins(SECOND)
    client.sends(0, FIRST, txn=SECOND)
    client.reconnects()
    with pytest.raises(Seen, match=r"k: .* \[\] are named"):
        client.sends(0, txn=SECOND)


def test_a_plain_send_does_not_follow_a_commit_of_unknown_outcome() -> None:
    client = Client()
    client.begins(FIRST)
    client.enrolls(FIRST)
    client.stores(0, txn=FIRST)
    client.asks_commit(FIRST)
    client.follow.said_unknown(client.incarnation, FIRST_ID)
    with pytest.raises(Seen, match=r"k: .* does not name"):
        client.sends(0)


def test_after_an_abort_a_send_follows_nobody() -> None:
    client = Client()
    client.begins(FIRST)
    client.stores(0, txn=FIRST)
    client.is_told(client.asks_abort(FIRST), common_pb2.ABORTING)
    client.sends(0, FIRST)
    with pytest.raises(Seen, match=r"k: .* names nobody"):
        client.sends(1)


# When ends leave, and with what.


def test_a_commit_before_its_sends() -> None:
    client = Client()
    client.begins(FIRST)
    client.enrolls(FIRST)
    client.sends(0, txn=FIRST)
    with pytest.raises(Seen, match=r"g: .* leaves before \[0\]"):
        client.asks_commit(FIRST)


def test_a_commit_counts_something_else() -> None:
    client = Client()
    client.begins(FIRST)
    client.enrolls(FIRST)
    client.stores(0, txn=FIRST, count=3)
    with pytest.raises(Seen, match=r"g: .* 3 are confirmed, a commit counts 1"):
        client.asks_commit(FIRST)


def test_a_commit_before_a_participant_is_known() -> None:
    client = Client()
    client.begins(FIRST)
    client.stores(0, txn=FIRST)
    with pytest.raises(Seen, match="nobody has enrolled"):
        client.asks_commit(FIRST)


def test_a_commit_before_its_acks() -> None:
    client = Client()
    client.begins(FIRST)
    body = transaction_pb2.CommandAddSubscriptionToTxn(txn_id=FIRST, subscriptions=[CURSOR])
    client.hears(client.asks(body), transaction_pb2.CommandAddSubscriptionToTxnResponse())
    client.acks(0, 3, txn=FIRST)
    with pytest.raises(Seen, match=r"g: .* 0 acks"):
        client.asks_commit(FIRST, count=0, acks=1)


def test_a_commit_before_a_plain_send() -> None:
    client = Client()
    client.begins(FIRST)
    client.enrolls(FIRST)
    client.sends(0)
    client.stores(0, txn=FIRST)
    with pytest.raises(Seen, match=r"k: .* before plain 0"):
        client.asks_commit(FIRST)


def test_an_abort_waits_for_sends_and_not_for_ever() -> None:
    client = Client()
    client.begins(FIRST)
    client.sends(0, txn=FIRST)
    client.now += DRAIN_SECONDS
    client.asks_abort(FIRST)


def test_an_abort_waits_for_no_answer_on_a_link_that_is_lost() -> None:
    client = Client()
    client.begins(FIRST)
    client.sends(0, txn=FIRST)
    client.acks(0, 0, txn=FIRST)
    client.reconnects()
    client.asks_abort(FIRST)


def test_an_abort_of_what_is_known_to_be_over_waits_for_nothing() -> None:
    client = Client()
    client.begins(FIRST)
    client.sends(0, txn=FIRST)
    request = client.asks(transaction_pb2.CommandDescribeTxn(txn_id=FIRST))
    described = transaction_pb2.TransactionDescription(status=common_pb2.ABORTED)
    client.hears(request, transaction_pb2.CommandDescribeTxnResponse(transaction=described))
    client.asks_abort(FIRST)


@pytest.mark.parametrize("what", ["send", "ack"])
def test_an_abort_does_not_wait(what: str) -> None:
    client = Client()
    client.begins(FIRST)
    if what == "send":
        client.sends(0, txn=FIRST)
    else:
        client.acks(0, 0, txn=FIRST)
    with pytest.raises(Seen, match=f"1: .* while an? {what} is under way"):
        client.asks_abort(FIRST)


# What the SDK says.


def test_what_was_answered_may_be_said() -> None:
    client = Client()
    client.commits(FIRST)
    client.asked.check_counted(FIRST_ID, "in", 0)
    client.asked.check_committed(FIRST_ID)
    client.hears(client.acks(0, 3), broker_pb2.CommandAckResponse())
    client.asked.check_acked(("in", 0, "s"), range(4))


def test_a_send_is_said_to_count_too_early() -> None:
    client = Client()
    client.begins(FIRST)
    with pytest.raises(Seen, match="1: a send to in/0 counts"):
        client.asked.check_counted(FIRST_ID, "in", 0)


def test_a_commit_that_nobody_has_confirmed() -> None:
    client = Client()
    client.begins(FIRST)
    client.asks_commit(FIRST, count=0)
    with pytest.raises(Seen, match="nobody has said so"):
        client.asked.check_committed(FIRST_ID)


@pytest.mark.parametrize("txn", [None, FIRST])
def test_acks_that_nobody_has_confirmed(txn: Any) -> None:
    client = Client()
    client.hears(client.acks(0, 3, txn=txn), broker_pb2.CommandAckResponse())
    of = None if txn is None else FIRST_ID
    client.asked.check_acked(("in", 0, "s"), [3], of)
    with pytest.raises(Seen, match=r"acks of \[4\]"):
        client.asked.check_acked(("in", 0, "s"), [3, 4], of)


@pytest.mark.parametrize("again", [False, True])
def test_what_a_commit_has_settled_is_acknowledged_again(again: bool) -> None:
    client = Client()
    client.begins(FIRST)
    body = transaction_pb2.CommandAddSubscriptionToTxn(txn_id=FIRST, subscriptions=[CURSOR])
    client.hears(client.asks(body), transaction_pb2.CommandAddSubscriptionToTxnResponse())
    client.hears(client.acks(0, 3, txn=FIRST), broker_pb2.CommandAckResponse())
    client.is_told(client.asks_commit(FIRST, count=0, acks=1), common_pb2.COMMITTED)
    if again:
        delivered = broker_pb2.DeliveredBatch(num_messages=4)
        client.hears(0, broker_pb2.CommandDeliver(consumer_id=5, topic_id=1, batches=[delivered]))
    client.now += 0.01
    if again:
        client.acks(2, 5, txn=SECOND)
        return
    with pytest.raises(Seen, match=r"2 is acknowledged again after a commit"):
        client.acks(2, 5, txn=SECOND)


@pytest.mark.parametrize("answered", [False, True])
def test_what_is_being_acknowledged_is_given_back(answered: bool) -> None:
    client = Client()
    request = client.acks(0, 3)
    if answered:
        # With an error, for instance: then the application has the messages again.
        client.hears(request, REFUSED)
        client.gives_back(3, 4)
        return
    client.gives_back(4, 5)
    with pytest.raises(Seen, match=r"\[3\] are given back"):
        client.gives_back(3, 4)


def test_a_nack_without_an_answer_is_said_again() -> None:
    """It belongs to an earlier delivery than the ack."""
    client = Client()
    client.gives_back(3, 4)
    client.reconnects()
    client.acks(0, 3)
    client.gives_back(3, 4)
    with pytest.raises(Seen, match=r"\[2\] are given back"):
        client.gives_back(2, 3)


def test_an_ack_on_a_lost_link_is_under_way_no_more() -> None:
    client = Client()
    client.acks(0, 3)
    client.reconnects()
    client.gives_back(3, 4)
