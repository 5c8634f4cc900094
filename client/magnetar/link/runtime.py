"""What every part of a client shares: clock, randomness, settings, background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from magnetar.config import ClientConfig
from magnetar.errors import ClientClosed
from magnetar.link.deadlines import Deadlines
from magnetar_core.backoff import Backoff
from magnetar_core.clock import Clock
from magnetar_core.cluster_identity import ClusterIdentity
from magnetar_core.transport import Transport

if TYPE_CHECKING:
    from magnetar.link.traces import ClientTraces

log = logging.getLogger("magnetar")

ID_BITS = 63

T = TypeVar("T")


class Runtime:
    """The world of a client. Nothing else in the SDK uses time or randomness."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        random: Random,
        config: ClientConfig,
        traces: ClientTraces | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.random = random
        self.config = config
        # Makes spans; None: there are none.
        self.traces = traces
        # A client belongs to the loop in which it was made. To ask for the running one costs a
        # system call in CPython 3.11.
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop)
        # Learned from the first server; a server of another cluster is then refused.
        self.cluster = ClusterIdentity()
        self.has_reached_a_server = False
        # Version of the list of members that is known, and how many coordinators it has.
        self.members_version = 0
        self.coordinator_count = 0
        # The highest stamp of a commit that this client has heard of: its own commits get higher
        # ones.
        self.seen_stamp = 0
        # Blocks of transactions that have not ended: see magnetar.transactions.transaction_block.
        self.open_blocks: set[object] = set()
        # In order of start: cancelled in that order too.
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._task_count = 0
        self._closing = asyncio.Event()
        self._number = 0

    def new_id(self) -> int:
        """Return a random id for a producer or consumer; never 0."""
        return self.random.getrandbits(ID_BITS) or 1

    def next_number(self) -> int:
        """Return a number that is unique in this client."""
        self._number += 1
        return self._number

    def backoff(self) -> Backoff:
        """Return the pauses between repeats, as configured."""
        config = self.config
        return Backoff(config.backoff_ms_min, config.backoff_ms_max, self.random)

    @property
    def has_latest_members(self) -> bool:
        """Whether no server has told of a later list of members than the one that is known."""
        return self.cluster.membership_version <= self.members_version

    @property
    def has_one_coordinator(self) -> bool:
        """Whether all commits are decided by the same coordinator, which knows all stamps."""
        return self.coordinator_count == 1 and self.has_latest_members

    def saw(self, stamp: int) -> None:
        """Note the stamp of a commit that this client hears of; 0: it has none."""
        if stamp > self.seen_stamp:
            self.seen_stamp = stamp

    def now_ms(self) -> float:
        """Return the milliseconds of a clock that does not jump."""
        return self.clock.monotonic_ms()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in the background; it is cancelled when the client closes.

        If the client is closed already, the coroutine never runs, and the task ends with
        ClientClosed.
        """
        if self._closing.is_set():
            # Nobody would cancel it any more.
            work.close()
            work = _refuse()
        task = self.loop.create_task(work, name=name)
        self._task_count += 1
        number = self._task_count
        self._tasks[number] = task

        def done(finished: asyncio.Task[Any]) -> None:
            self._tasks.pop(number, None)
            if not finished.cancelled() and finished.exception() is not None:
                log.debug("background task %s failed", name, exc_info=finished.exception())

        task.add_done_callback(done)
        return task

    async def pause(self, duration_ms: float) -> None:
        """Wait for some time.

        Raises:
            ClientClosed: the client closes; at once.
        """
        try:
            async with asyncio.timeout(duration_ms / 1000):
                await self._closing.wait()
        except TimeoutError:
            return
        raise ClientClosed("the client is closed")

    async def result_of(self, task: asyncio.Task[T]) -> T:
        """Wait for a background task, which goes on if whoever waits is cancelled.

        Raises:
            ClientClosed: the task was cancelled, since the client closes. As asyncio.CancelledError
                it would look as if somebody had cancelled whoever waits.
        """
        if not task.done():
            await asyncio.wait((task,))
        if task.cancelled():
            raise ClientClosed("the client was closed")
        return task.result()

    async def cancel_all(self) -> None:
        """Cancel all background tasks, and take no more.

        The links are closed: calls that wait for an answer, or pause before they ask again, first
        hear of that, and say whether what they asked for may have happened.
        """
        self._closing.set()
        await asyncio.sleep(0)
        current = asyncio.current_task()
        tasks = [task for task in self._tasks.values() if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.deadlines.close()


async def _refuse() -> NoReturn:
    raise ClientClosed("the client is closed")
