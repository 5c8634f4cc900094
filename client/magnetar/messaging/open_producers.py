"""The producers of a client: makes and closes them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from magnetar.config import ProducerConfig
from magnetar.link.cluster import Cluster
from magnetar.messaging.backpressure import PendingBudget
from magnetar.messaging.producer import Producer
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
        self._open: dict[int, Producer] = {}

    async def make(self, topic: str, config: ProducerConfig) -> Producer:
        """Make a producer: see Client.create_producer."""
        producer = Producer(
            self._cluster.runtime,
            await self._cluster.route(topic),
            config,
            self.budget,
            begin=self._begin,
            on_close=self._forget,
        )
        self._open[producer.producer_id] = producer
        return producer

    def fail(self, error: MagnetarError) -> None:
        """Fail the unconfirmed messages of all producers, since the client has failed."""
        producers = list(self._open.values())
        self._cluster.runtime.fail_each([producer.fail for producer in producers], error)

    async def close_all(self) -> None:
        """Flush and close every producer that is open. Logs failures."""
        for producer in list(self._open.values()):
            try:
                await producer.close()
            except MagnetarError as error:
                log.warning("closing: messages to %s failed: %s", producer.topic, error)

    async def drain(self) -> None:
        """Wait until all messages outside of transactions are confirmed, or have failed."""
        await asyncio.gather(*(producer.drain_plain() for producer in self._open.values()))

    def abandon(self) -> None:
        """Let producers take nothing more: the event loop has ended."""
        for producer in self._open.values():
            producer.abandon()

    def unstored(self) -> dict[str, int]:
        """Return how many messages to each topic are neither confirmed, nor told as failed."""
        counts: Counter[str] = Counter()
        for producer in self._open.values():
            counts[producer.topic] += producer.unstored_count
        return dict(counts)

    def _forget(self, producer: Producer) -> None:
        self._open.pop(producer.producer_id, None)
