"""Unary calls at a server: their sender, their visit to a shard, and their answer."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from magnetar_core.commands import CommandServer, Gate, Reply, check_answer, run_handler
from magnetar_core.errors import LogUnavailable
from magnetar_core.principal import Principal
from magnetar_core.traces.spans import Span
from magnetar_core.wire import service_pb2


class Sender(NamedTuple):
    """Sender of a unary call: its machine, who it is, whom its command passes, and its span."""

    origin: str
    principal: Principal
    gate: Gate | None
    span: Span | None = None


class UnaryVisit:
    """Unary call, as the door of its shard sees it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def finish(self) -> None:
        """Wait for the answer."""

    def end(self) -> None:
        """Answer without the shard."""
        if not self.answer.done():
            self.answer.set_result(LogUnavailable().to_wire())


async def answer_to(
    commands: CommandServer, name: str, request: Any, sender: Sender, answer: asyncio.Future[Any]
) -> Any:
    """Return the answer to a unary call.

    Args:
        request: None for a request that cannot be parsed.
        answer: to be filled, unless the call has been ended meanwhile.
    """
    if answer.done():
        return answer.result()

    def respond(body: Any) -> None:
        check_answer(body)
        if not answer.done():
            answer.set_result(body)

    reply = Reply(respond, None, sender.origin, principal=sender.principal)
    reply.span = sender.span
    if request is None:
        run_handler(commands.handlers, None, service_pb2.Command(), reply, commands.refuse)
    else:
        envelope = service_pb2.Command(**{name: request})
        run_handler(commands.handlers, name, envelope, reply, commands.refuse, sender.gate)
    return await answer
