"""Listens where frames enter and leave a server, and holds every answer against what was asked.

One rule each, from the wire alone: what is given to who was refused it, refused to who was promised
it, or said twice. What a server keeps inside is not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from magnetar_core.wire import broker_pb2, common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

TxnKey = tuple[int, int]
# A subscription on one partition: topic id, partition, name. Without a name: the partition.
Place = tuple[int, int, str]
# Place, producer, and the transaction, if it is in one.
Sequence = tuple[Place, int, TxnKey | None]
Consumer = tuple[Place, int]
# A full disk is looked at so often.
NOTICED_SECONDS = 0.15
SHARED_TYPES = (broker_pb2.SHARED, broker_pb2.KEY_SHARED)


@dataclass(slots=True)
class _Asked:
    """One request on its way through a server.

    Attributes:
        body: its message.
        arrived: the how manieth request it is.
        is_first: no copy of it has arrived before.
        is_ended: its transaction's end had been answered here.
        is_late: a copy, or an attempt to attach that comes after a later one, of who is not there.
        full_seconds: for how long the disk had been full.
    """

    name: str
    body: Any
    link: int
    arrived: int
    is_first: bool = True
    is_ended: bool = False
    is_late: bool = False
    full_seconds: float = 0.0


class _Attached(NamedTuple):
    link: int
    epoch: int


class Given:
    """What a cluster gives out once, whichever of its servers was asked.

    Attributes:
        producers: by producer id, whose it is.
        incarnations: by TCID and store, the incarnation that it was given.
    """

    def __init__(self) -> None:
        self.producers: dict[int, str] = {}
        self.incarnations: dict[int, dict[str, int]] = {}


class AnswerWiretap:
    """Args:
    full_seconds: for how long the server's disk has been full; 0: it is not.
    violation: ends the run; invariant or rule, and text.
    given: what the checkers of all servers of a cluster share.
    """

    def __init__(
        self,
        full_seconds: Callable[[], float],
        violation: Callable[[str, str], NoReturn],
        given: Given | None = None,
    ) -> None:
        self._full_seconds = full_seconds
        self._violation = violation
        self._given = given or Given()
        self._asked: dict[tuple[int, int], _Asked] = {}
        self._arrived_count = 0
        # One past the newest message of each producer that has arrived in order.
        self._sequence_ends: dict[Sequence, int] = {}
        # Transactions whose end was answered there.
        self._ended: set[tuple[Place, TxnKey]] = set()
        self._types: dict[Place, int] = {}
        self._attached: dict[Consumer, _Attached] = {}
        # Whether a broker remembers the attempts to attach of whoever has left lately.
        self.remembers_attempts = True
        # The newest attempt of each consumer that was answered.
        self._epochs: dict[Consumer, int] = {}
        # Plain batches by where the broker said that they are: topic and partition, and offset.
        self.placed: dict[tuple[tuple[str, int], int], bytes] = {}
        self.counts: Counter[str] = Counter()

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name not in _RULES or (link, command.request_id) in self._asked:
                # Of two copies, the first one's answer comes first.
                continue
            self._arrived_count += 1
            asked = _Asked(name, getattr(command, name), link, self._arrived_count)
            if name == "send":
                self._send_arrives(asked)
            elif name == "ack" and asked.body.HasField("txn_id"):
                place = _of_subscription(asked.body.subscription)
                asked.is_ended = (place, _txn(asked.body.txn_id)) in self._ended
            elif name == "subscribe":
                consumer = _consumer(asked.body)
                epoch = asked.body.attach_epoch
                asked.is_late = consumer not in self._attached and 0 < epoch <= self._epochs.get(
                    consumer, 0
                )
            elif name == "close_consumer":
                self._attached.pop(_consumer(asked.body), None)
            self._asked[link, command.request_id] = asked

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            asked = self._asked.pop((link, command.request_id), None)
            if asked is not None:
                name = command.WhichOneof("body")
                assert name is not None
                _RULES[asked.name](self, asked, name == "error", getattr(command, name))

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for request in [one for one in self._asked if one[0] == link]:
            del self._asked[request]
        for consumer, attached in list(self._attached.items()):
            if attached.link == link:
                del self._attached[consumer]

    def on_crash(self) -> None:
        """The server is gone. Its links will be closed; what it has answered binds it."""
        self._attached.clear()
        self._epochs.clear()
        self._types.clear()
        self._asked.clear()

    # Sends.

    def _send_arrives(self, asked: _Asked) -> None:
        wire: broker_pb2.CommandSend = asked.body
        key = _sequence(wire)
        end = self._sequence_ends.get(key, 0)
        stop = wire.sequence_id + wire.num_messages
        asked.is_first = stop > end
        if wire.sequence_id <= end < stop:
            self._sequence_ends[key] = stop
        asked.full_seconds = self._full_seconds()
        asked.is_ended = key[2] is not None and (key[0], key[2]) in self._ended

    def _send_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        wire: broker_pb2.CommandSend = asked.body
        key = _sequence(wire)
        text = f"{wire.sequence_id} of producer {wire.producer_id} at {key[0][:2]}"
        if refused:
            if answer.code == common_pb2.SEQUENCE_GAP and key[2] is None:
                self._check_gap(asked, key, text)
            return
        if asked.is_ended:
            self._violation("9", f"{text} is taken in {key[2]}, whose end was answered before")
        if key[2] is None and answer.HasField("message_id"):
            place = wire.partition.topic, wire.partition.partition
            offset = answer.message_id.entry_id + answer.message_id.index
            self.placed[place, offset] = wire.batch
        if answer.duplicate:
            return
        # One that follows a transaction may have waited until there was room.
        parked = bool(wire.follows_txn_ids)
        if asked.is_first and not parked and asked.full_seconds > NOTICED_SECONDS:
            self._violation("reserve", f"{text} is taken, and the disk was full")
        if wire.sequence_id > self._sequence_ends.get(key, 0):
            self._violation("l", f"{text} is taken, and what comes before it never came")

    def _check_gap(self, asked: _Asked, key: Sequence, text: str) -> None:
        """What came before it, in order, and has no answer yet, is no gap."""
        for other in self._asked.values():
            if other.name != "send" or other.link != asked.link or other.arrived > asked.arrived:
                continue
            its_end = other.body.sequence_id + other.body.num_messages
            if _sequence(other.body) == key and its_end == asked.body.sequence_id:
                self._violation("k", f"{text} is refused for a gap, what fills it has no answer")

    # Ends.

    def _end_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        if refused and answer.code != common_pb2.GONE:
            return
        wire = asked.body
        by_name = asked.name == "end_txn_on_subscription"
        place = _of_subscription(wire.subscription) if by_name else _of_partition(wire.partition)
        self._ended.add((place, _txn(wire.txn_id)))

    # Subscriptions.

    def _ack_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        if refused:
            return
        wire: broker_pb2.CommandAck = asked.body
        place = _of_subscription(wire.subscription)
        if asked.is_ended:
            txn = _txn(wire.txn_id)
            self._violation("9", f"{place}: an ack in {txn}, whose end was answered, is taken")
        cumulative = wire.ack_type == broker_pb2.CommandAck.CUMULATIVE
        if cumulative and self._types.get(place) in SHARED_TYPES:
            self._violation("i", f"{place}: a cumulative ack is taken, and others have messages")

    def _subscribe_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        wire: broker_pb2.CommandSubscribe = asked.body
        if refused or not wire.consumer_id:
            return
        consumer = _consumer(wire)
        earlier = self._attached.get(consumer)
        late = earlier is not None and 0 < wire.attach_epoch <= earlier.epoch
        if late and earlier is not None and earlier.link != asked.link:
            self._violation(
                "order", f"{consumer} is taken off its link by a copy of {wire.attach_epoch}"
            )
        if asked.is_late and self.remembers_attempts:
            self._violation(
                "order", f"{consumer} has left, and is back by a copy of {wire.attach_epoch}"
            )
        self._epochs[consumer] = max(wire.attach_epoch, self._epochs.get(consumer, 0))
        self._attached[consumer] = _Attached(asked.link, wire.attach_epoch)
        self._types[consumer[0]] = wire.type

    def _seek_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        wire: broker_pb2.CommandSeek = asked.body
        if refused and wire.HasField("position") and answer.code == common_pb2.OUT_OF_RANGE:
            place = _of_subscription(wire.subscription)
            self._violation("m", f"{place}: the beginning or the end is refused: {answer.message}")

    def _incarnation_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        """No two stores of a coordinator have one incarnation, whatever crashes between them."""
        if refused:
            return
        wire = asked.body
        known = self._given.incarnations.setdefault(wire.tcid, {})
        found = known.setdefault(wire.store_token, answer.incarnation)
        same = [token for token, other in known.items() if other == answer.incarnation]
        if found != answer.incarnation or len(same) > 1:
            self._violation("8", f"incarnation {answer.incarnation} of {wire.tcid} is for {same}")

    def _nothing(self, asked: _Asked, refused: bool, answer: Any) -> None:
        return

    # Identities.

    def _init_answered(self, asked: _Asked, refused: bool, answer: Any) -> None:
        if refused:
            return
        wire: transaction_pb2.CommandInitProducer = asked.body
        owner = self._given.producers.setdefault(answer.producer_id, wire.transactional_id)
        if owner != wire.transactional_id:
            self._violation(
                "8", f"producer {answer.producer_id} is {owner!r} and {wire.transactional_id!r}"
            )
        self.counts["producer ids"] += 1


_RULES: dict[str, Callable[[AnswerWiretap, _Asked, bool, Any], None]] = {
    "send": AnswerWiretap._send_answered,
    "end_txn_on_partition": AnswerWiretap._end_answered,
    "end_txn_on_subscription": AnswerWiretap._end_answered,
    "ack": AnswerWiretap._ack_answered,
    "subscribe": AnswerWiretap._subscribe_answered,
    "close_consumer": AnswerWiretap._nothing,
    "seek": AnswerWiretap._seek_answered,
    "init_producer": AnswerWiretap._init_answered,
    "take_incarnation": AnswerWiretap._incarnation_answered,
}


def _of_partition(wire: common_pb2.Partition) -> Place:
    return (wire.topic_id, wire.partition, "")


def _of_subscription(wire: common_pb2.Subscription) -> Place:
    return (wire.topic_id, wire.partition, wire.subscription)


def _sequence(wire: broker_pb2.CommandSend) -> Sequence:
    txn = _txn(wire.txn_id) if wire.HasField("txn_id") else None
    return (_of_partition(wire.partition), wire.producer_id, txn)


def _consumer(wire: Any) -> Consumer:
    return (_of_subscription(wire.subscription), wire.consumer_id)


def _txn(wire: Any) -> TxnKey:
    return (wire.most_bits, wire.least_bits)
