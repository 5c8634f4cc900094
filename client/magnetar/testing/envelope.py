"""Commands in their envelope, one by one and in columns, as links carry them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from magnetar_core.invariants import BrokenInvariant
from magnetar_core.transport.columns.kinds import ANSWERS, COLUMNS, COLUMNS_OF, as_row
from magnetar_core.transport.frames import FIELD_OF_BODY, Carried, FrameWriter
from magnetar_core.transport.spliced import whole
from magnetar_core.wire import service_pb2


def command(body: Any, request_id: int = 0) -> service_pb2.Command:
    """Return a message in its envelope."""
    return service_pb2.Command(request_id=request_id, **{FIELD_OF_BODY[type(body)]: body})


# The request ids of commands that left in a message, by the first of them.
Together = dict[int, Sequence[int]]


def singles(frame: Carried, together: Together | None = None) -> service_pb2.Frame:
    """Return a frame with each row of columns as a command alone.

    Args:
        together: of the conversation, so far: answers to a message do not name its commands.
    """
    together = {} if together is None else together
    commands = [one for each in frame.commands for one in _singles(each, together)]
    return service_pb2.Frame(commands=commands)


def _singles(one: service_pb2.Command, together: Together) -> Iterator[service_pb2.Command]:
    name = one.WhichOneof("body")
    if name in ANSWERS:
        answers = ANSWERS[name].unpack(getattr(one, name))
        request_ids = together[answers.first_request_id]
        if len(request_ids) != answers.asked_count:
            raise BrokenInvariant("an answer counts other commands than its message had")
        for place, row in zip(answers.places(), answers.rows, strict=True):
            yield command(row.to_wire(), request_ids[place])
        return
    columns = COLUMNS.get(name)
    if columns is None:
        yield one
        return
    request_ids, traceparents, rows = columns.unpack(getattr(one, columns.field))
    if columns.answers is not None:
        together[request_ids[0]] = list(request_ids)
    for number, (request_id, row) in enumerate(zip(request_ids, rows, strict=True)):
        alone = command(whole(row.to_wire()), request_id)
        if traceparents:
            alone.traceparent = traceparents[number]
        yield alone


def in_columns(*commands: service_pb2.Command) -> bytes:
    """Return a frame in which commands that may be in columns are."""
    frames: list[bytes] = []
    writer = FrameWriter(frames.append, lambda _: None)
    for one in commands:
        name = one.WhichOneof("body")
        if name is None:
            raise BrokenInvariant("a command has no body")
        body = getattr(one, name)
        row = as_row(body)
        body = row if type(row) in COLUMNS_OF else body
        writer.send(body, one.request_id, one.traceparent)
    writer.flush()
    return b"".join(frames)
