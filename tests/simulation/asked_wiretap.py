"""Listens at clients of the SDK, and knows what was answered when they ask for an end or tell their
users of a success.

A commit leaves when everything of it is confirmed, and with exactly these counts; when the
coordinator has every participant; and behind the plain sends that were made before. An abort waits
for what is under way, as long as the settings say. Nobody is told of a success that nobody has
answered. What is being acknowledged is not given back, and what a commit has settled is not
acknowledged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from tests.simulation.client_wiretap import NO_TXN, Asked, Txn, txn_of
from tests.simulation.follow_wiretap import HEARD_SECONDS, PATIENCE_SECONDS_MIN
from tests.simulation.sending_wiretap import Lane, SendingWiretap

from magnetar.testing.lives import Incarnation
from magnetar_core.ids import TxnID
from magnetar_core.wire import broker_pb2, common_pb2

# A send may fail that is older than this, and then nobody waits for it.
SEND_SECONDS_MIN = 0.1
COMMITS = (common_pb2.COMMITTING, common_pb2.COMMITTED)

# Topic, partition, and for acks the subscription.
Participant = tuple[str, int, str]
# With its number, and where: topic id and partition.
Consumer = tuple[Incarnation, int, int, int]


class _Acking(NamedTuple):
    offsets: set[int]
    asked_at: float


@dataclass
class _Acks:
    """Of a consumer in a transaction, by number; with the links of those not answered."""

    client: Incarnation
    cursor: Participant
    consumer_id: int
    topic_id: int
    offsets: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    unanswered: dict[int, tuple[int, float]] = field(default_factory=dict)
    refused: bool = False

    @property
    def key(self) -> Consumer:
        return (self.client, self.consumer_id, self.topic_id, self.cursor[1])


@dataclass
class _Transaction:
    """What was answered of it.

    Attributes:
        enrolled: participants that the coordinator has said it knows.
        named: those that it took with the beginning, and has not confirmed.
        heard_at: the newest answer that a commit has to wait for.
        is_over: the client has heard that somebody has ended it: it waits for nothing more.
    """

    enrolled: set[Participant] = field(default_factory=set)
    named: set[Participant] = field(default_factory=set)
    acked: dict[Participant, set[int]] = field(default_factory=dict)
    acks: dict[tuple[Participant, int], _Acks] = field(default_factory=dict)
    heard_at: float = 0.0
    # With the time when it was asked for first.
    ends_asked: dict[int, float] = field(default_factory=dict)
    is_committed: bool = False
    is_over: bool = False


class AskedWiretap:
    """Holds what the SDK asks and tells its users against its own wire.

    Args:
        sending: the checker of sends, which hears everything before this one.
        drain_seconds: for how long an abort waits for the answers that are under way.
        violation: ends the run; takes an invariant and a text.
    """

    def __init__(
        self,
        sending: SendingWiretap,
        drain_seconds: Callable[[], float],
        violation: Callable[[str, str], NoReturn],
    ) -> None:
        self._sending = sending
        self._drain_seconds = drain_seconds
        self._violation = violation
        self._transactions: dict[Txn, _Transaction] = {}
        self._lost: set[int] = set()
        self._acked: dict[Participant, set[int]] = {}
        self._acked_up_to: dict[Participant, int] = {}
        # What a commit has settled, and when.
        self._settled: dict[Consumer, dict[int, float]] = {}
        # Plain acks without an answer, by request.
        self._acking: dict[Consumer, dict[tuple[int, int], _Acking]] = {}
        # Offsets that were given back, with the redelivery counts that were named.
        self._given_back: dict[Consumer, set[tuple[int, int]]] = {}

    def of(self, txn: Txn) -> _Transaction:
        return self._transactions.setdefault(txn, _Transaction())

    # What the SDK tells.

    def check_counted(self, txn_id: TxnID, topic: str, partition: int) -> None:
        """A send in a transaction is said to count, when that commits."""
        known = self.of((txn_id.most_bits, txn_id.least_bits))
        if (topic, partition, "") not in known.enrolled:
            text = f"a send to {topic}/{partition} counts in {txn_id}, which knows nothing of it"
            self._violation("1", text)

    def check_committed(self, txn_id: TxnID) -> None:
        """A transaction is said to be committed."""
        if not self.of((txn_id.most_bits, txn_id.least_bits)).is_committed:
            self._violation("7", f"{txn_id} is said to be committed, and nobody has said so")

    def check_ended(self, txn_id: TxnID) -> None:
        """What was open is said to be given up: somebody has been asked to end it."""
        known = self.of((txn_id.most_bits, txn_id.least_bits))
        if not known.ends_asked and not known.is_over:
            self._violation("10", f"{txn_id} is given up, and left open until its timeout")

    def check_acked(
        self, cursor: Participant, offsets: Iterable[int], txn_id: TxnID | None = None
    ) -> None:
        """Acks are said to be confirmed; the cursor: topic, partition, subscription."""
        if txn_id is None:
            acked, up_to = self._acked.get(cursor, set()), self._acked_up_to.get(cursor, -1)
        else:
            known = self.of((txn_id.most_bits, txn_id.least_bits))
            acked, up_to = known.acked.get(cursor, set()), -1
        missing = [offset for offset in offsets if offset > up_to and offset not in acked]
        if missing:
            self._violation("6", f"acks of {missing} on {cursor} are confirmed by nobody")

    # What the wire has.

    def on_delivered(self, client: Incarnation, body: Any) -> None:
        settled = self._settled.get((client, body.consumer_id, body.topic_id, body.partition))
        if settled:
            for batch in body.batches:
                first = batch.entry_id + batch.first_index
                for offset in range(first, first + batch.num_messages):
                    settled.pop(offset, None)

    def on_lost(self, link: int) -> None:
        self._lost.add(link)
        for acking in self._acking.values():
            for request in [one for one in acking if one[0] == link]:
                del acking[request]

    def on_asked(self, asked: Asked) -> None:
        if asked.name == "ack":
            self._ack(asked)
        elif asked.name == "nack":
            self._nack(asked)
        elif asked.name == "end_txn":
            known = self.of(txn_of(asked.body.txn_id))
            is_first = asked.body.txn_action not in known.ends_asked
            known.ends_asked.setdefault(asked.body.txn_action, asked.at)
            if asked.body.txn_action == common_pb2.ABORT:
                if is_first and not asked.body.counts_given and not known.is_over:
                    self._abort(asked)
            elif asked.body.counts_given and not asked.body.selection_given:
                self._commit(asked, known, is_first=is_first)

    def on_answer(self, asked: Asked, name: str, body: Any) -> None:
        if name == "send_response":
            txn = txn_of(asked.body.txn_id)
            if txn != NO_TXN:
                self.of(txn).heard_at = self._sending.time()
        elif asked.name == "ack":
            self._ack_answered(asked, name)
        elif name == "new_txn_response":
            self._enroll(txn_of(body.txn_id), asked.body)
        elif name in ("add_partition_to_txn_response", "add_subscription_to_txn_response"):
            self._enroll(txn_of(asked.body.txn_id), asked.body)
        elif name == "end_txn_response":
            is_commit = asked.body.txn_action == common_pb2.COMMIT
            if is_commit and body.status in (0, *COMMITS):
                self._committed(asked)
        elif asked.name == "describe_txn":
            known = self.of(txn_of(asked.body.txn_id))
            if name == "error" or body.transaction.status != common_pb2.OPEN:
                known.is_over = True
            if name != "error" and body.transaction.status in COMMITS:
                known.is_committed = True

    def _enroll(self, txn: Txn, wire: Any) -> None:
        known = self.of(txn)
        known.heard_at = self._sending.time()
        is_named_only = getattr(wire, "answer_before_durable", False)
        taken = known.named if is_named_only else known.enrolled
        for one in getattr(wire, "partitions", ()):
            taken.add((one.topic, one.partition, ""))
        for one in getattr(wire, "subscriptions", ()):
            taken.add(_cursor(one))

    def _ack(self, asked: Asked) -> None:
        body = asked.body
        if not body.HasField("txn_id"):
            acking = self._acking.setdefault(_consumer(asked), {})
            acking[asked.link, asked.request_id] = _Acking(_offsets(body), asked.at)
            return
        key = (_cursor(body.subscription), body.consumer_id)
        acks = self.of(txn_of(body.txn_id)).acks.setdefault(
            key, _Acks(asked.client, *key, topic_id=body.subscription.topic_id)
        )
        number = body.ack_sequence
        if number not in acks.confirmed:
            if number not in acks.unanswered and number != len(acks.confirmed) + len(
                acks.unanswered
            ):
                self._violation("6", f"{key}: ack {number} leaves before its turn")
            self._check_unsettled(asked, acks)
            _, first_at = acks.unanswered.get(number, (asked.link, asked.at))
            acks.unanswered[number] = asked.link, first_at

    def _check_unsettled(self, asked: Asked, acks: _Acks) -> None:
        settled = self._settled.get(acks.key, {})
        for offset in _offsets(asked.body) if settled else ():
            if settled.get(offset, asked.at) < asked.at - HEARD_SECONDS:
                text = f"{acks.cursor} {offset} is acknowledged again after a commit"
                self._violation("6", text)

    def _nack(self, asked: Asked) -> None:
        """What an ack is under way of was done with before it was given back.

        A nack may be said again whose answer was lost: it belongs to an earlier delivery.
        """
        given_back = self._given_back.setdefault(_consumer(asked), set())
        named = {(offset, asked.body.redelivery_count) for offset in _offsets(asked.body)}
        offsets = {offset for offset, _ in named - given_back}
        given_back |= named
        for acking in self._acking.get(_consumer(asked), {}).values():
            both = acking.offsets & offsets
            if both and asked.at - acking.asked_at < PATIENCE_SECONDS_MIN:
                cursor = _cursor(asked.body.subscription)
                self._violation("4", f"{cursor} {sorted(both)} are given back, and being acked")

    def _ack_answered(self, asked: Asked, name: str) -> None:
        body = asked.body
        cursor = _cursor(body.subscription)
        if not body.HasField("txn_id"):
            self._acking[_consumer(asked)].pop((asked.link, asked.request_id), None)
            if name == "ack_response":
                self._plain_acked(cursor, body)
            return
        known = self.of(txn_of(body.txn_id))
        acks = known.acks[cursor, body.consumer_id]
        if name != "ack_response":
            acks.refused = True
            return
        acks.unanswered.pop(body.ack_sequence, None)
        acks.confirmed.add(body.ack_sequence)
        acks.offsets |= _offsets(body)
        known.acked.setdefault(cursor, set()).update(_offsets(body))
        known.heard_at = self._sending.time()

    def _plain_acked(self, cursor: Participant, body: Any) -> None:
        if body.ack_type == broker_pb2.CommandAck.CUMULATIVE:
            last = max(one.last for one in body.ranges)
            self._acked_up_to[cursor] = max(last, self._acked_up_to.get(cursor, -1))
        else:
            self._acked.setdefault(cursor, set()).update(_offsets(body))

    def _committed(self, asked: Asked) -> None:
        known = self.of(txn_of(asked.body.txn_id))
        known.is_committed = True
        now = self._sending.time()
        if now - known.ends_asked[asked.body.txn_action] > PATIENCE_SECONDS_MIN:
            return  # The SDK may have given up waiting for this answer.
        for acks in known.acks.values():
            if acks.client is asked.client:
                self._settled.setdefault(acks.key, {}).update(dict.fromkeys(acks.offsets, now))

    def _lanes(self, txn: Txn, client: Incarnation) -> list[Lane]:
        return [one for one in self._sending.lanes_in.get(txn, ()) if one.client is client]

    def _commit(self, asked: Asked, known: _Transaction, *, is_first: bool) -> None:
        body, txn = asked.body, txn_of(asked.body.txn_id)
        counts: dict[tuple[Any, ...], int] = {}
        for partition in body.partition_counts:
            self._check_enrolled(
                txn, (partition.partition.topic, partition.partition.partition, "")
            )
            place = (partition.partition.topic_id, partition.partition.partition)
            counts.update({(one.writer_id, place): one.count for one in partition.producers})
        for subscription in body.subscription_counts:
            cursor = _cursor(subscription.subscription)
            self._check_enrolled(txn, cursor)
            counts.update({(one.writer_id, cursor): one.count for one in subscription.consumers})
        for lane in self._lanes(txn, asked.client):
            counted = counts.get((lane.producer_id, lane.place), 0)
            if lane.unconfirmed:
                self._violation("g", f"{lane}: a commit leaves before {list(lane.unconfirmed)}")
            if counted != lane.confirmed_count:
                text = f"{lane}: {lane.confirmed_count} are confirmed, a commit counts {counted}"
                self._violation("g", text)
            if is_first:
                self._check_plain(lane, known, asked)
        for acks in known.acks.values():
            if acks.client is not asked.client:
                continue
            counted = counts.get((acks.consumer_id, acks.cursor), 0)
            if acks.unanswered or counted != len(acks.confirmed):
                text = f"{txn}: {len(acks.confirmed)} acks of {acks.cursor} are confirmed"
                self._violation("g", f"{text}, a commit counts {counted}")

    def _check_enrolled(self, txn: Txn, participant: Participant) -> None:
        known = self.of(txn)
        if participant not in known.enrolled and participant not in known.named:
            self._violation("1", f"{txn} is to commit, and nobody has enrolled {participant}")

    def _check_plain(self, lane: Lane, known: _Transaction, asked: Asked) -> None:
        """Plain sends that left before the last of the transaction was confirmed come before it."""
        plain = self._sending.lanes.get((lane.producer_id, lane.place, NO_TXN))
        if plain is None or plain.refused:
            return
        for sequence, batch in plain.unconfirmed.items():
            is_young = asked.at - batch.first_at < SEND_SECONDS_MIN
            if batch.first_at < known.heard_at and is_young:
                self._violation("k", f"{plain}: a commit leaves before plain {sequence} is stored")

    def _abort(self, asked: Asked) -> None:
        txn = txn_of(asked.body.txn_id)
        # It waits from its call on, and what is on its way then may go out again meanwhile.
        since = asked.at - self._drain_seconds() + 0.01
        for lane in self._lanes(txn, asked.client):
            for batch in lane.unconfirmed.values():
                link = batch.request[0]
                if not lane.refused and link not in self._lost and batch.first_at > since:
                    self._violation("1", f"{lane}: an abort leaves while a send is under way")
        for acks in self.of(txn).acks.values():
            if acks.client is not asked.client or acks.refused:
                continue
            for link, first_at in acks.unanswered.values():
                if link not in self._lost and first_at > since:
                    self._violation("1", f"{txn}: an abort leaves while an ack is under way")


def _cursor(wire: Any) -> Participant:
    return (wire.topic, wire.partition, wire.subscription)


def _consumer(asked: Asked) -> Consumer:
    where = asked.body.subscription
    return (asked.client, asked.body.consumer_id, where.topic_id, where.partition)


def _offsets(body: Any) -> set[int]:
    return {offset for one in body.ranges for offset in range(one.first, one.last + 1)}
