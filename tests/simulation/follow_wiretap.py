"""Listens at clients of the SDK, and knows what their sends have to name as coming before (rule k).

Plain sends name the transactions that their producer has committed there before, until one that
did so is confirmed. A transaction names in all of its sends those that were committed before it
began. After an abort whatever was followed before still is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tests.simulation.client_wiretap import NO_TXN, Asked, Txn, followed, txn_of
from tests.simulation.sending_wiretap import Lane, SendingWiretap

from magnetar.testing.lives import Incarnation
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

# From an answer until the one who waits for it goes on.
HEARD_SECONDS = 0.002
# An SDK waits longer than this for the end of a transaction.
PATIENCE_SECONDS_MIN = 0.09
# As many the SDK names at most; beyond it nothing is said.
FOLLOWED_MAX = 50


@dataclass
class _Writer:
    """A producer id on a partition.

    Attributes:
        required: transactions to be named, and since when.
        settled: whose ends are known to have reached the broker.
        somebody_since: some transaction has to be named since then.
    """

    required: dict[Txn, float] = field(default_factory=dict)
    settled: set[Txn] = field(default_factory=set)
    somebody_since: float | None = None


class FollowWiretap:
    """Holds what sends name as coming before them against what their client knows.

    Args:
        sending: the checker of sends, which hears everything before this one.
        violation: ends the run; takes an invariant and a text.
    """

    def __init__(self, sending: SendingWiretap, violation: Callable[[str, str], NoReturn]) -> None:
        self._sending = sending
        self._violation = violation
        self._writers: dict[tuple[int, tuple[int, int]], _Writer] = {}
        # What each transaction names, by lane.
        self._named: dict[tuple[int, tuple[int, int], Txn], set[Txn]] = {}
        # Those that did not begin late, and when.
        self._begun_at: dict[Txn, float] = {}
        # When the end of each was asked for first; None: how it goes on cannot be told from here.
        self._end_asked_at: dict[Txn, float | None] = {}
        self._commit_asked: set[Txn] = set()
        # Those that lead what comes after them: each begins to once.
        self._led: set[Txn] = set()

    def said_unknown(self, client: Incarnation, txn_id: TxnID) -> None:
        """The SDK says that it does not know whether a commit has happened: it may have."""
        txn = (txn_id.most_bits, txn_id.least_bits)
        if self._end_asked_at.get(txn) is not None:
            self._lead(client, txn)

    def on_asked(self, asked: Asked) -> None:
        if asked.name == "send":
            self._send(asked)
        elif asked.name == "end_txn":
            txn = txn_of(asked.body.txn_id)
            self._end_asked_at.setdefault(txn, asked.at)
            if asked.body.txn_action == common_pb2.COMMIT:
                self._commit_asked.add(txn)
                # It is named instead of those that it names, from some moment on.
                for lane in self._lanes(asked.client, txn):
                    for one in self._names(lane):
                        self._writer(lane).required.pop(one, None)

    def on_answer(self, asked: Asked, name: str, body: Any) -> None:
        if asked.name == "send":
            if name == "send_response":
                self._confirmed(asked, body)
        elif asked.name == "new_txn" and name == "new_txn_response":
            if not asked.body.partitions and not asked.body.subscriptions:
                self._begun_at[txn_of(body.txn_id)] = self._sending.time()
        elif asked.name == "describe_txn" and name == "describe_txn_response":
            if body.transaction.status != common_pb2.OPEN:
                self._end_asked_at[txn_of(asked.body.txn_id)] = None
        elif asked.name == "end_txn":
            self._ended(asked, name)

    def _writer(self, lane: Lane) -> _Writer:
        return self._writers.setdefault((lane.producer_id, lane.place), _Writer())

    def _send(self, asked: Asked) -> None:
        lane = self._sending.lane_of(asked.body)
        assert lane is not None
        names = followed(asked.body)
        writer = self._writer(lane)
        if len(names) > FOLLOWED_MAX:
            return
        if lane.txn != NO_TXN:
            self._send_in_transaction(lane, writer, names)
            return
        missing = {
            one
            for one, since in writer.required.items()
            if since + HEARD_SECONDS < asked.at and one not in self._led_by(lane, names)
        }
        if missing:
            self._violation("k", f"{lane}: a send does not name {sorted(missing)}")
        since = writer.somebody_since
        if not names and since is not None and since + HEARD_SECONDS < asked.at:
            self._violation("k", f"{lane}: after an abort, a send names nobody")

    def _send_in_transaction(self, lane: Lane, writer: _Writer, names: set[Txn]) -> None:
        key = (lane.producer_id, lane.place, lane.txn)
        known = self._named.get(key)
        if known is not None:
            if names != known:
                self._violation("k", f"{lane}: {sorted(names)} are named, before {sorted(known)}")
            return
        self._named[key] = names
        begun_at = self._begun_at.get(lane.txn)
        if begun_at is None:
            return
        missing = {
            one
            for one, since in writer.required.items()
            if since + HEARD_SECONDS < begun_at and one not in self._led_by(lane, names)
        }
        if missing:
            self._violation("k", f"{lane}: its sends do not name {sorted(missing)}")

    def _confirmed(self, asked: Asked, body: Any) -> None:
        lane = self._sending.lane_of(asked.body)
        assert lane is not None
        over = {txn_of(one) for one in body.settled_txn_ids}
        if body.all_settled:
            over |= followed(asked.body)
        if lane.txn == NO_TXN:
            # And what those name, though the commit that says so was never heard.
            over |= self._led_by(lane, self._sending.confirmed_follows)
        if not over:
            return
        # Of all that write there: plain sends may go on under another producer id.
        for (_, place), writer in self._writers.items():
            if place == lane.place:
                writer.somebody_since = None
                writer.settled |= over
                for one in over:
                    writer.required.pop(one, None)

    def _ended(self, asked: Asked, name: str) -> None:
        txn = txn_of(asked.body.txn_id)
        asked_at = self._end_asked_at.get(txn)
        if name == "error":
            self._end_asked_at[txn] = None
            return
        now = self._sending.time()
        self._end_asked_at[txn] = None
        if asked_at is None or now - asked_at > PATIENCE_SECONDS_MIN:
            return
        if asked.body.txn_action == common_pb2.COMMIT:
            self._lead(asked.client, txn)
        elif txn not in self._commit_asked:
            for lane in self._lanes(asked.client, txn):
                writer = self._writer(lane)
                if not writer.required and writer.somebody_since is None:
                    writer.somebody_since = now

    def _lead(self, client: Incarnation, txn: Txn) -> None:
        if txn in self._led:
            return
        self._led.add(txn)
        for lane in self._lanes(client, txn):
            writer = self._writer(lane)
            if txn not in writer.settled:
                writer.required[txn] = self._sending.time()

    def _lanes(self, client: Incarnation, txn: Txn) -> list[Lane]:
        return [one for one in self._sending.lanes_in.get(txn, ()) if one.client is client]

    def _led_by(self, lane: Lane, names: set[Txn]) -> set[Txn]:
        """Return these transactions and all that they name here, which come before them."""
        found, rest = set(names), list(names)
        while rest:
            earlier = self._named.get((lane.producer_id, lane.place, rest.pop()), set()) - found
            found |= earlier
            rest.extend(earlier)
        return found

    def _names(self, lane: Lane) -> set[Txn]:
        return self._named.get((lane.producer_id, lane.place, lane.txn), set())
