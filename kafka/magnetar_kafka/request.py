"""A request of a Kafka client, as its handler gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from magnetar_kafka.answer import Answer
from magnetar_kafka.wire.apis import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as its handler gets it.

    Attributes:
        origin: the client's machine.
        address: where the client has reached this server: host and port.
        stopping: is set when the server stops: what waits is answered then.
    """

    api: Api
    version: int
    body: Mapping[str, Any]
    client_id: str
    origin: str
    address: tuple[str, int]
    stopping: asyncio.Event


Handle = Callable[[Request], Awaitable[Answer]]
