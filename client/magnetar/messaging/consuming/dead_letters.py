"""Moves messages that were given back too often to another topic, each exactly once.

A move is a transaction, in which the copy and the acknowledgement count together or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from magnetar.arguments import check_fields
from magnetar.config import require
from magnetar.link.runtime import Runtime
from magnetar.message import MessageColumns
from magnetar.messaging.sending.producer import Producer
from magnetar.transactions.transaction import Transaction
from magnetar_core.errors import MagnetarError

log = logging.getLogger("magnetar")

# What a dead letter says of where it comes from, among its properties.
ORIGIN_TOPIC = "magnetar-origin-topic"
ORIGIN_SUBSCRIPTION = "magnetar-origin-subscription"
ORIGIN_MESSAGE_ID = "magnetar-origin-message-id"
REDELIVERY_COUNT = "magnetar-redelivery-count"

# So many moves at once: more would hold the coordinator up for what is a rare event.
MOVES_MAX = 4

AckIn = Callable[[Transaction], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """When a message moves to the topic for dead letters, and which topic that is.

    Attributes:
        redeliveries_max: how often the application is given a message again before it moves: so
            it is given the message once more than that. A copy that stayed in the queue of a
            consumer counts only if that consumer vanished. The broker counts in memory, so the
            count begins again when the broker restarts.
        topic: the topic's name; by default "TOPIC-SUBSCRIPTION-DLQ". If it does not exist, it is
            made with a single partition. Several subscriptions may share it: each moves
            its own copy of a message, once.
    """

    redeliveries_max: int
    topic: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.redeliveries_max >= 0, "redeliveries_max must not be negative")
        require(self.redeliveries_max < 255, "redeliveries_max must be below 255")

    def topic_for(self, topic: str, subscription: str) -> str:
        """Return the name of the topic for dead letters of a subscription."""
        return self.topic or f"{topic}-{subscription}-DLQ"


class DeadLetters:
    """Moves the dead letters of a consumer."""

    def __init__(
        self,
        runtime: Runtime,
        policy: DeadLetterPolicy,
        subscription: str,
        producer: Producer,
        begin: Callable[[], Awaitable[Transaction]],
    ) -> None:
        self._runtime = runtime
        self._policy = policy
        self._subscription = subscription
        self._producer = producer
        self._begin = begin
        self._room = asyncio.Semaphore(MOVES_MAX)
        self._moves: dict[asyncio.Task[None], None] = {}

    def concerns(self, columns: MessageColumns) -> bool:
        """Whether these messages were given back too often."""
        return columns.redelivery_count > self._policy.redeliveries_max

    def move(
        self, columns: MessageColumns, acknowledge: AckIn, give_back: Callable[[], None]
    ) -> None:
        """Move messages in the background.

        Args:
            columns: the messages.
            acknowledge: acknowledges them in a transaction.
            give_back: asks for their redelivery; called when the move failed.
        """
        task = self._runtime.spawn(
            partial(self._move, columns, acknowledge, give_back),
            f"dead letters of {columns.topic}",
            lambda error: give_back(),
        )
        self._moves[task] = None
        self._runtime.when_done(self._runtime.fail, task, lambda done: self._moves.pop(done, None))

    async def close(self) -> None:
        """Wait for the moves that are under way."""
        await asyncio.gather(*self._moves, return_exceptions=True)
        await self._producer.close()

    async def _move(
        self, columns: MessageColumns, acknowledge: AckIn, give_back: Callable[[], None]
    ) -> None:
        async with self._room:
            try:
                async with await self._begin() as txn:
                    for message in columns:
                        properties = {
                            **message.properties,
                            ORIGIN_TOPIC: message.topic,
                            ORIGIN_SUBSCRIPTION: self._subscription,
                            ORIGIN_MESSAGE_ID: str(message.message_id),
                            REDELIVERY_COUNT: str(message.redelivery_count),
                        }
                        await self._producer.enqueue(
                            message.value_or_none,
                            message.key,
                            properties=properties,
                            event_time_ms=message.event_time_ms,
                            txn=txn,
                        )
                    await acknowledge(txn)
            except MagnetarError as error:
                log.warning("%d dead letters could not be moved: %s", len(columns), error)
                give_back()
            else:
                log.info("moved %d dead letters to %s", len(columns), self._producer.topic)
