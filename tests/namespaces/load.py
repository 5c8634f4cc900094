"""A process of clients: tellers who transfer between accounts, readers, or one who takes cuts.

    python -m tests.namespaces.load tellers --name c1 --servers broker-a:6650 --history c1.jsonl ...

It ends on SIGTERM, when whatever it has begun is answered. It writes down what it does and hears.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.namespaces.crew import (
    ACCOUNT_PARTITIONS,
    ACCOUNTS,
    ORDER_PARTITIONS,
    ORDERS,
    TELLERS,
    Crew,
)
from tests.namespaces.records import ABORT, COMMIT, NO_EFFECT, OK, UNKNOWN, Recorder
from tests.namespaces.survey import survey

import magnetar
from magnetar import Client, ClientConfig, Consumer, Message, MessageId, Producer, Transaction
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import InvalidTxnState, MagnetarError, OutcomeUnknown

# A teller takes a new consumer after so many transfers.
SESSION_TRANSFERS = 25
TXN_TIMEOUT_S = 20.0
COMMIT_ATTEMPTS = 8
RECEIVE_S = 3.0
# Short, so that outages leave outcomes unknown.
CONFIG = ClientConfig(commit_timeout_ms=4_000, operation_timeout_ms=15_000)


class Teller:
    """Places orders and carries them out, one after the other."""

    def __init__(self, crew: Crew, client: Client, number: int) -> None:
        self._crew, self._client = crew, client
        self._note, self._random = crew.recorder.note, crew.random
        self._name = f"{crew.name}/{number}"
        self._sessions = itertools.count()
        self._producers: dict[str, Producer] = {}

    async def run(self) -> None:
        for topic in (ACCOUNTS, ORDERS):
            self._producers[topic] = await self._client.create_producer(topic)
        while not self._crew.stopping.is_set():
            session = f"{self._name}/{next(self._sessions)}"
            try:
                await self._session(session)
            except MagnetarError as error:
                self._note("trouble", session=session, error=repr(error))
                await self._crew.pause()

    async def _session(self, session: str) -> None:
        self._note("attach", session=session, topic=ORDERS, subscription=TELLERS)
        async with await self._client.subscribe(
            ORDERS,
            TELLERS,
            type="shared",
            initial_position="earliest",
            receiver_queue_messages=4,
        ) as consumer:
            for _ in range(SESSION_TRANSFERS):
                if self._crew.stopping.is_set():
                    return
                await self._send(ORDERS, self._random.randrange(ORDER_PARTITIONS), "order")
                if self._random.random() < 0.15:
                    partition = self._random.randrange(ACCOUNT_PARTITIONS)
                    await self._send(ACCOUNTS, partition, f"{self._name}.note.0")
                await self._serve(session, consumer)
                await self._crew.pause()

    async def _serve(self, session: str, consumer: Consumer) -> None:
        """Carry out an order, if there is one."""
        try:
            order = await consumer.receive(RECEIVE_S)
        except TimeoutError:
            return
        note_delivery(self._crew.recorder, session, order)
        try:
            txn = await self._client.begin_transaction(TXN_TIMEOUT_S)
        except MagnetarError:
            consumer.nack(order, delay_s=0)
            raise
        self._note("begun", txn=str(txn.txn_id), owner=self._name)
        expected: list[str] = []
        try:
            for partition, text in self._changes():
                source = [order.topic, order.partition, order.offset] if not expected else None
                expected.append(await self._send(ACCOUNTS, partition, text, txn, source))
            await self._ack(consumer, order, txn)
        except MagnetarError:
            await self._end(txn, ABORT, [])
            consumer.nack(order, delay_s=0)
            return
        if self._random.random() < 0.1:
            await self._end(txn, ABORT, [])
        else:
            await self._commit(txn, expected)

    def _changes(self) -> list[tuple[int, str]]:
        """Two accounts, and what each is told."""
        debtor, creditor = self._random.sample(range(ACCOUNT_PARTITIONS), 2)
        amount = self._random.randint(1, 1_000)
        name = f"{self._name}.{self._random.randrange(1 << 30)}"
        return [(debtor, f"{name}.{-amount}"), (creditor, f"{name}.{amount}")]

    async def _send(
        self,
        topic: str,
        partition: int,
        text: str,
        txn: Transaction | None = None,
        source: list[Any] | None = None,
    ) -> str:
        value = self._crew.value(text)
        asked_at = self._note(
            "send",
            value=value,
            producer=f"{self._name}/{topic}",
            topic=topic,
            partition=partition,
            txn=None if txn is None else str(txn.txn_id),
            input=source,
        )
        outcome, offset, said = OK, None, ""
        try:
            sent = await self._producers[topic].send(value.encode(), partition=partition, txn=txn)
            offset = sent.offset if isinstance(sent, MessageId) else None
        except MagnetarError as error:
            outcome, said = outcome_of(error), repr(error)
            raise
        finally:
            self._note(
                "sent", value=value, outcome=outcome, offset=offset, asked_at=asked_at, error=said
            )
        return value

    async def _ack(self, consumer: Consumer, order: Message, txn: Transaction) -> None:
        facts = {
            "txn": str(txn.txn_id),
            "topic": order.topic,
            "partition": order.partition,
            "subscription": TELLERS,
            "offset": order.offset,
        }
        asked_at = self._note("ack", **facts)
        outcome = OK
        try:
            await consumer.ack(order, txn=txn)
        except MagnetarError as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._note("acked", **facts, outcome=outcome, asked_at=asked_at)

    async def _commit(self, txn: Transaction, expected: list[str]) -> None:
        """Ask until the outcome is known, or not: some do not ask again."""
        attempts = 1 if self._random.random() < 0.25 else COMMIT_ATTEMPTS
        for _ in range(attempts):
            if await self._end(txn, COMMIT, expected) != UNKNOWN:
                return

    async def _end(self, txn: Transaction, action: str, values: list[str]) -> str:
        finished = action == COMMIT and self._random.random() < 0.5
        txn_id = str(txn.txn_id)
        asked_at = self._note("end", txn=txn_id, action=action, values=values)
        outcome, said = OK, ""
        try:
            if action == COMMIT:
                await txn.commit(wait_finished=finished)
            else:
                await txn.abort()
        except (magnetar.CommitRefused, InvalidTxnState) as error:
            outcome, said = NO_EFFECT, repr(error)
        except MagnetarError as error:
            # Of an end, nothing else is certain.
            outcome, said = UNKNOWN, repr(error)
        self._note(
            "ended",
            txn=txn_id,
            action=action,
            outcome=outcome,
            finished=finished and outcome == OK,
            asked_at=asked_at,
            error=said,
        )
        return outcome


def outcome_of(error: MagnetarError) -> str:
    """What an error lets its caller assume."""
    if isinstance(error, OutcomeUnknown) or error.kind is ErrorKind.ASK_OUTCOME:
        return UNKNOWN
    return NO_EFFECT if "No effect" in f"{error} {error.advice}" else UNKNOWN


def note_delivery(recorder: Recorder, session: str, message: Message) -> None:
    recorder.note(
        "delivered",
        session=session,
        topic=message.topic,
        partition=message.partition,
        subscription=TELLERS,
        offset=message.offset,
        value=message.value.decode(),
        txn=None if message.txn_id is None else str(message.txn_id),
    )


async def read_to_end(
    recorder: Recorder, client: Client, topic: str, partition: int, start: int
) -> int:
    """Read a partition from a place on, and return where the next message will be."""
    began_at = recorder.note("reading", topic=topic, partition=partition, start=start)
    messages = [
        (one.offset, one.value.decode(), None if one.txn_id is None else str(one.txn_id))
        async for one in client.read(topic, partition, start)
    ]
    recorder.note(
        "read",
        topic=topic,
        partition=partition,
        start=start,
        began_at=began_at,
        messages=messages,
    )
    return messages[-1][0] + 1 if messages else start


async def read_accounts(crew: Crew, client: Client, number: int) -> None:
    """Read what has come since, and now and then from somewhere before."""
    known = dict.fromkeys(range(ACCOUNT_PARTITIONS), 0)
    while not crew.stopping.is_set():
        partition = crew.random.randrange(ACCOUNT_PARTITIONS)
        start = known[partition]
        if crew.random.random() < 0.1:
            start = crew.random.randint(max(0, start - 200), start)
        try:
            known[partition] = await read_to_end(crew.recorder, client, ACCOUNTS, partition, start)
        except MagnetarError as error:
            crew.recorder.note("trouble", session=f"{crew.name}/{number}", error=repr(error))
        await crew.pause()


async def run(role: str, crew: Crew, servers: str, count: int) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, crew.stopping.set)
    async with await magnetar.connect(servers, config=CONFIG) as client:
        programs: dict[str, Callable[[int], Coroutine[Any, Any, None]]] = {
            "tellers": lambda number: Teller(crew, client, number).run(),
            "readers": lambda number: read_accounts(crew, client, number),
            "surveyor": lambda number: survey(crew, client),
        }
        async with asyncio.TaskGroup() as group:
            for number in range(1 if role == "surveyor" else count):
                group.create_task(programs[role](number))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("tellers", "readers", "surveyor"))
    parser.add_argument("--name", required=True, help="with a number that no other process has")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--history", required=True, type=Path)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--count", default=2, type=int)
    parser.add_argument("--pause-s", default=0.5, type=float)
    chosen = parser.parse_args()
    with Recorder(chosen.history) as recorder:

        async def begin() -> None:
            crew = Crew(chosen.name, recorder, chosen.seed, chosen.pause_s)
            await run(chosen.role, crew, chosen.servers, chosen.count)

        asyncio.run(begin())


if __name__ == "__main__":
    main()
