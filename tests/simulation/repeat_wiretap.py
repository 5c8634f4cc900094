"""Listens where frames enter and leave the broker, and holds answers to a repeated send together.

What was confirmed once is confirmed whenever it comes again (invariant 4): it may be refused for
want of something, or because all of its producer is forgotten, but not as wrong; and a plain one
lies where the broker said that it does. Nobody is forgotten who sent a moment ago (rule l).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

Request = tuple[int, int]


class _Send(NamedTuple):
    """What makes a send a repeat of another; the transaction is (0, 0) for a plain one."""

    topic_id: int
    partition: int
    producer_id: int
    txn: tuple[int, int]
    sequence_id: int
    messages: int


class RepeatWiretap:
    """Args:
    time: virtual seconds.
    idle_seconds_max: for how long a broker remembers a producer at least that sends nothing.
    violation: ends the run; invariant or rule, and text.
    """

    def __init__(
        self,
        time: Callable[[], float],
        idle_seconds_max: float,
        violation: Callable[[str, str], NoReturn],
    ) -> None:
        self._time = time
        self._idle_seconds_max = idle_seconds_max
        self._violation = violation
        # With the time when each arrived.
        self._asked: dict[Request, tuple[_Send, float]] = {}
        # Confirmed ones, and where they lie: None for those of transactions.
        self._confirmed: dict[_Send, int | None] = {}
        # When the newest plain one of a producer arrived, by place and what comes next: the broker
        # counts how long it is idle from then on.
        self._next: dict[tuple[int, int, int], tuple[int, float]] = {}

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            if command.WhichOneof("body") == "send":
                self._asked[link, command.request_id] = _send(command.send), self._time()

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name not in ("send_response", "error"):
                continue
            asked = self._asked.pop((link, command.request_id), None)
            if asked is None:
                continue
            send, arrived_at = asked
            if name == "send_response":
                self._confirm(send, arrived_at, command.send_response)
                continue
            next_sequence, newest_at = self._next.get(send[:3], (0, 0.0))
            if command.error.code == common_pb2.SEQUENCE_GAP and send.txn == (0, 0):
                is_young = self._time() < newest_at + self._idle_seconds_max
                if is_young and 0 < send.sequence_id <= next_sequence:
                    self._violation("l", f"{send} is refused: its producer is forgotten too early")
            if command.error.code == common_pb2.INVALID_ARGUMENT and send in self._confirmed:
                self._violation(
                    "4", f"{send} was confirmed, and is refused: {command.error.message}"
                )

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for request in [one for one in self._asked if one[0] == link]:
            del self._asked[request]

    def _confirm(
        self, send: _Send, arrived_at: float, answer: broker_pb2.CommandSendResponse
    ) -> None:
        place: int | None = None
        if send.txn == (0, 0) and not answer.duplicate:
            self._next[send[:3]] = (send.sequence_id + send.messages, arrived_at)
        if send.txn == (0, 0) and answer.HasField("message_id"):
            place = answer.message_id.entry_id + answer.message_id.index
        known = self._confirmed.setdefault(send, place)
        if known is None:
            self._confirmed[send] = place
        elif place is not None and place != known:
            self._violation("4", f"{send} lies at {known}, and again at {place}")


def _send(wire: broker_pb2.CommandSend) -> _Send:
    return _Send(
        wire.partition.topic_id,
        wire.partition.partition,
        wire.producer_id,
        (wire.txn_id.most_bits, wire.txn_id.least_bits),
        wire.sequence_id,
        wire.num_messages,
    )
