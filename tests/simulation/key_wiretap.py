"""Listens where frames enter and leave the broker, and knows who has which key of a Key_Shared
subscription: from the wire alone, whatever the dispatcher believes.

Of a key, one consumer at a time has anything, until all that it has is settled; and what comes back
goes out before what lies behind it (rule q; docs/design/0004-key-shared.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from magnetar_core.batch import decode
from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

# A subscription on one partition: topic id, partition, name.
Cursor = tuple[int, int, str]
TxnKey = tuple[int, int]
Request = tuple[int, int]


class _Keys:
    """What is known of one cursor.

    Attributes:
        keys: of every offset that was ever delivered.
        held: who has an offset.
        given: who was given it last, also when that one has it no more.
        pending: the transaction in which it is acknowledged, and who has a claim to its key: who
            acknowledged it, and who was given it last; a link may have broken in between.
        ended: transactions that the broker was told to end. An ack that it had taken before may be
            answered afterwards.
        free: since when nobody has it.
        unsure: offsets of which the broker may think otherwise; nothing is said of them.
        settling: the ack that settles an offset, while that has no answer; its key does not move.
        early: when such a key went to somebody else all the same.
    """

    def __init__(self) -> None:
        self.keys: dict[int, bytes | None] = {}
        self.by_key: dict[bytes | None, dict[int, None]] = {}
        self.held: dict[int, int] = {}
        self.given: dict[int, int] = {}
        self.pending: dict[int, tuple[TxnKey, tuple[int, ...]]] = {}
        self.ended: set[TxnKey] = set()
        self.free: dict[int, float] = {}
        self.unsure: dict[int, None] = {}
        self.settling: dict[int, Request] = {}
        self.early: dict[int, float] = {}

    def of(self, consumer_id: int) -> list[int]:
        return [offset for offset, owner in self.held.items() if owner == consumer_id]

    def release(self, offset: int, now: float) -> None:
        """Nobody has it any more; it goes out again."""
        if self.held.pop(offset, None) is not None and offset not in self.unsure:
            self.free[offset] = now

    def forget(self, offset: int) -> None:
        """It is settled for good, or nothing can be said of it."""
        self.held.pop(offset, None)
        self.pending.pop(offset, None)
        self.free.pop(offset, None)
        self.settling.pop(offset, None)
        self.early.pop(offset, None)
        key = self.keys.pop(offset, None)
        if key is not None:
            self.by_key.get(key, {}).pop(offset, None)


class KeyWiretap:
    """Args:
    time: virtual seconds.
    lag: how long a delivery that was decided may take until it leaves.
    violation: ends the run; invariant and text.
    """

    def __init__(
        self,
        time: Callable[[], float],
        lag: Callable[[], float],
        violation: Callable[[str, str], NoReturn],
    ) -> None:
        self._time = time
        self._lag = lag
        self._violation = violation
        self._cursors: dict[Cursor, _Keys] = {}
        # Attached consumers: cursor and link.
        self._attached: dict[tuple[int, int, int], tuple[Cursor, int]] = {}
        self._subscribes: dict[Request, tuple[Any, list[int]]] = {}
        self._acks: dict[Request, tuple[Cursor, list[int], TxnKey | None, int]] = {}
        self.counts: Counter[str] = Counter()

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "subscribe":
                self._subscribe(link, command.request_id, command.subscribe)
            elif name == "ack":
                self._ack(link, command.request_id, command.ack)
            elif name == "nack":
                state = self._cursors.get(_cursor(command.nack.subscription))
                if state is not None:
                    for offset in _offsets(command.nack.ranges):
                        if state.held.get(offset) == command.nack.consumer_id:
                            state.release(offset, self._time())
            elif name == "close_consumer":
                wire = command.close_consumer
                self._detach((wire.consumer_id, *_cursor(wire.subscription)[:2]))
            elif name == "end_txn_on_subscription":
                self._end(command.end_txn_on_subscription)
            elif name in ("seek", "unsubscribe"):
                self._cursors.pop(_cursor(getattr(command, name).subscription), None)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            request = link, command.request_id
            if name == "subscribe_response":
                asked = self._subscribes.pop(request, None)
                if asked is not None:
                    self._attach(link, *asked)
            elif name == "ack_response":
                ack = self._acks.pop(request, None)
                if ack is not None:
                    self._check_settled(request, ack[0])
                    self._acked(*ack)
            elif name == "error":
                ack = self._acks.pop(request, None)
                if ack is not None:
                    self._doubt(request, ack[0])
                self._subscribes.pop(request, None)
            elif name == "deliver":
                self._check(command.deliver)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for request, (cursor, *_) in self._acks.items():
            if request[0] == link:
                self._doubt(request, cursor)
        for key, (_, its_link) in list(self._attached.items()):
            if its_link == link:
                self._detach(key)

    def on_crash(self) -> None:
        """The broker is gone: nobody has anything; what was not answered may have been stored."""
        for state in self._cursors.values():
            for offset in list(state.held):
                state.release(offset, self._time())
            state.settling.clear()
            state.early.clear()
        for cursor, offsets, _, _ in self._acks.values():
            known = self._cursors.get(cursor)
            if known is not None:
                for offset in offsets:
                    known.forget(offset)
        self._attached.clear()
        self._acks.clear()
        self._subscribes.clear()

    def _subscribe(self, link: int, request_id: int, wire: broker_pb2.CommandSubscribe) -> None:
        if wire.type != broker_pb2.KEY_SHARED:
            return
        cursor = _cursor(wire.subscription)
        state = self._cursors.setdefault(cursor, _Keys())
        # Until it is known whether it is taken, what the consumer has is in doubt.
        doubtful = state.of(wire.consumer_id)
        state.unsure.update(dict.fromkeys(doubtful))
        self._subscribes[link, request_id] = (wire, doubtful)

    def _attach(self, link: int, wire: Any, doubtful: list[int]) -> None:
        cursor = _cursor(wire.subscription)
        state = self._cursors.setdefault(cursor, _Keys())
        for offset in doubtful:
            state.unsure.pop(offset, None)
            if state.held.get(offset) == wire.consumer_id:
                state.forget(offset)
        self._attached[wire.consumer_id, cursor[0], cursor[1]] = (cursor, link)

    def _detach(self, key: tuple[int, int, int]) -> None:
        found = self._attached.pop(key, None)
        state = self._cursors.get(found[0]) if found is not None else None
        if state is not None:
            for offset in state.of(key[0]):
                state.release(offset, self._time())

    def _ack(self, link: int, request_id: int, wire: broker_pb2.CommandAck) -> None:
        cursor = _cursor(wire.subscription)
        state = self._cursors.get(cursor)
        if state is None:
            return
        offsets = _offsets(wire.ranges)
        offsets += [one.entry_id + one.index for one in wire.message_ids]
        txn = (wire.txn_id.most_bits, wire.txn_id.least_bits) if wire.HasField("txn_id") else None
        known = [offset for offset in offsets if offset in state.keys]
        request = link, request_id
        for offset in known if txn is None else ():
            if state.held.get(offset) == wire.consumer_id and offset not in state.unsure:
                state.settling.setdefault(offset, request)
        # From here to the answer nothing is said of them.
        state.unsure.update(dict.fromkeys(known))
        self._acks.setdefault(request, (cursor, known, txn, wire.consumer_id))

    def _check_settled(self, request: Request, cursor: Cursor) -> None:
        """Rule a: a key moves when what settles it is durable, and so when that is answered."""
        state = self._cursors.get(cursor)
        if state is None:
            return
        for offset in self._doubt(request, cursor):
            at = state.early.pop(offset, None)
            # What becomes durable together is answered and delivered at the same instant.
            if at is not None and at < self._time():
                self._violation(
                    "q", f"{cursor}: the key of {offset} moved before its ack was durable"
                )

    def _doubt(self, request: Request, cursor: Cursor) -> list[int]:
        """An ack settles nothing any more; returns what it was about to settle."""
        state = self._cursors.get(cursor)
        settling = state.settling if state is not None else {}
        offsets = [offset for offset, its_request in settling.items() if its_request == request]
        for offset in offsets:
            del settling[offset]
        return offsets

    def _acked(self, cursor: Cursor, offsets: list[int], txn: TxnKey | None, owner: int) -> None:
        state = self._cursors.get(cursor)
        if state is None:
            return
        for offset in offsets:
            state.unsure.pop(offset, None)
            if txn is None:
                # Dropped where a transaction has it: then its end says what becomes of it.
                if offset not in state.pending:
                    state.forget(offset)
            elif txn in state.ended:
                state.forget(offset)
            elif offset in state.keys:
                state.held.pop(offset, None)
                state.free.pop(offset, None)
                state.pending[offset] = (txn, (owner, state.given[offset]))

    def _end(self, wire: Any) -> None:
        state = self._cursors.get(_cursor(wire.subscription))
        if state is None:
            return
        txn = (wire.txn_id.most_bits, wire.txn_id.least_bits)
        state.ended.add(txn)
        for offset, (its_txn, _) in list(state.pending.items()):
            if its_txn == txn:
                # An abort gives it back once that is durable, and a commit perhaps not all of it.
                state.forget(offset)

    def _check(self, wire: broker_pb2.CommandDeliver) -> None:
        found = self._attached.get((wire.consumer_id, wire.topic_id, wire.partition))
        state = self._cursors.get(found[0]) if found is not None else None
        if found is None or state is None:
            return
        for delivered in wire.batches:
            first = delivered.entry_id + delivered.first_index
            columns = decode(delivered.batch)
            keys = columns.keys() or [None] * columns.count
            excluded = {o for one in delivered.excluded for o in range(one.first, one.last + 1)}
            for index in range(delivered.num_messages):
                if first + index not in excluded:
                    self._hand_out(found[0], state, wire.consumer_id, first + index, keys[index])

    def _hand_out(
        self, cursor: Cursor, state: _Keys, consumer_id: int, offset: int, key: bytes | None
    ) -> None:
        decided = self._time() - self._lag()
        for other in state.by_key.get(key, ()):
            if other in state.settling and state.held.get(other) != consumer_id:
                state.early.setdefault(other, self._time())
            if other == offset or other in state.unsure:
                continue
            text = f"{cursor} {offset} of {key!r} goes to {consumer_id}"
            owner = state.held.get(other)
            if owner is not None and owner != consumer_id:
                self._violation("q", f"{text}, and {owner} has {other}")
            pending = state.pending.get(other)
            if pending is not None:
                self.counts["beside a pending ack"] += 1
                if consumer_id not in pending[1]:
                    self._violation("q", f"{text}, and {other} is pending with {pending[1]}")
            free = state.free.get(other)
            if free is not None and other < offset and free < decided:
                self._violation("q", f"{text} before {other}, which nobody has")
        state.free.pop(offset, None)
        state.keys[offset] = key
        state.by_key.setdefault(key, {})[offset] = None
        state.held[offset] = state.given[offset] = consumer_id
        self.counts["keyed deliveries"] += 1


def _cursor(wire: common_pb2.Subscription) -> Cursor:
    return (wire.topic_id, wire.partition, wire.subscription)


def _offsets(ranges: Any) -> list[int]:
    """Of ranges that a test's client may have made; those without end are nobody's."""
    return [
        offset
        for one in ranges
        if one.last - one.first < 100_000
        for offset in range(one.first, one.last + 1)
    ]
