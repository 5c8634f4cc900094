"""A request of a Kafka client, as its handler gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from magnetar_broker.local_access import LocalAccess
from magnetar_kafka.answer import Answer
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.security.visitor import Visitor
from magnetar_kafka.wire.apis import Api

# So many digits of a random number name a call.
_TOKEN_BITS = 63


def new_token(random: Random) -> int:
    """Return a token of a call, by which a late copy of it is recognised."""
    return random.getrandbits(_TOKEN_BITS) | 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as its handler gets it.

    Attributes:
        caller: who sends it, and what it may do. A stranger sends only what strangers may.
        visitor: the client of the connection, as far as it is known.
        address: where the client has reached this server: host and port.
        is_external: whether it came through the port for clients outside.
        stopping: is set when the server stops: what waits is answered then.
    """

    api: Api
    version: int
    body: Mapping[str, Any]
    client_id: str
    caller: Caller
    visitor: Visitor
    address: tuple[str, int]
    is_external: bool
    stopping: asyncio.Event

    async def ask(self, access: LocalAccess, name: str, command: Any) -> Any:
        """Return the answer to a command of ours, asked in the name of the caller.

        Args:
            name: the command's field in the envelope.
        Raises:
            MagnetarError: the command is refused.
        """
        caller = self.caller
        return await access.ask(
            name, command, origin=caller.origin, principal=caller.principal, gate=caller.gate
        )


Handle = Callable[[Request], Awaitable[Answer]]
