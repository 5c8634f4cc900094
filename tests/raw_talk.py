"""A conversation with a server, command by command, without the SDK's patience."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.core.envelope import framed

from magnetar.testing.envelope import command
from magnetar_core.errors import from_wire
from magnetar_core.transport.frames import Carried
from magnetar_core.transport.transport import Link, Transport
from magnetar_core.wire import service_pb2


class RawTalk:
    """A conversation; requests stay unanswered when it ends.

    Attributes:
        closed: set when the conversation has ended.
        pushed: commands that were not asked for.
    """

    _link: Link

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.pushed: list[service_pb2.Command] = []
        self._last = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}

    async def connect(self, transport: Transport, address: str, service: str) -> RawTalk:
        self._link = await transport.connect(address, service, self._on_frame, self.closed.set)
        return self

    def begin(self, body: Any) -> asyncio.Future[Any]:
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        self._link.write(framed(command(body, self._last)))
        return answer

    async def ask(self, body: Any) -> Any:
        return await self.begin(body)

    def _on_frame(self, frame: Carried) -> None:
        for one in frame.commands:
            if not one.request_id:
                self.pushed.append(one)
            elif one.HasField("error"):
                self._answers[one.request_id].set_exception(from_wire(one.error))
            else:
                body = getattr(one, one.WhichOneof("body") or "")
                self._answers[one.request_id].set_result(body)
