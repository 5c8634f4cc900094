"""Listens to what is asked in the name of transactional ids, and holds the answers against it.

A pair of producer id and epoch begins one transaction, a call of InitProducer gets one pair however
often it arrives, a repeated end is answered as it was, and what was kept takes nothing more
(KIP-939 on KIP-890's rules). Who was taken over hears that it must stop when it adds participants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from tests.simulation.asked import Unanswered

from magnetar_core.wire import common_pb2
from magnetar_core.wire import service_pb2 as pb

TxnKey = tuple[int, int]
Pair = tuple[int, int]
NO_PAIR: Pair = (-1, -1)
ADDS = ("add_partition_to_txn", "add_subscription_to_txn")
ASKED = ("init_producer", "new_txn", "end_txn", *ADDS)


class _Asked(NamedTuple):
    """A request on its way.

    Attributes:
        kept: what its transactional id had kept when it came.
        repeats: the same end was answered before, and nothing else was asked since.
        is_fenced: somebody had been told a newer pair before it came.
    """

    name: str
    body: Any
    kept: TxnKey | None
    repeats: bool
    is_fenced: bool


class IdentityWiretap:
    """Args:
    violation: ends the run; invariant or rule, and text.
    """

    def __init__(self, violation: Callable[[str, str], NoReturn]) -> None:
        self._violation = violation
        self._asked = Unanswered[_Asked]()
        self._begun: dict[tuple[str, Pair], TxnKey] = {}
        self._given: dict[tuple[str, int], Pair] = {}
        # Prepared transactions that a new instance has taken over.
        self._kept: dict[str, TxnKey] = {}
        # By transactional id: of those that calls of InitProducer have got.
        self._newest: dict[str, Pair] = {}
        # The last end that was answered with success, while nothing else is asked.
        self._ends: dict[str, bytes] = {}

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name not in ASKED:
                continue
            body = getattr(command, name)
            whose = _transactional_id(name, body)
            if whose is None:
                continue
            is_repeat = name == "end_txn" and self._ends.get(whose) == _serialised(body)
            if not is_repeat and name not in ADDS:
                self._ends.pop(whose, None)
            is_fenced = name in ADDS and _pair(body.identity) < self._newest.get(whose, NO_PAIR)
            asked = _Asked(name, body, self._kept.get(whose), is_repeat, is_fenced)
            self._asked.add(link, command.request_id, asked)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            assert name is not None
            asked = self._asked.take(link, command.request_id)
            if asked is None:
                continue
            answer = getattr(command, name)
            whose = _transactional_id(asked.name, asked.body)
            assert whose is not None
            if asked.is_fenced:
                self._check_fenced(whose, asked, name, answer)
            if asked.name == "end_txn":
                self._ended(whose, asked, name == "error", answer)
            elif name == "error":
                continue
            elif asked.name == "init_producer":
                self._taken_over(whose, asked.body, answer)
            else:
                self._extended(whose, asked, _txn(answer.txn_id))

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        self._asked.forget(link)

    def _ended(self, whose: str, asked: _Asked, refused: bool, answer: Any) -> None:
        body = _serialised(asked.body)
        if refused:
            still = asked.repeats and self._ends.get(whose) == body
            if still and answer.code == common_pb2.PRODUCER_FENCED:
                self._violation("e", f"{whose}: an end that was answered is fenced when repeated")
            return
        self._kept.pop(whose, None)
        if not any(
            one is not asked and one.name not in ADDS and _whose(one) == whose
            for one in self._asked
        ):
            self._ends[whose] = body

    def _check_fenced(self, whose: str, asked: _Asked, name: str, answer: Any) -> None:
        """It may be refused for other reasons, but not as if it could go on with another one."""
        if name != "error" or answer.code == common_pb2.INVALID_TXN_STATE:
            pair = _pair(asked.body.identity)
            self._violation(
                "o", f"{whose} with {pair} was taken over, and {asked.name} gets {name}"
            )

    def _taken_over(self, whose: str, body: Any, answer: Any) -> None:
        pair = _pair(answer)
        self._newest[whose] = max(pair, self._newest.get(whose, NO_PAIR))
        if body.call_token:
            given = self._given.setdefault((whose, body.call_token), pair)
            if given != pair:
                self._violation("o", f"one call took {whose} over twice, as {given} and as {pair}")
        if answer.HasField("ongoing_txn_id"):
            named = body.HasField("producer_id") and body.producer_id != -1
            if not body.keep_prepared and not named:
                self._violation("o", f"{whose} is taken over, and what was open is kept unasked")
            self._kept[whose] = _txn(answer.ongoing_txn_id)

    def _extended(self, whose: str, asked: _Asked, txn: TxnKey) -> None:
        """A transaction has begun, or has taken participants."""
        if asked.kept == txn and self._kept.get(whose) == txn:
            self._violation("o", f"{txn} of {whose} is prepared, and {asked.name} is answered")
        if asked.name == "new_txn":
            pair = _pair(asked.body.identity)
            begun = self._begun.setdefault((whose, pair), txn)
            if begun != txn:
                self._violation("o", f"{whose} with {pair} has begun {begun} and {txn}")


def _transactional_id(name: str, body: Any) -> str | None:
    if name == "init_producer":
        return str(body.transactional_id)
    return str(body.identity.transactional_id) if body.HasField("identity") else None


def _whose(asked: _Asked) -> str | None:
    return _transactional_id(asked.name, asked.body)


def _serialised(body: Any) -> bytes:
    data: bytes = body.SerializeToString(deterministic=True)
    return data


def _pair(wire: Any) -> Pair:
    return (wire.producer_id, wire.producer_epoch)


def _txn(wire: Any) -> TxnKey:
    return (wire.most_bits, wire.least_bits)
