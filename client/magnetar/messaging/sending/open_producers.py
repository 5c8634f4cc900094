"""The producers of a client: makes and closes them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from magnetar.config import ProducerConfig
from magnetar.link.cluster import Cluster
from magnetar.messaging.sending.backpressure import PendingBudget
from magnetar.messaging.sending.producer import Producer
from magnetar.messaging.sending.producer_work import ProducerWork
from magnetar.transactions.transaction import Transaction
from magnetar_core.errors import MagnetarError

log = logging.getLogger("magnetar")


class OpenProducers:
    """Makes producers, and knows those that are not closed. Belongs to one client.

    Attributes:
        budget: of the messages that all producers together may have pending.
    """

    def __init__(self, cluster: Cluster, begin: Callable[[], Awaitable[Transaction]]) -> None:
        config = cluster.runtime.config
        self.budget = PendingBudget(config.pending_bytes_max, config.pending_messages_max)
        self._cluster = cluster
        self._begin = begin
        self._open: dict[int, ProducerWork] = {}

    async def make(self, topic: str, config: ProducerConfig) -> Producer:
        """Make a producer: see Client.create_producer."""
        work = ProducerWork(
            self._cluster.runtime,
            await self._cluster.route(topic),
            config,
            self.budget,
            begin=self._begin,
            on_close=self._forget,
        )
        self._open[work.producer_id] = work
        traces = self._cluster.runtime.traces
        if traces is None:
            return Producer(work)
        # Only such a client has OpenTelemetry.
        from magnetar.messaging.sending.traced_producer import TracedProducer

        return TracedProducer(work, traces)

    def fail(self, error: MagnetarError) -> None:
        """Fail the unconfirmed messages of all producers, since the client has failed."""
        works = list(self._open.values())
        self._cluster.runtime.fail_each([work.fail for work in works], error)

    async def close_all(self) -> None:
        """Flush and close every producer that is open. Logs failures."""
        for work in list(self._open.values()):
            try:
                await work.close()
            except MagnetarError as error:
                log.warning("closing: messages to %s failed: %s", work.topic, error)

    async def drain(self) -> None:
        """Wait until all messages outside of transactions are confirmed, or have failed."""
        await asyncio.gather(*(work.drain_plain() for work in self._open.values()))

    def abandon(self) -> None:
        """Let producers take nothing more: the event loop has ended."""
        for work in self._open.values():
            work.abandon()

    def unstored(self) -> dict[str, int]:
        """Return how many messages to each topic are neither confirmed, nor told as failed."""
        counts: Counter[str] = Counter()
        for work in self._open.values():
            counts[work.topic] += work.unstored_count
        return dict(counts)

    def _forget(self, work: ProducerWork) -> None:
        self._open.pop(work.producer_id, None)
