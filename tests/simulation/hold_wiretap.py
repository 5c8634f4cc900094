"""Listens where frames enter and leave the broker, and knows who has which message.

A message is with one consumer at a time: until it is acknowledged, given back, or its consumer has
left, it goes out to nobody again, and not to the same one either. Of FAILOVER nothing is said: what
the consumer had that is active no more goes to the next one, whether it has heard of that or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from magnetar_core.wire import broker_pb2
from magnetar_core.wire import service_pb2 as pb

# A subscription on one partition: topic id, partition, name.
Cursor = tuple[int, int, str]
# Consumer, topic id, partition.
Consumer = tuple[int, int, int]


class HoldWiretap:
    """Args:
    violation: ends the run; what is wrong, and text.
    """

    def __init__(self, violation: Callable[[str, str], NoReturn]) -> None:
        self._violation = violation
        # The link of each consumer that is attached, perhaps, and where.
        self._attached: dict[Consumer, tuple[int, Cursor]] = {}
        # Who has an offset.
        self._held: dict[Cursor, dict[int, int]] = {}
        self.counts: Counter[str] = Counter()

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "subscribe":
                self._subscribe(link, command.subscribe)
            elif name == "ack":
                cumulative = command.ack.ack_type == broker_pb2.CommandAck.CUMULATIVE
                offsets = {wire.entry_id + wire.index for wire in command.ack.message_ids}
                self._release(
                    _cursor(command.ack.subscription),
                    lambda offset, _, ack=command.ack, ids=offsets, everything=cumulative: (  # type: ignore[misc]
                        everything or offset in ids or _lies_in(offset, ack.ranges)
                    ),
                )
            elif name == "nack":
                self._release(
                    _cursor(command.nack.subscription),
                    lambda offset, holder, nack=command.nack: (  # type: ignore[misc]
                        holder == nack.consumer_id and _lies_in(offset, nack.ranges)
                    ),
                )
            elif name == "close_consumer":
                self._detach(_consumer(command.close_consumer), link)
            elif name in ("seek", "unsubscribe"):
                self._held.pop(_cursor(getattr(command, name).subscription), None)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "deliver":
                self._deliver(link, command.deliver)
            elif name == "consumer_change" and command.consumer_change.closed:
                wire = command.consumer_change
                self._detach((wire.consumer_id, wire.topic_id, wire.partition), link)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for consumer in list(self._attached):
            self._detach(consumer, link)

    def on_crash(self) -> None:
        """The broker is gone: nobody has anything."""
        self._attached.clear()
        self._held.clear()

    def _subscribe(self, link: int, wire: broker_pb2.CommandSubscribe) -> None:
        consumer = _consumer(wire)
        known = self._attached.pop(consumer, None)
        if known is not None:
            # Perhaps it is refused; then nothing more is said of what it has.
            self._release(known[1], lambda _, holder: holder == consumer[0])
        if wire.type != broker_pb2.FAILOVER:
            self._attached[consumer] = link, _cursor(wire.subscription)

    def _detach(self, consumer: Consumer, link: int) -> None:
        known = self._attached.get(consumer)
        if known is not None and known[0] == link:
            del self._attached[consumer]
            self._release(known[1], lambda _, holder: holder == consumer[0])

    def _release(self, cursor: Cursor, goes: Callable[[int, int], bool]) -> None:
        held = self._held.get(cursor)
        if held:
            for offset in [offset for offset, holder in held.items() if goes(offset, holder)]:
                del held[offset]

    def _deliver(self, link: int, wire: broker_pb2.CommandDeliver) -> None:
        known = self._attached.get((wire.consumer_id, wire.topic_id, wire.partition))
        if known is None or known[0] != link:
            return  # Written before it attached anew, or closed.
        cursor = known[1]
        held = self._held.setdefault(cursor, {})
        for batch in wire.batches:
            first = batch.entry_id + batch.first_index
            for offset in range(first, first + batch.num_messages):
                if _lies_in(offset, batch.excluded):
                    continue
                holder = held.get(offset)
                if holder is not None:
                    self._violation(
                        "hold",
                        f"{cursor} {offset} goes to {wire.consumer_id}, and {holder} has it",
                    )
                held[offset] = wire.consumer_id
        self.counts["deliveries"] += 1


def _lies_in(offset: int, ranges: Iterable[Any]) -> bool:
    return any(one.first <= offset <= one.last for one in ranges)


def _cursor(wire: Any) -> Cursor:
    return (wire.topic_id, wire.partition, wire.subscription)


def _consumer(wire: Any) -> Consumer:
    place = wire.subscription
    return (wire.consumer_id, place.topic_id, place.partition)
