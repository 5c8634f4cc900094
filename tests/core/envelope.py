"""Frames as links carry them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar_core.wire import service_pb2


def framed(*commands: service_pb2.Command) -> bytes:
    """Return a frame as a link carries it."""
    return service_pb2.Frame(commands=commands).SerializeToString()


def parsed(on_frame: Callable[[service_pb2.Frame], Any]) -> Callable[[bytes], None]:
    """Return what takes the frames of a server, and passes them on as a client reads them."""
    return lambda data: on_frame(service_pb2.Frame.FromString(data))
