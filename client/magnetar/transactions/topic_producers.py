"""The producers with which transactions send to topics by name: one for each topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from magnetar.arguments import text
from magnetar.link.runtime import Runtime
from magnetar.transactions.writer_protocols import TopicProducer
from magnetar_core.errors import MagnetarError


class TopicProducers:
    """Producers with default settings, each made with the first message to its topic."""

    def __init__(self, runtime: Runtime, make: Callable[[str], Awaitable[TopicProducer]]) -> None:
        """No producer has been made yet.

        Args:
            make: makes the producer of a topic, or raises TopicNotFound.
        """
        self._runtime = runtime
        self._make = make
        self._by_topic: dict[str, TopicProducer] = {}

    async def of(self, topic: str) -> TopicProducer:
        """Return the producer of a topic.

        Raises:
            TopicNotFound: there is no such topic.
            InvalidArgument: it is not a text.
            MagnetarError: as Client.create_producer.
        """
        producer = self._by_topic.get(topic) if isinstance(topic, str) else None
        if producer is None:
            made = await self._make(text("topic", topic))
            # Another task may have been faster. All messages to a topic go through one producer:
            # otherwise they would have no order.
            producer = self._by_topic.setdefault(topic, made)
            if producer is not made:
                await made.close()
        return producer

    def forget(self, topic: str) -> None:
        """Make another producer for the next message to a topic, since the topic was deleted."""
        producer = self._by_topic.pop(topic, None)
        if producer is not None:
            name = f"close a producer of {topic}"
            self._runtime.spawn(partial(_close_failed, producer), name, self._runtime.fail)

    async def close(self) -> None:
        """Close all producers.

        Raises:
            MagnetarError: as Producer.close.
        """
        producers = list(self._by_topic.values())
        self._by_topic.clear()
        for producer in producers:
            await producer.close()


async def _close_failed(producer: TopicProducer) -> None:
    # Its transactions have been told why their messages failed.
    with suppress(MagnetarError):
        await producer.close()
