"""A view that is looked at while it has viewers, once for all of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final, Protocol

from magnetar import Client, MagnetarError
from magnetar_console.feed import Feed
from magnetar_console.pauses import SCAN_PAUSE, Scans, pause_s
from magnetar_console.seen import Picture, Seen, Tables
from magnetar_core.clock import Clock
from magnetar_core.config import InvalidConfig

log = logging.getLogger("magnetar_console")

# The client gives up on each question earlier. This is for a look that waits for something else.
LOOK_S_MAX: Final = 60.0
ERROR_CHARACTERS_MAX: Final = 500


class Look(Protocol):
    """A question to the cluster that is asked again and again. It may remember its answers.

    Attributes:
        period_s: how often it is asked, in seconds.
        pause_factor: it waits so many times as long as it took at least; see pauses.py.
    """

    period_s: float
    pause_factor: float

    async def look(self, client: Client) -> Seen:
        """Ask, and return the rows. Raises: MagnetarError."""
        ...

    async def close(self) -> None:
        """Give up what it holds, since its last viewer has left."""
        ...


class Connection(Protocol):
    """The connection to the cluster, which is made when it is needed."""

    async def client(self) -> Client:
        """Return the client. Raises: MagnetarError, InvalidConfig."""
        ...

    async def failed(self, error: Exception) -> None:
        """Take note of an error; after some the next client is a new one."""
        ...


class Channel:
    """The views of one thing: a look, its feed, and how many viewers it has.

    Args:
        run: identifies this channel; a viewer of another one begins with the full state.
        look_s_max: how long a look may take.
        scans: the views that share its servers; None: it has them for itself.
    """

    def __init__(
        self,
        look: Look,
        connection: Connection,
        clock: Clock,
        run: str,
        look_s_max: float = LOOK_S_MAX,
        scans: Scans | None = None,
    ) -> None:
        self._look = look
        self._connection = connection
        self._clock = clock
        self._run = run
        self._look_s_max = look_s_max
        self._scans = scans or Scans()
        self._feed = Feed()
        self._tables: Tables = {}
        self._beat = 0
        self._beaten = asyncio.Condition()
        self._hurry = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._as_of_ms = 0
        self._problems: tuple[str, ...] = ()
        self._error = ""
        self._ended = False
        self.viewers = 0

    async def events(self, last_id: str = "") -> AsyncGenerator[str, None]:
        """Yield server-sent events for one viewer, until the channel ends.

        Args:
            last_id: the id of the last event that the viewer has got; empty: it has none.
        """
        version = self._version_of(last_id)
        async with aclosing(self._beats()) as beats:
            async for _ in beats:
                for event in self._news(version):
                    yield event
                version = self._feed.version

    async def pictures(self) -> AsyncGenerator[Picture, None]:
        """Yield a picture after each look, for a viewer in this process."""
        async with aclosing(self._beats()) as beats:
            async for _ in beats:
                yield Picture(self._tables, self._as_of_ms, self._problems, self._error)

    def look_soon(self) -> None:
        """Look now and not after the pause: a viewer knows that something has changed."""
        self._hurry.set()

    async def end(self) -> None:
        """End the events of all viewers."""
        self._ended = True
        await self._stop_looking()
        async with self._beaten:
            self._beaten.notify_all()

    async def _beats(self) -> AsyncGenerator[None, None]:
        """Count a viewer, and yield after each look, until the channel ends."""
        beat = 0
        self._enter()
        try:
            while not self._ended:
                if self._beat:
                    beat = self._beat
                    yield
                async with self._beaten:
                    await self._beaten.wait_for(lambda seen=beat: self._ended or self._beat != seen)  # type: ignore[misc]
        finally:
            await self._leave()

    def _news(self, version: int | None) -> list[str]:
        kind, texts = self._feed.since(version)
        number = self._feed.version
        events = [f"event: {kind}\nid: {self._run}.{number}\ndata: {text}\n\n" for text in texts]
        return [*events, f"event: beat\ndata: {self._status()}\n\n"]

    def _status(self) -> str:
        return json.dumps(
            {
                "now_ms": self._clock.wall_ms(),
                "as_of_ms": self._as_of_ms,
                "problems": self._problems,
                "error": self._error,
            }
        )

    def _version_of(self, last_id: str) -> int | None:
        run, _, number = last_id.rpartition(".")
        return int(number) if run == self._run and number.isascii() and number.isdigit() else None

    def _enter(self) -> None:
        self.viewers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._keep_looking())

    async def _leave(self) -> None:
        self.viewers -= 1
        if not self.viewers:
            await self._stop_looking()

    async def _stop_looking(self) -> None:
        task, self._looking = self._looking, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # Another viewer may have come meanwhile, and looks.
            if self._looking is None:
                await self._look.close()

    async def _keep_looking(self) -> None:
        scans = self._look.pause_factor == SCAN_PAUSE
        self._scans.count += scans
        try:
            await self._look_again_and_again()
        finally:
            self._scans.count -= scans

    async def _look_again_and_again(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            await self._look_once()
            self._beat += 1
            async with self._beaten:
                self._beaten.notify_all()
            took_s = (self._clock.monotonic_ms() - began_ms) / 1_000
            look = self._look
            sharers = self._scans.count if look.pause_factor == SCAN_PAUSE else 1
            await self._pause(pause_s(took_s, look.period_s, look.pause_factor, sharers))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        self._hurry.clear()

    async def _look_once(self) -> None:
        try:
            async with asyncio.timeout(self._look_s_max):
                seen = await self._look.look(await self._connection.client())
            self._feed.replace(seen.tables)
            self._tables = seen.tables
            self._problems, self._error = seen.problems, ""
            self._as_of_ms = self._clock.wall_ms()
        except (MagnetarError, InvalidConfig) as error:
            # The rows of the last look stay, with their age.
            self._error = _one_line(error)
            await self._connection.failed(error)
        except TimeoutError:
            self._error = f"there was no answer within {self._look_s_max:g} s"
        except Exception as error:
            log.exception("a look failed: this is a fault of the console")
            self._error = f"the console has a fault, its log says more: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text[:ERROR_CHARACTERS_MAX]
