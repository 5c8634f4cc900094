"""The loop around a group's consumer, without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from magnetar.blocking.workers import in_thread
from magnetar.groups import processing
from magnetar.groups.processing import Output, ProcessSummary
from magnetar.groups.stopping import stopping_signals
from magnetar.message import Message

if TYPE_CHECKING:
    from magnetar.blocking.transactional_producer import TransactionalProducer
from magnetar.blocking.group_consumer import GroupConsumer


def process(
    consumer: GroupConsumer,
    transform: Callable[[Message], Iterable[Output]],
    producer: TransactionalProducer,
    *,
    batch_messages_max: int = 1_000,
    batch_wait_s: float = 0.05,
    attempts_max: int = 3,
    dead_letter: str | None = None,
    handle_signals: bool = True,
) -> ProcessSummary:
    """See magnetar.process. transform() runs on a thread of its own, beside the heartbeats."""
    stop = asyncio.Event()

    async def on_thread(message: Message) -> list[Output]:
        return await in_thread(lambda: list(transform(message)))

    work = processing.process(
        consumer.inner,
        on_thread,
        producer.inner,
        batch_messages_max=batch_messages_max,
        batch_wait_s=batch_wait_s,
        attempts_max=attempts_max,
        dead_letter=dead_letter,
        stop=stop,
        handle_signals=False,
    )
    loop = consumer.loop
    if not handle_signals:
        return loop.wait(work)
    with stopping_signals(lambda: loop.post(stop.set)):
        return loop.wait(work)
