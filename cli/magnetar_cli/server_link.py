"""A link to one server, for commands whose answers are awaited one by one."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar_core.errors import from_wire
from magnetar_core.transport.frames import Carried, FrameWriter
from magnetar_core.transport.transport import Link, LinkClosed, Transport


class ServerLink:
    """A conversation with a server. Make it with `ServerLink.open`."""

    def __init__(self, address: str, answer_timeout_s: float) -> None:
        self._address = address
        self._answer_timeout_s = answer_timeout_s
        self._last_id = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._closed = False
        self._link: Link | None = None
        self._writer: FrameWriter | None = None

    @classmethod
    async def open(
        cls, transport: Transport, address: str, service: str, *, answer_timeout_s: float
    ) -> ServerLink:
        """Begin a conversation.

        Args:
            service: "Broker" or "TransactionCoordinator".
            answer_timeout_s: how long each answer is awaited.
        Raises:
            LinkClosed: no server answers there.
        """
        self = cls(address, answer_timeout_s)
        self._link = await transport.connect(address, service, self._on_frame, self._on_closed)
        self._writer = FrameWriter(self._link.write)
        return self

    async def ask(self, body: Any) -> Any:
        """Send a command, and return its answer.

        Raises:
            LinkClosed: there is no answer, or no such service.
            MagnetarError: the server refuses.
        """
        if self._closed or self._writer is None:
            raise LinkClosed(f"{self._address} hung up")
        self._last_id += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._last_id] = answer
        self._writer.send(body, self._last_id)
        try:
            name, found = await asyncio.wait_for(answer, self._answer_timeout_s)
        except TimeoutError:
            raise LinkClosed(
                f"{self._address} did not answer in {self._answer_timeout_s:.0f} s"
            ) from None
        if name == "error":
            raise from_wire(found)
        return found

    def close(self) -> None:
        """End the conversation."""
        self._on_closed()
        if self._link is not None:
            self._link.close()

    def _on_frame(self, frame: Carried) -> None:
        for command in frame.commands:
            answer = self._answers.pop(command.request_id, None)
            if answer is not None and not answer.done():
                name = command.WhichOneof("body")
                answer.set_result((name, getattr(command, name)))

    def _on_closed(self) -> None:
        self._closed = True
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(LinkClosed(f"{self._address} hung up before it answered"))
