"""Link to a broker, or a coordinator, that reconnects whenever it breaks.

The link knows handshakes and reconnecting, not transactions. When it breaks, it forgets commands
without an answer; its owner sends them again when the link comes back. A silent link gets a
keepalive request, and is given up when no answer comes: a broker that vanished may leave a link
that looks sound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import repeat
from random import Random
from typing import Any

from google.protobuf.message import DecodeError

from magnetar_core.backoff import delay_ms
from magnetar_core.errors import UnsupportedVersion
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.protocol_version import PROTOCOL_VERSION, check_server
from magnetar_core.transport.columns.kinds import COLUMNS
from magnetar_core.transport.frames import Carried, FrameWriter, Numbered
from magnetar_core.transport.transport import LinkClosed, LinkRefused, Transport
from magnetar_core.wire import common_pb2 as common

log = logging.getLogger(__name__)

# The id of the handshake, and of its repeats as keepalive requests. Other ids count from here.
_HELLO_ID = 1
# Services of servers.
BROKER, COORDINATOR = "Broker", "TransactionCoordinator"
_TITLES = {BROKER: "the broker", COORDINATOR: "the coordinator"}

# The request id, the name of the answer's field, and the answer's message.
Answer = tuple[int, str, Any]


class BrokerLink:
    """Link of a server to a broker, or to a coordinator.

    Args:
        service: of the server there: BROKER or COORDINATOR.
        on_up: called when the handshake is done, also after each reconnection.
        on_answers: called for the answers that arrive together while the link is up.
        on_down: called when the link broke; open requests will get no answer.
    """

    def __init__(
        self,
        address: str,
        transport: Transport,
        settings: LinkSettings,
        random: Random,
        *,
        on_up: Callable[[], None],
        on_answers: Callable[[Sequence[Answer]], None],
        on_down: Callable[[], None],
        service: str = BROKER,
    ) -> None:
        self.address = address
        self._service = service
        self._title = f"{_TITLES[service]} at {address}"
        self._transport = transport
        self._settings = settings
        self._random = random
        self._on_up = on_up
        self._on_answers = on_answers
        self._on_down = on_down
        self._last_request_id = _HELLO_ID
        self._writer: FrameWriter | None = None
        # Set when the present conversation ends. Late frames of earlier conversations are ignored.
        self._closed: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        # Whether anything arrived since the last check.
        self._heard = False

    @property
    def is_up(self) -> bool:
        """Whether the handshake is done and the link has not broken since."""
        return self._writer is not None

    def start(self) -> None:
        """Begin to connect, and reconnect until stop()."""
        name = f"link to {self._title}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def stop(self) -> None:
        """End the conversation and do not reconnect. No callback runs afterwards."""
        self._writer = self._closed = None
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait until the link has ended."""
        self.stop()
        if self._task is not None:
            await asyncio.wait([self._task])

    def next_request_id(self) -> int:
        """Return a new request id."""
        self._last_request_id += 1
        return self._last_request_id

    def send(self, body: Any, request_id: int, traceparent: bytes = b"") -> None:
        """Send a command. Does nothing while the link is down.

        Args:
            traceparent: names the span that sends it; empty: none does.
        """
        if self._writer is not None:
            self._writer.send(body, request_id, traceparent=traceparent)

    def send_rows(self, rows: Sequence[Numbered]) -> None:
        """Send commands of a kind, at least one. Does nothing while the link is down."""
        if self._writer is not None:
            self._writer.send_rows(rows)

    async def _run(self) -> None:
        while True:
            try:
                await self._converse()
            except LinkRefused as error:
                log.warning("no link to %s: %s", self._title, error)
            except OSError as error:  # LinkClosed and timeouts are OSErrors.
                log.debug("no link to %s: %s", self._title, error)
            except Exception:
                log.exception("the link to %s failed", self._title)
            wait_ms = delay_ms(
                self._failures,
                self._settings.retry_delay_ms_min,
                self._settings.reconnect_delay_ms_max,
                self._random,
            )
            self._failures += 1
            await asyncio.sleep(wait_ms / 1_000)

    async def _converse(self) -> None:
        deadline_seconds = self._settings.answer_deadline_ms / 1_000
        closed = asyncio.Event()
        welcomed = asyncio.Event()

        def on_closed() -> None:
            closed.set()
            welcomed.set()

        def on_frame(frame: Carried) -> None:
            self._heard = True
            answers: list[Answer] = []
            for command in frame.commands:
                name = command.WhichOneof("body")
                columns = COLUMNS.get(name)
                if name is None:
                    continue
                if columns is not None:
                    try:
                        request_ids, _, rows = columns.unpack(getattr(command, name))
                    except DecodeError as error:
                        log.error("cannot read answers of %s: %s", self._title, error)
                        on_closed()
                        return
                    names = repeat(columns.name)
                    answers += zip(request_ids, names, rows, strict=False)
                elif command.request_id != _HELLO_ID:
                    answers.append((command.request_id, name, getattr(command, name)))
                elif self._accepts(name, getattr(command, name)):
                    welcomed.set()
                else:
                    on_closed()
            if answers and self._closed is closed and not closed.is_set():
                self._on_answers(answers)

        # Not wait_for, which can swallow a cancellation.
        async with asyncio.timeout(deadline_seconds):
            link = await self._transport.connect(self.address, self._service, on_frame, on_closed)
        writer = FrameWriter(link.write)
        try:
            writer.send(self._hello(), _HELLO_ID)
            async with asyncio.timeout(deadline_seconds):
                await welcomed.wait()
            if closed.is_set():
                raise LinkClosed("the link broke before its handshake was done")
            await self._be_up(writer, closed)
        finally:
            link.close()

    async def _be_up(self, writer: FrameWriter, closed: asyncio.Event) -> None:
        log.info("linked to %s", self._title)
        self._writer, self._closed = writer, closed
        self._failures = 0
        try:
            self._on_up()
            while not await self._silent(closed):
                pass
        finally:
            self._writer = self._closed = None
        log.warning("the link to %s broke", self._title)
        self._on_down()

    async def _silent(self, closed: asyncio.Event) -> bool:
        """Watch the link for a while, and return whether it has ended."""
        if await self._closes(closed):
            return True
        if self._heard:
            self._heard = False
            return False
        self.send(self._hello(), _HELLO_ID)
        return await self._closes(closed) or not self._heard

    async def _closes(self, closed: asyncio.Event) -> bool:
        """Return whether the link breaks within the time that an answer may take."""
        try:
            async with asyncio.timeout(self._settings.answer_deadline_ms / 1_000):
                await closed.wait()
        except TimeoutError:
            return False
        return True

    def _hello(self) -> common.CommandHello:
        return common.CommandHello(
            protocol_version=PROTOCOL_VERSION,
            client_name=self._settings.client_name,
            cluster_hash=self._settings.cluster_hash,
        )

    def _accepts(self, name: str, answer: Any) -> bool:
        if name == "hello_response":
            try:
                check_server(answer.protocol_version, self.address)
            except UnsupportedVersion as error:
                log.error("%s", error)
                return False
            ours, theirs = self._settings.cluster_hash, answer.cluster_hash
            if not ours or not theirs or ours == theirs:
                return True
            log.error("%s belongs to another cluster", self._title)
            return False
        log.error("%s refuses us: %s", self._title, answer)
        return False
