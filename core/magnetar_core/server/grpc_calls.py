"""Calls at a server as gRPC has them: for which shard, from where, and how errors end them."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

from magnetar_core.errors import ERROR_OF_CODE, InvalidArgument, MagnetarError
from magnetar_core.membership.shard_address import SHARD_KEY, ShardPlace
from magnetar_core.transport.stream_offers import WISH_KEY
from magnetar_core.wire import common_pb2

# A client refuses trailers of more than 8 KiB, and would report another error instead of ours.
STATUS_MESSAGE_BYTES_MAX = 500
STATUS_DETAILS_BYTES_MAX = 2_000


def place_of(context: grpc.aio.ServicerContext[Any, Any]) -> ShardPlace | None:
    """Return the shard that a call is meant for; None if it names none.

    Raises:
        InvalidArgument: the name is not that of a shard.
    """
    value = _metadata(context, SHARD_KEY)
    if value is None:
        return None
    try:
        return ShardPlace.parse(str(value))
    except ValueError as error:
        raise InvalidArgument(
            f"{SHARD_KEY}: {error}; give what follows the # in the shard's address"
        ) from None


def machine_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Return the address of the client's machine, without the port: ipv4:127.0.0.1, unix:."""
    peer = context.peer()
    return peer.rpartition(":")[0] if peer.startswith("ip") else peer.partition(":")[0]


def traceparent_of(context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Return the trace context of a unary call; empty: it has none."""
    value = _metadata(context, "traceparent")
    return value.encode() if isinstance(value, str) else value or b""


def stream_wish(context: grpc.aio.ServicerContext[Any, Any]) -> str | bytes | None:
    """Return the kind of stream to which the client can move a call's frames; None: it cannot."""
    return _metadata(context, WISH_KEY)


def _metadata(context: grpc.aio.ServicerContext[Any, Any], wanted: str) -> str | bytes | None:
    """Return the first value that a call has under a key; None: there is none."""
    for key, value in context.invocation_metadata() or ():
        if key == wanted:
            return value
    return None


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: common_pb2.ServerError) -> None:
    """End a call with an error. It does not return."""
    status = rpc_status.to_status(to_status(error))
    await context.abort(status.code, status.details, status.trailing_metadata or ())


def to_status(error: common_pb2.ServerError) -> status_pb2.Status:
    """Convert an error to a gRPC status, with the error itself as a typed detail."""
    name = ERROR_OF_CODE.get(error.code, MagnetarError).grpc_status
    told = common_pb2.ServerError(code=error.code, message=_shortened(error.message))
    room = STATUS_DETAILS_BYTES_MAX
    for key, value in error.details.items():
        room -= len(key) + len(value.encode())
        if room >= 0:
            told.details[key] = value
    detail = any_pb2.Any()
    detail.Pack(told)
    return status_pb2.Status(
        code=getattr(grpc.StatusCode, name).value[0], message=told.message, details=[detail]
    )


def _shortened(text: str) -> str:
    """Shorten a text to the room that gRPC's trailers have; they carry the text twice."""
    encoded = text.encode()
    if len(encoded) <= STATUS_MESSAGE_BYTES_MAX:
        return text
    return encoded[:STATUS_MESSAGE_BYTES_MAX].decode(errors="ignore") + "..."
