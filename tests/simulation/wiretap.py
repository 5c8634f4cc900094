"""Listens where frames enter and leave the broker, and knows what must not be delivered any more.

What clients see comes late and in no certain order; here the broker's own order is known. From the
moment in which the broker confirms an ack, nobody may be handed that message: for good after a
plain ack or a commit, until the abort after an ack in a transaction (PENDING_ACK). An end that has
arrived changes that when it is durable, and so not before it is answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple, NoReturn

from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

# A subscription on one partition: topic id, partition, name.
Cursor = tuple[int, int, str]
TxnKey = tuple[int, int]


class _Ack(NamedTuple):
    cursor: Cursor
    generation: int
    offsets: frozenset[int]
    txn: TxnKey | None
    consumer_id: int
    # How often the transaction's end had been asked for here.
    ends: int
    # What a transaction held, or perhaps held: a plain ack leaves that alone.
    held: frozenset[int]


class _End(NamedTuple):
    """An end of a transaction that has not been answered yet."""

    cursor: Cursor
    offsets: frozenset[int]
    # What was delivered of it meanwhile, and when.
    early: dict[int, float]


class _State:
    """What is confirmed on one cursor."""

    def __init__(self) -> None:
        # Raised by a seek or a deletion: earlier acks count no more.
        self.generation = 0
        self.deleted: set[int] = set()
        self.pending: dict[TxnKey, list[_Ack]] = {}
        self.ends: Counter[TxnKey] = Counter()

    def move(self) -> None:
        """A seek or a deletion is asked for."""
        self.generation += 1
        self.deleted.clear()

    def end(self, txn: TxnKey) -> list[_Ack]:
        """A transaction's end is asked for: return what it has acknowledged, pending no more."""
        self.ends[txn] += 1
        return self.pending.pop(txn, [])


class Wiretap:
    """Args:
    time: virtual seconds.
    violation: ends the run; invariant and text.
    """

    def __init__(
        self, time: Callable[[], float], violation: Callable[[str, str], NoReturn]
    ) -> None:
        self._time = time
        self._violation = violation
        self._cursors: dict[Cursor, _State] = {}
        self._consumers: dict[tuple[int, int, int], Cursor] = {}
        # Of which generation of its cursor an attachment is: its acks count for no later one.
        self._attached: dict[tuple[int, Cursor, int], int] = {}
        self._asked: dict[tuple[int, int], _Ack] = {}
        self._ending: dict[tuple[int, int], _End] = {}

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "ack":
                # Of two copies, the first one's answer comes first.
                self._asked.setdefault((link, command.request_id), self._ack(command.ack))
            elif name == "subscribe":
                wire = command.subscribe.subscription
                key = (command.subscribe.consumer_id, wire.topic_id, wire.partition)
                cursor = self._consumers[key] = _cursor(wire)
                self._attached.setdefault(
                    (command.subscribe.consumer_id, cursor, command.subscribe.attach_epoch),
                    self._state(cursor).generation,
                )
            elif name == "end_txn_on_subscription":
                self._end((link, command.request_id), command.end_txn_on_subscription)
            elif name in ("seek", "unsubscribe"):
                self._state(_cursor(getattr(command, name).subscription)).move()

    def on_doubtful_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server that has lost its shard without noticing.

        What it makes durable before its successor opens the store stays. So nothing is known any
        more of what it ends or moves.
        """
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "end_txn_on_subscription":
                wire = command.end_txn_on_subscription
                self._state(_cursor(wire.subscription)).end(_key(wire.txn_id))
            elif name in ("seek", "unsubscribe"):
                self._state(_cursor(getattr(command, name).subscription)).move()

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "ack_response":
                ack = self._asked.pop((link, command.request_id), None)
                if ack is not None:
                    self._confirm(ack)
            elif name == "error":
                self._asked.pop((link, command.request_id), None)
                self._ending.pop((link, command.request_id), None)
            elif name == "end_txn_on_subscription_response":
                self._ended((link, command.request_id))
            elif name == "deliver":
                self._check(command.deliver)
            elif name == "describe_topic_response":
                self._check_floors(command.describe_topic_response)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for request in [one for one in self._ending if one[0] == link]:
            del self._ending[request]

    def on_crash(self) -> None:
        """The broker is gone, and what was under way there."""
        self._ending.clear()

    def _state(self, cursor: Cursor) -> _State:
        state = self._cursors.get(cursor)
        if state is None:
            state = self._cursors[cursor] = _State()
        return state

    def _ack(self, wire: broker_pb2.CommandAck) -> _Ack:
        cursor = _cursor(wire.subscription)
        offsets: set[int] = {one.entry_id + one.index for one in wire.message_ids}
        txn = None
        if wire.HasField("txn_id"):
            txn = _key(wire.txn_id)
        cumulative = wire.ack_type == broker_pb2.CommandAck.CUMULATIVE
        if cumulative and txn is None:
            offsets.update(
                range(max([*offsets, *(one.last for one in wire.ranges)], default=-1) + 1)
            )
        else:
            for one in wire.ranges:
                offsets.update(range(one.first, one.last + 1))
        state = self._state(cursor)
        held: set[int] = set()
        if txn is None:
            for acks in state.pending.values():
                held.update(*(other.offsets for other in acks))
            for other in self._asked.values():
                if other.cursor == cursor and other.txn is not None:
                    held |= other.offsets
        attached = self._attached.get((wire.consumer_id, cursor, wire.attach_epoch))
        return _Ack(
            cursor,
            state.generation if attached is None else attached,
            frozenset(offsets),
            txn,
            wire.consumer_id,
            state.ends[txn] if txn is not None else 0,
            frozenset(held),
        )

    def _confirm(self, ack: _Ack) -> None:
        state = self._state(ack.cursor)
        if ack.generation != state.generation:
            return
        if ack.txn is None:
            state.deleted |= ack.offsets - ack.held
        elif ack.ends == state.ends[ack.txn]:
            state.pending.setdefault(ack.txn, []).append(ack)

    def _end(self, request: tuple[int, int], wire: Any) -> None:
        cursor = _cursor(wire.subscription)
        state = self._state(cursor)
        acks = state.end(_key(wire.txn_id))
        if acks:
            offsets = frozenset().union(*(ack.offsets for ack in acks))
            self._ending[request] = _End(cursor, offsets, {})
        if wire.txn_action != common_pb2.COMMIT or wire.selection_given or wire.loss_accepted:
            return
        counts = {one.writer_id: one.count for one in wire.counts}
        for consumer_id in {ack.consumer_id for ack in acks}:
            # A repeated command is counted once by the broker, and more than once here.
            distinct = {ack.offsets for ack in acks if ack.consumer_id == consumer_id}
            if wire.counts_given and counts.get(consumer_id, 0) < len(distinct):
                return
        for ack in acks:
            state.deleted |= ack.offsets

    def _ended(self, request: tuple[int, int]) -> None:
        end = self._ending.pop(request, None)
        if end is None:
            return
        for offset, at in end.early.items():
            # What becomes durable together is answered and delivered at the same instant.
            if at < self._time():
                self._violation(
                    "a", f"{end.cursor} {offset} was delivered before its abort was durable"
                )

    def _check_floors(self, wire: Any) -> None:
        """Rule i: a mark-delete offset that anybody is told passes nothing that is pending."""
        for partition in wire.partitions:
            for one in partition.subscriptions:
                cursor = (wire.topic_id, partition.partition, one.subscription)
                state = self._cursors.get(cursor)
                for txn, acks in state.pending.items() if state is not None else ():
                    lowest = min(min(ack.offsets, default=inf) for ack in acks)
                    if lowest < one.mark_delete_offset:
                        self._violation(
                            "i",
                            f"mark-delete of {cursor} is {one.mark_delete_offset}, {lowest} is"
                            f" pending in {txn}",
                        )

    def _check(self, wire: broker_pb2.CommandDeliver) -> None:
        cursor = self._consumers.get((wire.consumer_id, wire.topic_id, wire.partition))
        state = self._cursors.get(cursor) if cursor is not None else None
        if state is None or not (state.deleted or state.pending or self._ending):
            return
        for delivered in wire.batches:
            first = delivered.entry_id + delivered.first_index
            offsets = set(range(first, first + delivered.num_messages))
            for one in delivered.excluded:
                offsets.difference_update(range(one.first, one.last + 1))
            for end in self._ending.values():
                if end.cursor == cursor:
                    for offset in offsets & end.offsets:
                        end.early.setdefault(offset, self._time())
            wrong = offsets & state.deleted
            if wrong:
                self._violation("2", f"{cursor} {min(wrong)} is delivered after its ack")
            for txn, acks in state.pending.items():
                for ack in acks:
                    wrong = offsets & ack.offsets
                    if wrong:
                        self._violation(
                            "6", f"{cursor} {min(wrong)} is delivered, pending in {txn}"
                        )


def _key(wire: common_pb2.TxnId) -> TxnKey:
    return (wire.most_bits, wire.least_bits)


def _cursor(wire: common_pb2.Subscription) -> Cursor:
    return (wire.topic_id, wire.partition, wire.subscription)
