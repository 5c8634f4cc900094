"""A worker of a group as a process: `python -m tests.system.group_worker ADDRESS LOG INSTANCE`.

Consumes "orders", transforms, produces "invoices", in transactions, as the example of KIP-447 does.
Each step is a line in LOG, with the machine's monotonic time, so that a test can tell what a paused
worker was at. SIGTERM ends it after the batch under way.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import magnetar
from magnetar import GroupConsumer, MagnetarError, Message, Output, TransactionalProducer

GROUP = "crew"
INPUT, OUTPUT = "orders", "invoices"
SESSION_TIMEOUT_S = 1.5
BATCH_MESSAGES_MAX = 500
# Instances of this name use magnetar.process(), which has no steps that could be logged.
READY_MADE = "/ready-made"


class Log:
    """Lines that are written at once: a SIGKILL loses none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, what: str, **details: Any) -> None:
        self._file.write(json.dumps({"at_s": time.monotonic(), "what": what, **details}) + "\n")


async def main(address: str, path: Path, instance_id: str) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    log = Log(path)
    async with await magnetar.connect(address) as client:
        consumer = await client.consumer_group(
            GROUP,
            INPUT,
            instance_id=instance_id,
            session_timeout_s=SESSION_TIMEOUT_S,
            initial_position="earliest",
        )
        producer = client.transactional_producer()
        await producer.init_transactions(consumer)
        log.note("ready")
        if instance_id.endswith(READY_MADE):
            await magnetar.process(consumer, invoice, producer, stop=stopping)
        while not stopping.is_set():
            messages = await consumer.receive_batch(BATCH_MESSAGES_MAX, timeout_s=0.2)
            if messages:
                await one_batch(consumer, producer, messages, log)
        await consumer.close(leave=True)
    log.note("stopped")


def invoice(order: Message) -> list[Output]:
    """Says where its order lies."""
    place = f"{order.partition}:{order.offset}:".encode()
    return [Output(OUTPUT, place + order.value, order.key)]


async def one_batch(
    consumer: GroupConsumer,
    producer: TransactionalProducer,
    messages: list[Message],
    log: Log,
) -> None:
    """One transaction; when it is refused, its messages come again, here or to another worker."""
    log.note("begin", messages=len(messages))
    try:
        await producer.begin()
        for message in messages:
            for one in invoice(message):
                await producer.enqueue(one.topic, one.value, key=one.key)
        await producer.send_offsets_to_transaction(magnetar.offsets(messages))
        log.note("ask")
        await producer.commit()
    except MagnetarError as error:
        log.note("refused", error=f"{type(error).__name__}: {error}")
        await producer.init_transactions(consumer)
    else:
        log.note("committed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
