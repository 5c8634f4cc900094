"""Whether a server answers, and its lease: a conversation with it, and a question every second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from magnetar import ClusterMembers
from magnetar_core.clock import Clock
from magnetar_core.config import InvalidConfig
from magnetar_core.transport.frames import Carried, FrameWriter
from magnetar_core.transport.transport import Link, LinkClosed, Transport
from magnetar_core.wire import topic_pb2

PERIOD_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 3.0


class ServerWatch:
    """Watches one server.

    Args:
        address: "host:port".
        on_news: called when it answers, or no longer does.

    Attributes:
        answers: whether it answers; None: not known yet.
        since_ms: since when, in milliseconds since the Unix epoch.
        reason: why it does not answer.
        members: what it told last of the members; None: nothing, as a server that keeps its shards.
        told_ms: when that was, in milliseconds since the Unix epoch.
    """

    def __init__(
        self,
        transport: Transport,
        address: str,
        service: str,
        clock: Clock,
        on_news: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._address = address
        self._service = service
        self._clock = clock
        self._on_news = on_news
        self._link: Link | None = None
        self._heard = asyncio.Event()
        self._hung_up = asyncio.Event()
        self.answers: bool | None = None
        self.since_ms = 0
        self.reason = ""
        self.members: ClusterMembers | None = None
        self.told_ms = 0
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop watching."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    self._hung_up.clear()
                    link = await self._transport.connect(
                        self._address, self._service, self._on_frame, self._hung_up.set
                    )
            except (LinkClosed, InvalidConfig) as error:
                self._note(False, str(error))
            except TimeoutError:
                self._note(False, f"no connection within {CONNECT_TIMEOUT_S:.0f} s")
            else:
                try:
                    await self._converse(link)
                finally:
                    link.close()
            await asyncio.sleep(PERIOD_S)

    async def _converse(self, link: Link) -> None:
        writer = FrameWriter(link.write)
        number = 0
        while not self._hung_up.is_set():
            number += 1
            self._heard.clear()
            writer.send(topic_pb2.CommandDescribeMembers(), number)
            if await self._first_of(self._heard, ANSWER_TIMEOUT_S):
                self._note(True, "")
                # It ends early when the server hangs up.
                await self._first_of(None, PERIOD_S)
            elif not self._hung_up.is_set():
                self._note(False, f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
                return
        self._note(False, "it has closed the connection")

    async def _first_of(self, heard: asyncio.Event | None, seconds: float) -> bool:
        """Wait for an event, or until the server hangs up. Return whether the event came."""
        waits = [asyncio.create_task(self._hung_up.wait())]
        if heard is not None:
            waits.append(asyncio.create_task(heard.wait()))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*waits, return_exceptions=True)
        return heard is not None and heard.is_set()

    def _on_frame(self, frame: Carried) -> None:
        for one in frame.commands:
            if one.HasField("describe_members_response"):
                self.members = ClusterMembers.from_wire(one.describe_members_response)
                self.told_ms = self._clock.wall_ms()
        # An error is an answer, too.
        self._heard.set()

    def _note(self, answers: bool, reason: str) -> None:
        if answers is not self.answers:
            self.answers = answers
            self.since_ms = self._clock.wall_ms()
            self.reason = reason
            self._on_news()
        self.reason = reason
