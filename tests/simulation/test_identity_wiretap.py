"""What the wire says of transactional ids: an answer that does not fit is seen."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.identity_wiretap import IdentityWiretap

from magnetar.testing.envelope import command
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

TXN, NEXT = (TxnID.of(0, 1, counter).to_wire() for counter in (7, 8))
WHOSE = common_pb2.ProducerIdentity(transactional_id="id", producer_id=5, producer_epoch=1)
INIT = transaction_pb2.CommandInitProducer(
    transactional_id="id", keep_prepared=True, enable_2pc=True, call_token=3
)
NEW = transaction_pb2.CommandNewTxn(identity=WHOSE)
ADD = transaction_pb2.CommandAddPartitionToTxn(txn_id=TXN, identity=WHOSE)
END = transaction_pb2.CommandEndTxn(txn_id=TXN, identity=WHOSE, txn_action=common_pb2.COMMIT)
ENDED = transaction_pb2.CommandEndTxnResponse(txn_id=TXN, status=common_pb2.COMMITTING)
FENCED = common_pb2.ServerError(code=common_pb2.PRODUCER_FENCED)
KEPT = transaction_pb2.CommandInitProducerResponse(
    producer_id=5, producer_epoch=1, ongoing_txn_id=TXN
)


class Seen(Exception):
    pass


class Wire:
    """Requests and their answers."""

    def __init__(self) -> None:
        self.tap = IdentityWiretap(self._violation)
        self._request_id = 0

    def _violation(self, invariant: str, text: str) -> NoReturn:
        raise Seen(f"{invariant}: {text}")

    def ask(self, body: Any, answer: Any) -> None:
        self._request_id += 1
        self.tap.on_request(1, pb.Frame(commands=[command(body, self._request_id)]))
        self.tap.on_reply(1, pb.Frame(commands=[command(answer, self._request_id)]))


def begun(txn: common_pb2.TxnId) -> transaction_pb2.CommandNewTxnResponse:
    return transaction_pb2.CommandNewTxnResponse(txn_id=txn)


def test_a_pair_begins_one_transaction() -> None:
    wire = Wire()
    wire.ask(NEW, begun(TXN))
    wire.ask(NEW, begun(TXN))
    with pytest.raises(Seen, match=r"o: .* has begun"):
        wire.ask(NEW, begun(NEXT))


def test_a_call_takes_over_once() -> None:
    wire = Wire()
    wire.ask(INIT, transaction_pb2.CommandInitProducerResponse(producer_id=5, producer_epoch=1))
    wire.ask(INIT, FENCED)
    with pytest.raises(Seen, match="o: one call took id over twice"):
        wire.ask(INIT, transaction_pb2.CommandInitProducerResponse(producer_id=5, producer_epoch=2))


def test_nothing_is_kept_unasked() -> None:
    wire = Wire()
    wire.ask(INIT, KEPT)
    asked = transaction_pb2.CommandInitProducer(transactional_id="id", enable_2pc=True)
    with pytest.raises(Seen, match="kept unasked"):
        wire.ask(asked, KEPT)


@pytest.mark.parametrize(
    ("body", "answer"),
    [(NEW, begun(TXN)), (ADD, transaction_pb2.CommandAddPartitionToTxnResponse(txn_id=TXN))],
)
def test_what_is_kept_takes_nothing_more(body: Any, answer: Any) -> None:
    wire = Wire()
    wire.ask(body, answer)
    wire.ask(INIT, KEPT)
    with pytest.raises(Seen, match=r"o: .* is prepared"):
        wire.ask(body, answer)


def test_a_repeated_end_is_not_fenced() -> None:
    wire = Wire()
    wire.ask(END, ENDED)
    wire.ask(END, ENDED)
    with pytest.raises(Seen, match=r"e: .* is fenced when repeated"):
        wire.ask(END, FENCED)


@pytest.mark.parametrize("between", [NEW, INIT])
def test_an_end_that_is_repeated_too_late_may_be_fenced(between: Any) -> None:
    wire = Wire()
    wire.ask(END, ENDED)
    wire.ask(between, FENCED)
    wire.ask(END, FENCED)


@pytest.mark.parametrize("taken", [False, True])
def test_who_was_taken_over_hears_that_it_must_stop(taken: bool) -> None:
    wire = Wire()
    newer = transaction_pb2.CommandInitProducerResponse(
        producer_id=5, producer_epoch=2 if taken else 1
    )
    wire.ask(INIT, newer)
    wire.ask(ADD, FENCED)
    over = common_pb2.ServerError(code=common_pb2.INVALID_TXN_STATE)
    added = transaction_pb2.CommandAddPartitionToTxnResponse(txn_id=TXN)
    for answer in (over, added):
        if taken:
            with pytest.raises(Seen, match=r"o: id .* was taken over"):
                wire.ask(ADD, answer)
        else:
            wire.ask(ADD, answer)
