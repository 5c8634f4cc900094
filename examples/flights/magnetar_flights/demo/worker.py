"""A worker process: consumes flights and produces results, everything in transactions.

This is a complete exactly-once application. Its reports on standard output are for the parent's
display only. When it is killed, the coordinator's decisions count.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from dataclasses import dataclass

import magnetar
from magnetar_cli.link_options import new_transport
from magnetar_core.process.parent_watch import watch_parent
from magnetar_flights.flights import transform

INPUT = "flights"
DELAYS = "delays-by-route"
CANCELLATIONS = "cancellations-by-carrier"
SUBSCRIPTION = "workers"
# A dead worker's transaction is aborted after this time, and its messages go to another.
TXN_TIMEOUT_S = 5.0
RECEIVE_TIMEOUT_S = 0.25
NACK_DELAY_MS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that the parent passes as arguments, in this order.

    Attributes:
        pause_ms: a pause in each open transaction, so that a small input outlasts the kills.
    """

    address: str
    messages_per_transaction: int
    pause_ms: int

    def arguments(self) -> tuple[str, ...]:
        """Return the command line arguments."""
        return (self.address, str(self.messages_per_transaction), str(self.pause_ms))

    @classmethod
    def parse(cls, arguments: list[str]) -> Settings:
        """Read the command line arguments."""
        address, messages_per_transaction, pause_ms = arguments
        return cls(
            address=address,
            messages_per_transaction=int(messages_per_transaction),
            pause_ms=int(pause_ms),
        )


class Worker:
    """Turns batches of flights into transactions."""

    def __init__(
        self,
        settings: Settings,
        client: magnetar.Client,
        flights: magnetar.Consumer,
        delays: magnetar.Producer,
        cancellations: magnetar.Producer,
    ) -> None:
        self._settings = settings
        self._client = client
        self._flights = flights
        self._delays = delays
        self._cancellations = cancellations

    async def step(self) -> None:
        """Process the next batch, if there is any. A batch that fails is given back."""
        messages = await self._flights.receive_batch(
            self._settings.messages_per_transaction, timeout_s=RECEIVE_TIMEOUT_S
        )
        if not messages:
            return
        try:
            await self._process(messages)
        except magnetar.MagnetarError as error:
            logging.info("giving %d messages back: %s", len(messages), error)
            self._flights.nack_many(messages)

    async def _process(self, messages: list[magnetar.Message]) -> None:
        results = transform(message.value for message in messages)
        txn = await self._client.begin_transaction(timeout_s=TXN_TIMEOUT_S)
        tell("begun", txn.txn_id)
        try:
            for producer, columns in (
                (self._delays, results.delays),
                (self._cancellations, results.cancellations),
            ):
                await producer.send_many(columns.values, columns.keys, txn=txn)
            self._flights.ack_nowait(messages, txn=txn)
            if self._settings.pause_ms:
                await asyncio.sleep(self._settings.pause_ms / 1_000)
            await _commit(txn)
        except magnetar.MagnetarError as error:
            await txn.abort()
            tell("aborted", txn.txn_id, type(error).__name__)
            raise
        tell("committed", txn.txn_id, len(messages))


async def _commit(txn: magnetar.Transaction) -> None:
    """Commit, and ask until the outcome is known."""
    while True:
        try:
            await txn.commit()
        except magnetar.OutcomeUnknown:
            continue
        return


def tell(*words: object) -> None:
    """Print a line for the parent. All processes of the machine share its clock."""
    print(time.monotonic(), *words, flush=True)


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    # The end of standard input is the request to stop, and the sign that the parent has gone.
    watch_parent(stop.set)
    async with await magnetar.connect(settings.address, transport=new_transport()) as client:
        worker = Worker(
            settings,
            client,
            await client.subscribe(
                INPUT,
                SUBSCRIPTION,
                type="shared",
                initial_position="earliest",
                receiver_queue_messages=2 * settings.messages_per_transaction,
                nack_delay_ms=NACK_DELAY_MS,
            ),
            await client.create_producer(DELAYS),
            await client.create_producer(CANCELLATIONS),
        )
        tell("ready")
        while not stop.is_set():
            await worker.step()


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("MAGNETAR_LOG_LEVEL", "error").upper())
    asyncio.run(_run(Settings.parse(sys.argv[1:])))
