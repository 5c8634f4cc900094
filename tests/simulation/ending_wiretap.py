"""Listens to what coordinators say to clients and to brokers, and holds their ends against it.

A participant that was confirmed to a client is part of its transaction: it hears of the end, of the
one that was told, and before anybody is told that the transaction has ended everywhere. What a
coordinator keeps inside is not asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.simulation.asked import Unanswered
from tests.simulation.ends_alone import command_of

from magnetar_core.wire import common_pb2
from magnetar_core.wire import service_pb2 as pb

TxnKey = tuple[int, int]
# Topic id, partition, and subscription; without a name: the partition.
Place = tuple[int, int, str]
Participant = tuple[TxnKey, Place]
ENDS_HERE = ("end_txn_on_partition", "end_txn_on_subscription")
ADDS = ("add_partition_to_txn", "add_subscription_to_txn")
GONE = (common_pb2.GONE, common_pb2.TOPIC_NOT_FOUND, common_pb2.SUBSCRIPTION_NOT_FOUND)
FINISHED = (common_pb2.COMMITTED, common_pb2.ABORTED)
ACTION_OF: dict[int, int] = {
    common_pb2.COMMITTING: common_pb2.COMMIT,
    common_pb2.COMMITTED: common_pb2.COMMIT,
    common_pb2.ABORTING: common_pb2.ABORT,
    common_pb2.ABORTED: common_pb2.ABORT,
}
# From the first word on a link that has come back to the last of what it brings.
SAID_AGAIN_SECONDS = 0.05


@dataclass(slots=True)
class _Asked:
    """A request on its way through a server.

    Attributes:
        places: participants that it names.
        is_late: the end of its transaction had been told before it came.
    """

    name: str
    body: Any
    places: list[Place] = field(default_factory=list)
    is_late: bool = False


@dataclass(slots=True)
class _Life:
    """What a coordinator has said to a broker since it started.

    Attributes:
        ends: those that have no answer.
        has_watermark: it has told one.
    """

    ends: dict[Participant, None] = field(default_factory=dict)
    has_watermark: bool = False


@dataclass(slots=True)
class _Link:
    """A coordinator's link to a broker.

    Attributes:
        up_at: since when it says more there than who it is.
        awaited: what is to be said there again.
        awaits_watermark: so is the watermark.
    """

    up_at: float
    awaited: dict[Participant, None]
    awaits_watermark: bool


class EndingWiretap:
    """Args:
    time: virtual seconds.
    violation: ends the run; invariant or rule, and text.
    """

    def __init__(
        self, time: Callable[[], float], violation: Callable[[str, str], NoReturn]
    ) -> None:
        self._time = time
        self._violation = violation
        self._asked = Unanswered[_Asked]()
        self._participants: defaultdict[TxnKey, dict[Place, None]] = defaultdict(dict)
        # Those that a beginning named whose answer came before they were durable.
        self._unconfirmed: dict[TxnKey, list[Place]] = {}
        self._ended: set[Participant] = set()
        # Transactions with participants that no watermark has covered yet.
        self._uncovered: dict[TxnKey, None] = {}
        # What clients and brokers were told of the outcome.
        self._outcomes: dict[TxnKey, int] = {}
        # The latest transaction of each transactional id, and pairs that were given to it.
        self._latest: dict[str, TxnKey] = {}
        self._pairs: set[tuple[int, int]] = set()
        # By what spoke, and to which broker.
        self._lives: defaultdict[tuple[object, str], _Life] = defaultdict(_Life)
        self._links: dict[int, _Link] = {}
        self._servers: dict[int, str] = {}

    def on_connected(self, link: int, server: str) -> None:
        """A link to a server begins."""
        self._servers[link] = server

    # Clients and the brokers' answers.

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name not in _RULES:
                continue
            body = getattr(command, name)
            asked = _Asked(name, body)
            if name in ENDS_HERE:
                asked.places.append(_place(body))
            elif name != "init_producer" and name != "end_txn":
                asked.places = _places(body)
            if name in ADDS or name == "end_txn":
                asked.is_late = _txn(body.txn_id) in self._outcomes
            self._asked.add(link, command.request_id, asked)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name in ("describe_txn_response", "list_txns_response"):
                self._described(getattr(command, name))
                continue
            assert name is not None
            asked = self._asked.take(link, command.request_id)
            if asked is None:
                continue
            answer = getattr(command, name)
            if name != "error":
                _RULES[asked.name](self, asked, answer)
            elif asked.name in ENDS_HERE and answer.code in GONE:
                self._end_answered(asked, answer)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        self._asked.forget(link)

    def _end_answered(self, asked: _Asked, answer: Any) -> None:
        txn, place = participant = _txn(asked.body.txn_id), asked.places[0]
        if place[2] and asked.body.txn_action == common_pb2.COMMIT:
            for other in self._participants[txn]:
                if not other[2] and (txn, other) not in self._ended:
                    self._violation("p", f"{place} ends {txn} before {other} has its messages")
        self._ended.add(participant)
        for life in self._lives.values():
            life.ends.pop(participant, None)

    def _takes_part(self, txn: TxnKey, places: list[Place]) -> None:
        if places:
            self._participants[txn].update(dict.fromkeys(places))
            self._uncovered[txn] = None

    def _added(self, asked: _Asked, answer: Any) -> None:
        txn = _txn(asked.body.txn_id)
        if asked.is_late:
            self._violation("9", f"{txn} takes participants, and its end was told before")
        self._takes_part(txn, asked.places)
        self._confirmed(txn)

    def _confirmed(self, txn: TxnKey) -> None:
        """What a coordinator says of a transaction later comes behind the participants' records."""
        self._takes_part(txn, self._unconfirmed.pop(txn, []))

    def _begun(self, asked: _Asked, answer: Any) -> None:
        txn = _txn(answer.txn_id)
        has_owner = asked.body.HasField("identity") or asked.body.HasField("named_sequence")
        if asked.body.answer_before_durable and not has_owner:
            self._unconfirmed[txn] = asked.places
        else:
            self._takes_part(txn, asked.places)
        if asked.body.HasField("identity"):
            name = asked.body.identity.transactional_id
            if self._latest.get(name, txn) != txn:
                self._check_finished(self._latest[name], f"{name} has begun the next one")
            self._latest[name] = txn

    def _taken_over(self, asked: _Asked, answer: Any) -> None:
        pair = answer.producer_id, answer.producer_epoch
        name = asked.body.transactional_id
        is_new = pair not in self._pairs
        self._pairs.add(pair)
        if is_new and name in self._latest and not answer.HasField("ongoing_txn_id"):
            self._check_finished(self._latest[name], f"{name} was taken over")

    def _ended_by_client(self, asked: _Asked, answer: Any) -> None:
        txn, action = _txn(answer.txn_id), asked.body.txn_action
        if answer.status not in ACTION_OF:
            self._violation("7", f"the end of {txn} is answered, and it is open")
        if ACTION_OF[answer.status] != action:
            self._violation("7", f"{txn}: an end is answered with success, and the other one holds")
        if not answer.HasField("txn_id"):
            return
        by_identity = asked.body.HasField("identity")
        if by_identity and action == common_pb2.ABORT:
            # Of nothing, maybe: the answer then names what came before.
            return
        is_other = asked.body.HasField("txn_id") and _txn(asked.body.txn_id) != txn
        if is_other and txn not in self._outcomes:
            self._violation("o", f"an end of {_txn(asked.body.txn_id)} has ended {txn}")
        self._told(txn, answer.status)
        if asked.body.wait_finished:
            self._check_finished(txn, "its client was told so")

    def _described(self, answer: Any) -> None:
        found = [answer.transaction] if hasattr(answer, "transaction") else answer.transactions
        for one in found:
            if one.status in ACTION_OF:
                self._told(_txn(one.txn_id), one.status)

    def _told(self, txn: TxnKey, status: int) -> None:
        self._decided(txn, ACTION_OF[status])
        if status != common_pb2.ABORTED:
            # Whose record was lost is aborted, and takes nobody with it.
            self._confirmed(txn)
        if status in FINISHED:
            self._check_finished(txn, "somebody was told so")

    def _decided(self, txn: TxnKey, action: int) -> None:
        if self._outcomes.setdefault(txn, action) != action:
            self._violation("7", f"{txn} has two outcomes")

    def _check_finished(self, txn: TxnKey, why: str) -> None:
        for place in self._participants[txn]:
            if (txn, place) not in self._ended:
                self._violation("7", f"{txn} is over ({why}), and {place} has not ended it")

    # What coordinators say to brokers.

    def on_said(self, link: int, speaker: object, frame: pb.Frame) -> None:
        """A coordinator of this life writes a frame."""
        life = self._lives[speaker, self._servers.get(link, "")]
        # What the same command tells beside others: its broker keeps them in order.
        beside: defaultdict[int | None, list[Place]] = defaultdict(list)
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "hello":
                continue
            known = self._links.get(link)
            if known is None:
                known = self._links[link] = _Link(self._time(), dict(life.ends), life.has_watermark)
            if name == "low_watermark":
                life.has_watermark, known.awaits_watermark = True, False
                self._check_watermark(command.low_watermark)
            elif name in ENDS_HERE:
                body = getattr(command, name)
                told = beside[command_of(command.request_id)]
                self._end_said(name, body, life, known, told)
                if command_of(command.request_id) is not None:
                    told.append(_place(body))
            if self._time() > known.up_at + SAID_AGAIN_SECONDS:
                self._check_said_again(known)

    def _end_said(
        self, name: str, body: Any, life: _Life, link: _Link, beside: list[Place]
    ) -> None:
        if body.HasField("hanging"):
            return
        txn, place = _txn(body.txn_id), _place(body)
        participant = txn, place
        link.awaited.pop(participant, None)
        if place not in self._participants[txn]:
            # It took part unasked: nothing that it holds counts.
            return
        self._decided(txn, body.txn_action)
        if participant not in self._ended:
            life.ends[participant] = None
        if name == "end_txn_on_subscription" and body.txn_action == common_pb2.COMMIT:
            for other in self._participants[txn]:
                if not other[2] and (txn, other) not in self._ended and other not in beside:
                    self._violation("p", f"{place} hears of {txn} before {other} has its messages")

    def _check_said_again(self, link: _Link) -> None:
        late = [one for one in link.awaited if one not in self._ended]
        link.awaited.clear()
        if late:
            self._violation("time", f"a link is back, and {late} are not said there again")
        if link.awaits_watermark:
            self._violation("time", "a link is back, and the watermark is not said there again")

    def _check_watermark(self, body: Any) -> None:
        """What it covers has ended everywhere."""
        issuer = body.tcid << 48 | body.incarnation
        for txn in list(self._uncovered):
            counter = txn[1]
            if txn[0] != issuer or counter >= body.low_watermark:
                continue
            if not any(one.first <= counter <= one.last for one in body.live):
                self._check_finished(txn, "the watermark covers it")
                del self._uncovered[txn]


_RULES: dict[str, Callable[[EndingWiretap, _Asked, Any], None]] = {
    "add_partition_to_txn": EndingWiretap._added,
    "add_subscription_to_txn": EndingWiretap._added,
    "new_txn": EndingWiretap._begun,
    "init_producer": EndingWiretap._taken_over,
    "end_txn": EndingWiretap._ended_by_client,
    "end_txn_on_partition": EndingWiretap._end_answered,
    "end_txn_on_subscription": EndingWiretap._end_answered,
}


def _places(body: Any) -> list[Place]:
    """Participants that a request names by their topics' ids."""
    named: Iterable[Any] = (*getattr(body, "partitions", ()), *getattr(body, "subscriptions", ()))
    return [
        (one.topic_id, one.partition, getattr(one, "subscription", ""))
        for one in named
        if one.topic_id
    ]


def _place(body: Any) -> Place:
    if "subscription" in body.DESCRIPTOR.fields_by_name:
        wire = body.subscription
        return (wire.topic_id, wire.partition, wire.subscription)
    return (body.partition.topic_id, body.partition.partition, "")


def _txn(wire: Any) -> TxnKey:
    return (wire.most_bits, wire.least_bits)
