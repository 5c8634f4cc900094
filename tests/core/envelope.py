"""Messages in their envelope, as frames carry them."""

from __future__ import annotations

from typing import Any

from magnetar_core.frames import FIELD_OF_BODY
from magnetar_core.wire import service_pb2


def command(body: Any, request_id: int = 0) -> service_pb2.Command:
    return service_pb2.Command(request_id=request_id, **{FIELD_OF_BODY[type(body)]: body})
