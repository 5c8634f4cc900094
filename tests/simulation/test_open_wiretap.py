"""The wiretap of open transactions sees a server that refuses or ends an open transaction."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.simulation.open_wiretap import OpenWiretap
from tests.simulation.planting import replaced
from tests.simulation.protocol_wiretap import ProtocolWiretap
from tests.simulation.short.runner import run_history

from magnetar.testing.envelope import command
from magnetar_broker.transactions.watermark import Watermark, Watermarks
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

CLIENT, COORDINATOR = 1, 2
TXN = TxnID.of(0, 1, 7)
TIMEOUT_MS = 5_000
SEND = broker_pb2.CommandSend(producer_id=1, txn_id=TXN.to_wire())
END = transaction_pb2.CommandEndTxn(txn_id=TXN.to_wire(), txn_action=common_pb2.ABORT)
END_HERE = transaction_pb2.CommandEndTxnOnPartition(txn_id=TXN.to_wire())


class Seen(Exception):
    pass


class Wire:
    """A wire with a transaction that begins at 0 s."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tap = OpenWiretap(lambda: self.seconds, self._violation)
        self.asks(transaction_pb2.CommandTxnsIssued(), COORDINATOR)
        self.asks(transaction_pb2.CommandNewTxn(txn_timeout_ms=TIMEOUT_MS))
        self.answers(
            transaction_pb2.CommandNewTxnResponse(txn_id=TXN.to_wire(), txn_timeout_ms=TIMEOUT_MS)
        )

    def _violation(self, invariant: str, text: str) -> NoReturn:
        raise Seen(f"{invariant}: {text}")

    def asks(self, body: Any, link: int = CLIENT) -> None:
        self.tap.on_request(link, pb.Frame(commands=[command(body, 1)]))

    def answers(self, body: Any, link: int = CLIENT) -> None:
        self.tap.on_reply(link, pb.Frame(commands=[command(body, 1)]))

    def refuses(self, code: int) -> None:
        self.asks(SEND)
        self.answers(common_pb2.ServerError(code=code))  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [common_pb2.INVALID_TXN_STATE, common_pb2.TXN_NOT_FOUND])
def test_an_open_transaction_is_not_refused_as_ended(code: int) -> None:
    with pytest.raises(Seen, match=r"10: .* is open, and is refused"):
        Wire().refuses(code)


def test_it_may_be_refused_for_something_else() -> None:
    Wire().refuses(common_pb2.QUOTA_EXCEEDED)


def test_after_its_time_it_may_have_ended() -> None:
    wire = Wire()
    wire.seconds = TIMEOUT_MS / 1000
    wire.refuses(common_pb2.INVALID_TXN_STATE)
    wire.asks(END_HERE, COORDINATOR)


def test_whose_end_was_asked_for_may_have_ended() -> None:
    wire = Wire()
    wire.asks(END)
    wire.refuses(common_pb2.INVALID_TXN_STATE)
    wire.asks(END_HERE, COORDINATOR)


def test_nobody_is_told_to_end_what_nobody_wants_to_end() -> None:
    with pytest.raises(Seen, match=r"f: .* nobody has asked for it"):
        Wire().asks(END_HERE, COORDINATOR)


def test_a_stranger_who_ends_it_has_asked_for_that() -> None:
    wire = Wire()
    wire.asks(END_HERE, CLIENT)
    wire.asks(END_HERE, COORDINATOR)


@pytest.mark.sim
def test_a_watermark_that_covers_too_much_is_seen() -> None:
    sound = Watermark.covers

    def covers(self: Watermark, txn_id: TxnID) -> bool:
        before = TxnID.of(txn_id.tcid, txn_id.incarnation, max(0, txn_id.counter - 1))
        return sound(self, txn_id) or sound(self, before)

    # A look that most TxnIDs pass comes before the question.
    with (
        replaced(Watermark, "covers", covers),
        replaced(Watermarks, "is_running", lambda self, txn_id: False),
        # The follower would see it first.
        replaced(ProtocolWiretap, "follows", False),
    ):
        failures = (run_history(seed, checks_servers=False).failure for seed in range(20))
        found = next((failure for failure in failures if failure is not None), "")
    assert "is open, and is refused" in found
