"""Shows ends of several participants as if each participant had been told, and answered, alone.

So checkers that listen on the wire know ends of single participants only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.links import COPY_REQUEST_ID
from tests.simulation.wiretaps import Named, Wiretaps

from magnetar_core.wire import common_pb2, transaction_pb2
from magnetar_core.wire import service_pb2 as pb

TOGETHER = "end_txn_on_participants"
ANSWERED = f"{TOGETHER}_response"
# Request ids that no process gives; a command's participants have ids beside each other.
_ALONE = 1 << 63
_PARTICIPANTS = 1 << 10

# Topic, topic id, partition, and subscription; without a name: the partition.
_Place = tuple[str, int, int, str]


class EndsAlone:
    """Passes on what a wire carries; says of each participant alone what is said of several."""

    def __init__(self, taps: Wiretaps) -> None:
        self._taps = taps
        # The participants of requests, by link and number.
        self._asked: dict[tuple[int, int], list[_Place]] = {}

    def on_connected(self, link: int, server: str) -> None:
        self._taps.on_connected(link, server)

    def on_request(self, link: int, frame: pb.Frame) -> None:
        self._note(link, frame)
        self._taps.on_request(link, alone(frame))

    def on_doubtful_request(self, link: int, frame: pb.Frame) -> None:
        self._note(link, frame)
        self._taps.on_doubtful_request(link, alone(frame))

    def on_said(self, link: int, speaker: Named, frame: pb.Frame) -> None:
        self._taps.on_said(link, speaker, alone(frame))

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        shown = pb.Frame()
        for command in frame.commands:
            places = self._asked.pop((link, command.request_id), None)
            if places is None:
                shown.commands.append(command)
            else:
                shown.commands.extend(_answers(command, places))
        self._taps.on_reply(link, shown)

    def on_closed(self, link: int) -> None:
        for request in [one for one in self._asked if one[0] == link]:
            del self._asked[request]
        self._taps.on_closed(link)

    def _note(self, link: int, frame: pb.Frame) -> None:
        for command in frame.commands:
            if command.WhichOneof("body") == TOGETHER:
                places = [_place(shown) for shown in _ends(command)]
                self._asked[link, command.request_id] = places


def command_of(request_id: int) -> int | None:
    """The number of the command that named this participant beside others; None: it was alone."""
    if not request_id & _ALONE:
        return None
    copy, rest = divmod(request_id ^ _ALONE, COPY_REQUEST_ID)
    return copy * COPY_REQUEST_ID + rest // _PARTICIPANTS


def alone(frame: pb.Frame) -> pb.Frame:
    """Divide a frame's ends of several participants, partitions first."""
    if all(command.WhichOneof("body") != TOGETHER for command in frame.commands):
        return frame
    shown = pb.Frame()
    for one in frame.commands:
        if one.WhichOneof("body") == TOGETHER:
            shown.commands.extend(_ends(one))
        else:
            shown.commands.append(one)
    return shown


def _ends(one: pb.Command) -> Iterator[pb.Command]:
    body = one.end_txn_on_participants
    given: dict[str, Any] = {
        "txn_id": body.txn_id,
        "txn_action": body.txn_action,
        "counts_given": body.counts_given,
        "selection_given": body.selection_given,
        "selected_writer_ids": body.selected_writer_ids,
        "loss_accepted": body.loss_accepted,
    }
    for number, partition in enumerate(body.partitions):
        yield pb.Command(
            request_id=_number(one, number),
            end_txn_on_partition=transaction_pb2.CommandEndTxnOnPartition(
                partition=partition.partition, counts=partition.producers, **given
            ),
        )
    for number, acked in enumerate(body.subscriptions, len(body.partitions)):
        yield pb.Command(
            request_id=_number(one, number),
            end_txn_on_subscription=transaction_pb2.CommandEndTxnOnSubscription(
                subscription=acked.subscription, counts=acked.consumers, **given
            ),
        )


def _answers(one: pb.Command, places: list[_Place]) -> Iterator[pb.Command]:
    """What each participant answers; one that waits for others, that it cannot be had now."""
    refusals: dict[_Place, common_pb2.ServerError] = {}
    if one.WhichOneof("body") == "error":
        refusals = dict.fromkeys(places, one.error)
    else:
        for unfinished in one.end_txn_on_participants_response.unfinished:
            partition = unfinished.partition
            place = (
                partition.topic,
                partition.topic_id,
                partition.partition,
                unfinished.subscription,
            )
            waits = common_pb2.ServerError(code=common_pb2.LOG_UNAVAILABLE, message="it waits")
            refusals[place] = unfinished.error if unfinished.HasField("error") else waits
    txn_id = one.end_txn_on_participants_response.txn_id
    for number, place in enumerate(places):
        answer = pb.Command(request_id=_number(one, number))
        if place in refusals:
            answer.error.CopyFrom(refusals[place])
        elif place[3]:
            answer.end_txn_on_subscription_response.txn_id.CopyFrom(txn_id)
        else:
            answer.end_txn_on_partition_response.txn_id.CopyFrom(txn_id)
        yield answer


def _place(end: pb.Command) -> _Place:
    if end.WhichOneof("body") == "end_txn_on_subscription":
        name = end.end_txn_on_subscription.subscription
        return (name.topic, name.topic_id, name.partition, name.subscription)
    partition = end.end_txn_on_partition.partition
    return (partition.topic, partition.topic_id, partition.partition, "")


def _number(one: pb.Command, number: int) -> int:
    copy, request_id = divmod(one.request_id, COPY_REQUEST_ID)
    return _ALONE | copy * COPY_REQUEST_ID | request_id * _PARTICIPANTS + number
