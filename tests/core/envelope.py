"""Messages in their envelope, as frames carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from magnetar_core.transport.columns.kinds import ANSWERS, COLUMNS, COLUMNS_OF, as_row
from magnetar_core.transport.frames import FIELD_OF_BODY, Carried, FrameWriter
from magnetar_core.transport.spliced import whole
from magnetar_core.wire import service_pb2


def command(body: Any, request_id: int = 0) -> service_pb2.Command:
    return service_pb2.Command(request_id=request_id, **{FIELD_OF_BODY[type(body)]: body})


def framed(*commands: service_pb2.Command) -> bytes:
    """Return a frame as a link carries it."""
    return service_pb2.Frame(commands=commands).SerializeToString()


def parsed(on_frame: Callable[[service_pb2.Frame], Any]) -> Callable[[bytes], None]:
    """Return what takes the frames of a server, and passes them on as a client reads them."""
    return lambda data: on_frame(service_pb2.Frame.FromString(data))


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
        assert len(request_ids) == answers.asked_count
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
        assert name is not None
        body = getattr(one, name)
        row = as_row(body)
        body = row if type(row) in COLUMNS_OF else body
        writer.send(body, one.request_id, one.traceparent)
    writer.flush()
    return b"".join(frames)
