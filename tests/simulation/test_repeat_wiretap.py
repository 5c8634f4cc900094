"""The wiretap of repeated sends: a confirmed send is not refused later."""

from __future__ import annotations

from typing import NoReturn

import pytest
from tests.simulation.planting import replaced
from tests.simulation.repeat_wiretap import RepeatWiretap
from tests.simulation.short.runner import run_history

from magnetar.testing.envelope import command
from magnetar_broker.transactions import producers
from magnetar_core.errors import InvalidArgument
from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

SEND = broker_pb2.CommandSend(producer_id=1, sequence_id=3, num_messages=2)


class Seen(Exception):
    pass


class Wire:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.tap = RepeatWiretap(lambda: self.seconds, 10.0, self._violation)
        self._count = 0

    def _violation(self, invariant: str, text: str) -> NoReturn:
        raise Seen(f"{invariant}: {text}")

    def exchange(self, answer: object, send: broker_pb2.CommandSend = SEND) -> None:
        self._count += 1
        self.tap.on_request(1, pb.Frame(commands=[command(send, self._count)]))
        self.tap.on_reply(1, pb.Frame(commands=[command(answer, self._count)]))


def confirmed_at(offset: int | None) -> broker_pb2.CommandSendResponse:
    if offset is None:
        return broker_pb2.CommandSendResponse(duplicate=True)
    return broker_pb2.CommandSendResponse(message_id=common_pb2.MessageIdData(entry_id=offset))


REFUSED = common_pb2.ServerError(code=common_pb2.INVALID_ARGUMENT)


def test_what_was_confirmed_is_not_wrong_later() -> None:
    wire = Wire()
    wire.exchange(confirmed_at(7))
    with pytest.raises(Seen, match=r"4: .* was confirmed, and is refused"):
        wire.exchange(REFUSED)


def test_what_was_confirmed_stays_where_it_is() -> None:
    wire = Wire()
    wire.exchange(confirmed_at(7))
    wire.exchange(confirmed_at(7))
    wire.exchange(confirmed_at(None))
    with pytest.raises(Seen, match=r"4: .* lies at 7, and again at 9"):
        wire.exchange(confirmed_at(9))


def test_others_may_be_refused() -> None:
    wire = Wire()
    wire.exchange(REFUSED)
    wire.exchange(confirmed_at(7))
    wire.exchange(REFUSED, broker_pb2.CommandSend(producer_id=1, sequence_id=4, num_messages=1))


GAP = common_pb2.ServerError(code=common_pb2.SEQUENCE_GAP)
NEXT = broker_pb2.CommandSend(producer_id=1, sequence_id=5, num_messages=1)


def test_who_sent_a_moment_ago_is_known() -> None:
    wire = Wire()
    wire.exchange(confirmed_at(7))
    wire.seconds = 9.0
    with pytest.raises(Seen, match=r"l: .* is forgotten too early"):
        wire.exchange(GAP, NEXT)


def test_who_was_silent_for_long_may_be_forgotten() -> None:
    wire = Wire()
    wire.exchange(GAP, NEXT)
    wire.exchange(confirmed_at(7))
    wire.exchange(GAP, broker_pb2.CommandSend(producer_id=1, sequence_id=6, num_messages=1))
    wire.seconds = 11.0
    wire.exchange(GAP, NEXT)


@pytest.mark.sim
def test_a_repeat_that_is_taken_for_another_batch_is_seen() -> None:
    sound = producers.check_sequence

    def check(next_expected: int, sequence_id: int, count: int) -> bool:
        if sequence_id + count == next_expected:
            raise InvalidArgument("accepted in part before")
        return sound(next_expected, sequence_id, count)

    with replaced(producers, "check_sequence", check):
        failures = (
            run_history(seed, "late refusals", checks_servers=False).failure for seed in range(60)
        )
        found = next((failure for failure in failures if failure is not None), "")
    assert "was confirmed, and is refused" in found
