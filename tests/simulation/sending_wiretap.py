"""Listens at clients of the SDK, and knows how they number, order and repeat what they send.

The messages of a producer id on a partition, plain or in one transaction, count from 0 without
gaps. A repeat has the same content under the same number. What has not been answered is written
before what comes after it, on every link anew; and what may have arrived never leaves under another
number (invariant 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.simulation.client_wiretap import NO_TXN, Asked, Txn, followed, txn_of

from magnetar.testing.lives import Incarnation

# Topic id and partition.
Place = tuple[int, int]


@dataclass
class Batch:
    """A batch that the SDK has sent and no broker has confirmed.

    Attributes:
        request: the newest attempt; link and number.
        follows: named in any attempt.
    """

    count: int
    payload: bytes
    first_at: float
    attempts: int = 0
    request: tuple[int, int] = (0, 0)
    follows: set[Txn] = field(default_factory=set)


@dataclass
class Lane:
    """What one producer id sends to a partition, plain or in a transaction.

    Attributes:
        unconfirmed: by number; the oldest first.
        repeated: what was sent again after it was confirmed, and whom it names.
        refused: some error was heard.
        round_link: the link of what is written one after the other now, from round_first on.
    """

    client: Incarnation
    place: Place
    producer_id: int
    txn: Txn
    next_sequence: int = 0
    unconfirmed: dict[int, Batch] = field(default_factory=dict)
    repeated: dict[int, set[Txn]] = field(default_factory=dict)
    confirmed_count: int = 0
    confirmed_at: float = 0.0
    refused: bool = False
    round_link: int = -1
    round_first: int = 0
    round_last: int = -1

    def __str__(self) -> str:
        kind = "plain" if self.txn == NO_TXN else f"in {self.txn}"
        return f"{self.client.name} to {self.place}, {kind}"


class SendingWiretap:
    """Args:
    time: virtual seconds.
    violation: ends the run; invariant, and text.
    """

    def __init__(
        self, time: Callable[[], float], violation: Callable[[str, str], NoReturn]
    ) -> None:
        self.time = time
        # What the send that was confirmed last had named as coming before it.
        self.confirmed_follows: set[Txn] = set()
        self._violation = violation
        self.lanes: dict[tuple[int, Place, Txn], Lane] = {}
        # Of the transactions.
        self.lanes_in: dict[Txn, list[Lane]] = {}
        # Plain ones, under which number each content has left first.
        self._sent: dict[tuple[Place, bytes], tuple[Lane, int]] = {}

    def lane_of(self, body: Any) -> Lane | None:
        place = (body.partition.topic_id, body.partition.partition)
        return self.lanes.get((body.producer_id, place, txn_of(body.txn_id)))

    def on_asked(self, asked: Asked) -> None:
        if asked.name != "send":
            return
        body = asked.body
        lane = self.lane_of(body) or self._new_lane(asked)
        sequence: int = body.sequence_id
        batch = lane.unconfirmed.get(sequence)
        if asked.link != lane.round_link or sequence <= lane.round_last:
            lane.round_link, lane.round_first = asked.link, sequence
        lane.round_last = sequence
        if batch is None:
            batch = self._first_attempt(asked, lane)
        elif (batch.count, batch.payload) != (body.num_messages, body.batch):
            self._violation("4", f"{lane}: {sequence} is repeated with another content")
        batch.attempts += 1
        batch.request = asked.link, asked.request_id
        batch.follows |= followed(body)

    def on_answer(self, asked: Asked, name: str, body: Any) -> None:
        if asked.name != "send":
            return
        lane = self.lane_of(asked.body)
        assert lane is not None
        self.confirmed_follows = set()
        sequence = asked.body.sequence_id
        batch = lane.unconfirmed.get(sequence)
        if batch is None:
            if name == "send_response":
                self.confirmed_follows = lane.repeated.get(sequence, set())
            return
        if name == "send_response":
            del lane.unconfirmed[sequence]
            lane.confirmed_count += batch.count
            lane.confirmed_at = self.time()
            self.confirmed_follows = batch.follows
        elif batch.request == (asked.link, asked.request_id):
            lane.refused = True
            # All that is unconfirmed leaves again, in order.
            lane.round_link = -1

    def _new_lane(self, asked: Asked) -> Lane:
        body = asked.body
        place, txn = (body.partition.topic_id, body.partition.partition), txn_of(body.txn_id)
        lane = Lane(asked.client, place, body.producer_id, txn)
        self.lanes[body.producer_id, place, txn] = lane
        if txn != NO_TXN:
            self.lanes_in.setdefault(txn, []).append(lane)
        return lane

    def _first_attempt(self, asked: Asked, lane: Lane) -> Batch:
        body = asked.body
        sequence: int = body.sequence_id
        if sequence < lane.next_sequence:
            # It had been given up before its answer came, and is sent again.
            batch = Batch(body.num_messages, body.batch, asked.at)
            batch.follows = lane.repeated.setdefault(sequence, set())
            return batch
        if sequence != lane.next_sequence:
            self._violation(
                "4", f"{lane}: {sequence} leaves, and the next number is {lane.next_sequence}"
            )
        oldest = next(iter(lane.unconfirmed), sequence)
        if oldest < lane.round_first:
            self._violation(
                "order", f"{lane}: {sequence} leaves, and {oldest} has not been written again"
            )
        if lane.txn == NO_TXN:
            self._check_new(lane, sequence, body.batch)
        lane.next_sequence += body.num_messages
        batch = lane.unconfirmed[sequence] = Batch(body.num_messages, body.batch, asked.at)
        return batch

    def _check_new(self, lane: Lane, sequence: int, payload: bytes) -> None:
        """What may have arrived must not leave under another number."""
        known = self._sent.get((lane.place, payload))
        self._sent[lane.place, payload] = lane, sequence
        if known is None or known[0].client is not lane.client:
            return
        former = known[0].unconfirmed.get(known[1])
        if former is None or former.attempts > 1 or not known[0].refused:
            self._violation(
                "4", f"{lane}: what left as {known[1]} and may have arrived leaves as {sequence}"
            )
