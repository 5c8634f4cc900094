"""Unary calls at a server: their limits, their visit to a shard, and their answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from magnetar_core.access.principal import Principal
from magnetar_core.errors import LogUnavailable
from magnetar_core.security.identity import Identity
from magnetar_core.server.commands import CommandServer, Gate, Reply, check_answer, run_handler
from magnetar_core.server.doors import Door
from magnetar_core.server.grpc_calls import abort, machine_of, traceparent_of
from magnetar_core.traces.spans import ServerTraces, Span
from magnetar_core.transport.answer_budget import AnswerBudget
from magnetar_core.transport.columns.kinds import as_message, as_row
from magnetar_core.transport.frames import COMMAND_BYTES_MAX, FIELD_OF_BODY, LARGE_COMMANDS
from magnetar_core.transport.slow_operations import SlowOperations
from magnetar_core.transport.spliced import serialized
from magnetar_core.wire import common_pb2, service_pb2

Context = grpc.aio.ServicerContext[Any, Any]
# Returns who makes a call, and the door of the shard that it names; ends a call that may not enter.
Enter = Callable[[Context], Awaitable[tuple[Identity, Door]]]


class Sender(NamedTuple):
    """Sender of a unary call: its machine, its principal, its gate, and its span."""

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
        body = as_message(body)
        check_answer(body)
        if not answer.done():
            answer.set_result(body)

    reply = Reply(respond, None, sender.origin, principal=sender.principal, span=sender.span)
    if request is None:
        items = [(service_pb2.Command(), reply)]
        run_handler(commands.handlers, None, items, commands.refuse)
    else:
        items = [(as_row(request), reply)]
        run_handler(commands.handlers, name, items, commands.refuse, sender.gate)
    return await answer


class UnaryCalls:
    """The unary forms of a server's commands.

    Args:
        enter: asked first about each call.
        gate: the gate that checks each command first; None: there is none.
        slow_operations: is told how long answers took.
        traces: makes the spans of commands; None: there are none.
        answer_bytes_max: limit of the answers that all calls of a connection leave unread.
    """

    def __init__(
        self,
        enter: Enter,
        gate: Gate | None,
        slow_operations: SlowOperations,
        traces: ServerTraces | None,
        *,
        answer_bytes_max: int,
    ) -> None:
        self._enter = enter
        self._gate = gate
        self._slow_operations = slow_operations
        self._traces = traces
        self._answer_bytes_max = answer_bytes_max
        # Keys are the addresses of clients.
        self._budgets: WeakValueDictionary[str, AnswerBudget] = WeakValueDictionary()

    def handler(self, method: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        """Return gRPC's handler of a method."""
        request_class = GetMessageClass(method.input_type)
        # A unary method is named after its request; this is the request's field in the envelope.
        name = FIELD_OF_BODY[request_class]
        may_be_large = name in LARGE_COMMANDS

        def read(data: bytes) -> Any:
            """Parse a request; None if it cannot be parsed."""
            if len(data) > COMMAND_BYTES_MAX and not may_be_large:
                return None
            try:
                return request_class.FromString(data)
            except DecodeError:
                return None

        async def call(request: Any, context: Context) -> Any:
            body = await self._answer(name, request, context)
            if isinstance(body, common_pb2.ServerError):
                await abort(context, body)
            return body

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=read, response_serializer=serialized
        )

    async def _answer(self, name: str, request: Any, context: Context) -> Any:
        """Return the answer to a call: a response, or an error.

        Args:
            request: None for a request that cannot be parsed.
        """
        identity, door = await self._enter(context)
        size_of = door.answer_sizes.get(name)
        reserved = size_of(request) if size_of is not None and request is not None else 0
        budget = self._budget_of(context.peer())
        visit = UnaryVisit()
        span: Span | None = None
        door.come(visit)
        try:
            while reserved and not budget.take(reserved):
                await budget.shrinks()
            if reserved:
                # The budget is used until the client has taken the answer, or the call is
                # cancelled.
                done: Any = partial(_give_back, budget, reserved)
                context.add_done_callback(done)
            traceparent = traceparent_of(context)
            if self._traces is not None and request is not None:
                span = self._traces.command(name, as_row(request), traceparent)
            sender = Sender(machine_of(context), identity.principal, self._gate, span)
            begun_ms = self._slow_operations.begun()
            body = await answer_to(door, name, request, sender, visit.answer)
            self._slow_operations.answered(name, sender.origin, begun_ms, traceparent, span)
            if span is not None:
                span.answered(body)
        finally:
            door.leave(visit)
            if span is not None:
                # The client has gone, unless it is answered.
                span.end("CANCELLED")
        return body

    def _budget_of(self, peer: str) -> AnswerBudget:
        """Return the budget that all unary calls of a connection share, while any of them runs."""
        budget = self._budgets.get(peer)
        if budget is None:
            budget = AnswerBudget(self._answer_bytes_max)
            self._budgets[peer] = budget
        return budget


def _give_back(budget: AnswerBudget, byte_count: int, _: object) -> None:
    budget.give_back(byte_count)
