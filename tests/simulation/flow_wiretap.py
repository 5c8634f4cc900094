"""Listens where frames enter and leave the broker, and knows what each consumer may be handed.

Permits are messages: nothing goes out to a consumer that has none left, though its last batch may
be larger than what was left. What a consumer gave back is counted: whoever gets it next is told
that it comes again, unless the broker has restarted meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from magnetar_core.wire import broker_pb2
from magnetar_core.wire import service_pb2 as pb

Request = tuple[int, int]
# Link, consumer, topic id, partition.
Consumer = tuple[int, int, int, int]
# A subscription on one partition: topic id, partition, name.
Cursor = tuple[int, int, str]


class FlowWiretap:
    """Args:
    violation: ends the run; what is wrong, and text.
    """

    def __init__(self, violation: Callable[[str, str], NoReturn]) -> None:
        self._violation = violation
        # Given on this link at most: a new attachment begins with none.
        self._permits: Counter[Consumer] = Counter()
        self._cursors: dict[Consumer, Cursor] = {}
        # Who was handed a message last, and has not said anything about it since.
        self._holders: dict[Cursor, dict[int, Consumer]] = {}
        self._nacks: dict[Request, tuple[Cursor, set[int]]] = {}
        self._given_back: dict[Cursor, set[int]] = {}

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "flow":
                self._permits[_consumer(link, command.flow)] += command.flow.permits
            elif name == "subscribe":
                wire = command.subscribe.subscription
                consumer = _consumer(link, command.subscribe)
                self._cursors[consumer] = _cursor(wire)
                # What the last batch had exceeded is not held against who attaches again.
                self._permits[consumer] = max(0, self._permits[consumer])
            elif name in ("seek", "unsubscribe"):
                self._forget(_cursor(getattr(command, name).subscription))
            elif name == "ack":
                cursor = _cursor(command.ack.subscription)
                # Who acknowledges cumulatively does not say what; the rest may come or not.
                if command.ack.ack_type == broker_pb2.CommandAck.CUMULATIVE:
                    self._forget(cursor)
                for offset in self._offsets(command.ack):
                    self._holders.get(cursor, {}).pop(offset, None)
                    self._given_back.get(cursor, set()).discard(offset)
            elif name == "nack":
                self._nack((link, command.request_id), link, command.nack)

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            if name == "deliver":
                self._deliver(link, command.deliver)
            elif name in ("nack_response", "error"):
                cursor, offsets = self._nacks.pop((link, command.request_id), (None, set()))
                if cursor is not None and name == "nack_response":
                    # What has gone out again before the answer came is looked at no more.
                    holders = self._holders.get(cursor, {})
                    left = {offset for offset in offsets if offset not in holders}
                    self._given_back.setdefault(cursor, set()).update(left)

    def on_crash(self) -> None:
        """The broker is gone, and what it had in memory."""
        self._holders.clear()
        self._nacks.clear()
        self._given_back.clear()

    def _forget(self, cursor: Cursor) -> None:
        self._holders.pop(cursor, None)
        self._given_back.pop(cursor, None)

    def _nack(self, request: Request, link: int, wire: broker_pb2.CommandNack) -> None:
        cursor, consumer = _cursor(wire.subscription), _consumer(link, wire)
        holders = self._holders.get(cursor, {})
        held = {one for one in self._offsets(wire) if holders.get(one) == consumer}
        for offset in held:
            del holders[offset]
        self._nacks[request] = cursor, held

    @staticmethod
    def _offsets(wire: Any) -> set[int]:
        offsets = {one.entry_id + one.index for one in getattr(wire, "message_ids", ())}
        for one in wire.ranges:
            offsets.update(range(one.first, one.last + 1))
        return offsets

    def _deliver(self, link: int, wire: broker_pb2.CommandDeliver) -> None:
        consumer = (link, wire.consumer_id, wire.topic_id, wire.partition)
        cursor = self._cursors.get(consumer)
        if cursor is None:
            return
        for batch in wire.batches:
            first = batch.entry_id + batch.first_index
            offsets = set(range(first, first + batch.num_messages))
            for one in batch.excluded:
                offsets.difference_update(range(one.first, one.last + 1))
            if self._permits[consumer] <= 0:
                self._violation("flow", f"{consumer} is handed {first}, and has no permits left")
            self._permits[consumer] -= len(offsets)
            again = offsets & self._given_back.get(cursor, set())
            if again and not batch.redelivery_count:
                self._violation("flow", f"{cursor} {min(again)} came back, and is told as new")
            self._given_back.get(cursor, set()).difference_update(offsets)
            self._holders.setdefault(cursor, {}).update(dict.fromkeys(offsets, consumer))


def _consumer(link: int, wire: Any) -> Consumer:
    place = wire.subscription
    return (link, wire.consumer_id, place.topic_id, place.partition)


def _cursor(wire: Any) -> Cursor:
    return (wire.topic_id, wire.partition, wire.subscription)
