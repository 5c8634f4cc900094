"""Commands in their envelope, one by one and in columns, as links carry them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from magnetar_core.invariants import BrokenInvariant
from magnetar_core.transport.columns.kinds import COLUMNS, as_row
from magnetar_core.transport.frames import FIELD_OF_BODY, Carried, FrameWriter
from magnetar_core.transport.spliced import whole
from magnetar_core.wire import service_pb2


def command(body: Any, request_id: int = 0) -> service_pb2.Command:
    """Return a message in its envelope."""
    return service_pb2.Command(request_id=request_id, **{FIELD_OF_BODY[type(body)]: body})


def singles(frame: Carried) -> service_pb2.Frame:
    """Return a frame with each row of columns as a command alone."""
    return service_pb2.Frame(commands=[one for each in frame.commands for one in _singles(each)])


def _singles(one: service_pb2.Command) -> Iterator[service_pb2.Command]:
    columns = COLUMNS.get(one.WhichOneof("body"))
    if columns is None:
        yield one
        return
    request_ids, traceparents, rows = columns.unpack(getattr(one, columns.field))
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
        writer.send(as_row(getattr(one, name)), one.request_id, one.traceparent)
    writer.flush()
    return b"".join(frames)
