"""All that a client has open, apart from the object that the program holds.

So the program may drop the client: what runs on the event loop does not refer to it, and closes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from weakref import ReferenceType, ref

from magnetar import process_end
from magnetar.arguments import checked
from magnetar.config import ProducerConfig
from magnetar.errors import ClientClosed
from magnetar.groups.open_consumers import OpenConsumers
from magnetar.link.cluster import Cluster
from magnetar.messaging.sending.open_producers import OpenProducers
from magnetar.messaging.sending.producer import Producer
from magnetar.transactions.open_transactions import OpenTransactions
from magnetar_core.clock import SystemClock
from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.transport.waiters import settle


class OpenClient:
    """The transactions, producers, consumers and links of a client, and how they end."""

    def __init__(self, cluster: Cluster) -> None:
        self.transactions = OpenTransactions(
            cluster,
            self._make_producer,
            lambda consumer_id: self.consumers.find(consumer_id),
        )
        self.producers = OpenProducers(cluster, self.transactions.begin)
        self.consumers = OpenConsumers(cluster, self.transactions, self.producers.budget)
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._runtime.on_failed = partial(_fail, ref(self))
        self._ended = asyncio.Event()
        self._is_warned_of = False
        # In virtual time a client ends with its node, and the collector of garbage decides nothing.
        self._is_watched = isinstance(self._runtime.clock, SystemClock)
        if self._is_watched:
            process_end.watch(self)
            self._dropped: asyncio.Future[OpenClient] = self._runtime.loop.create_future()
            keeping = partial(_keep, self._dropped, ref(self))
            self._runtime.spawn(keeping, "close when it is dropped", self._runtime.fail)

    @checked
    async def _make_producer(self, topic: str) -> Producer:
        """Make a producer with default settings, for what transactions send by topic."""
        if self._runtime.is_closing:
            raise ClientClosed("the client is closed")
        return await self.producers.make(topic, ProducerConfig())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it runs."""
        return self._runtime.loop

    @property
    def is_open(self) -> bool:
        """Whether its close has not begun."""
        return not self._runtime.is_closing

    def fail(self, error: MagnetarError) -> None:
        """Fail everything: see Runtime.fail."""
        parts = (self.transactions, self.producers, self.consumers, self._cluster)
        self._runtime.fail_each([part.fail for part in parts], error)

    async def close(self) -> None:
        """Close everything: see Client.close. A second call waits for the end of the first."""
        if self._runtime.is_closing:
            await self._ended.wait()
            return
        self._runtime.is_closing = True
        try:
            await self.transactions.abort_all()
            await self.producers.close_all()
            await self.consumers.close_all()
        except BaseException:
            # It is cut short, for example by a cancellation: calls that wait are told nevertheless.
            closed = ClientClosed("the client was closed")
            self.transactions.fail(closed)
            self.producers.fail(OutcomeUnknown("the client was closed before the answer came"))
            self.consumers.fail(closed)
            raise
        finally:
            try:
                self._cluster.close()
                await self._runtime.cancel_all()
                await self._runtime.transport.close()
                process_end.forget(self)
            finally:
                # Other calls of close() wait for this, also if this call is cancelled.
                self._ended.set()

    async def finish(self, within_s: float) -> dict[str, int]:
        """Close everything since the process ends, within this time.

        Returns:
            How many messages to each topic are not stored, as far as is known.
        """
        lost: dict[str, int] | None = None
        try:
            async with asyncio.timeout(within_s):
                await self.producers.drain()
                lost = self.producers.unstored()
                await self.close()
        except TimeoutError:
            pass
        return self.producers.unstored() if lost is None else lost

    def hand_over(self) -> None:
        """Leave it to other code to close everything when the client is dropped."""
        self._is_watched = False

    def belongs_to_test(self) -> None:
        """Do not warn if it is not closed: the test server that it is connected to closes it."""
        self._is_warned_of = True

    def drop(self, client: object) -> None:
        """Close everything in the background, since the program has dropped the client.

        It may be called on any thread, at any moment. It does not wait.
        """
        if self._runtime.is_closing or self._runtime.is_forked or not self._is_watched:
            return
        self._warn_of(client)
        try:
            self._runtime.loop.call_soon_threadsafe(settle, self._dropped, self)
        except RuntimeError:
            # The loop is closed, and nothing can be sent.
            self.end_of_process()

    def end_of_process(self) -> None:
        """Say what is lost, since nothing more is sent."""
        if not (self._runtime.is_closing or self._runtime.is_forked):
            self._warn_of(self)
            self._runtime.is_closing = True
            process_end.forget(self)
            process_end.tell_lost(self.producers.unstored())

    def _warn_of(self, client: object) -> None:
        if not self._is_warned_of:
            self._is_warned_of = True
            process_end.warn_of(client, "magnetar.Client")

    def loop_ends(self) -> None:
        """Say what is lost, and give everything up, since nothing runs after the loop."""
        self.end_of_process()
        self.producers.abandon()
        self._cluster.close()
        self._runtime.close()


def _fail(opened: ReferenceType[OpenClient], error: MagnetarError) -> None:
    one = opened()
    if one is not None:
        one.fail(error)


async def _keep(dropped: asyncio.Future[OpenClient], opened: ReferenceType[OpenClient]) -> None:
    """Close a client when it is dropped, and note the end of its loop.

    While it waits, it does not refer to the client, which would never be dropped.
    """
    try:
        await (await dropped).close()
    except asyncio.CancelledError:
        one = opened()
        # asyncio.run() cancels all tasks at its end. Other code that cancels tasks is a task
        # itself.
        ends = all(task.cancelling() for task in asyncio.all_tasks())
        if one is not None and ends:
            one.loop_ends()
        raise
