"""The loop of an application that consumes, transforms and produces exactly once.

Outputs, acknowledgements and dead letters of a batch of inputs belong to the same transaction. When
something fails, that transaction is aborted, and the inputs come again, in order, to the member
that then owns their partitions.
Source: KIP-447; docs/design/0003-groups.md, The client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import NamedTuple

from magnetar.arguments import checked, text
from magnetar.config import require
from magnetar.errors import CommitRefused, PoisonMessage
from magnetar.groups.group_consumer import GroupConsumer
from magnetar.groups.stopping import stopping_signals
from magnetar.message import Message
from magnetar.messaging.consuming.dead_letters import (
    ORIGIN_MESSAGE_ID,
    ORIGIN_SUBSCRIPTION,
    ORIGIN_TOPIC,
)
from magnetar.messaging.sending.message_arguments import checked_message
from magnetar.transactions.transactional_producer import TransactionalProducer
from magnetar_core.errors import (
    IllegalGeneration,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    ProducerFenced,
    TransactionConflict,
    UnknownMember,
)

log = logging.getLogger("magnetar")

# What a dead letter says besides where it comes from.
DEAD_LETTER_REASON = "magnetar-dead-letter-reason"
REASON_CHARACTERS_MAX = 1_000
# Another member has the inputs, or the transactional id: go on with the partitions that are ours.
FENCED = (IllegalGeneration, UnknownMember, TransactionConflict, ProducerFenced)
# Transactions in a row that others have ended, for example by their timeout: more are not an
# accident.
ENDED_BY_OTHERS_MAX = 10
# Between messages the loop turns so often, for heartbeats and acknowledgements.
TURN_MS = 5.0


class Output(NamedTuple):
    """A message that transform() returns, to be sent.

    Attributes:
        topic: the topic's name.
        value: the content of the message; None: a message without a value.
        key: messages with the same key go to the same partition.
        properties: names and texts that travel with the message.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    properties: Mapping[str, str] | None = None


Outputs = Iterable[Output]
Transform = Callable[[Message], Outputs | Awaitable[Outputs]]


@dataclass(slots=True)
class ProcessSummary:
    """Result of process().

    Attributes:
        batches: how many transactions were committed.
        messages_in: how many inputs these transactions had, dead letters included.
        messages_out: how many outputs these transactions had, dead letters excluded.
        dead_lettered: how many messages moved to the topic for dead letters.
        aborted: how many transactions were aborted; their inputs came again.
        fenced: how many of the aborted transactions lost a partition or the transactional id to
            another member.
    """

    batches: int = 0
    messages_in: int = 0
    messages_out: int = 0
    dead_lettered: int = 0
    aborted: int = 0
    fenced: int = 0


@checked
async def process(
    consumer: GroupConsumer,
    transform: Transform,
    producer: TransactionalProducer,
    *,
    batch_messages_max: int = 1_000,
    batch_wait_s: float = 0.05,
    attempts_max: int = 3,
    dead_letter: str | None = None,
    stop: asyncio.Event | None = None,
    handle_signals: bool = True,
) -> ProcessSummary:
    """Transform each message of a group and send the outputs, exactly once, until told to stop.

    Messages of a partition are transformed in order. Other effects of transform() may happen
    several times for a message. While transform() computes, nothing else runs in the event loop,
    not even heartbeats: work that takes seconds belongs into a thread or a process.

        orders = await client.consumer_group("billing", "orders")
        producer = client.transactional_producer()
        await producer.init_transactions(orders)
        summary = await magnetar.process(
            orders, lambda order: [Output("invoices", b"for " + order.value)], producer
        )

    Args:
        consumer: the member of the group, whose messages are the inputs.
        transform: returns the outputs for a message; may be a coroutine function.
        producer: sends the outputs; no other code may use it meanwhile.
        batch_messages_max: how many messages a transaction has at most.
        batch_wait_s: how many seconds a batch that is not full waits for more messages.
        attempts_max: how often transform() gets a message before the message counts as poison.
        dead_letter: the topic to which a poison message moves, with its properties, its origin and
            the reason. If the topic does not exist, it is made with a single partition.
        stop: ends the loop after the current batch.
        handle_signals: whether SIGTERM and SIGINT end the loop as well, in the main thread.
    Returns:
        How many messages and batches were processed.
    Raises:
        PoisonMessage: transform() fails for a message, and dead_letter is not given. Nothing of
            the batch counts.
        FencedInstance: a newer member has the consumer's instance id.
        InvalidArgument: a setting is not valid, or the group allows no two-phase commit.
        MagnetarError: an error that does not pass by trying again, such as a missing topic.
    """
    require(batch_messages_max > 0, "batch_messages_max must be above 0")
    require(batch_wait_s >= 0, "batch_wait_s must not be negative")
    require(attempts_max > 0, "attempts_max must be above 0")
    if stop is None:
        stop = asyncio.Event()
    processing = _Processing(
        consumer, transform, producer, batch_messages_max, batch_wait_s, attempts_max, stop
    )
    if not handle_signals:
        return await processing.run(dead_letter)
    loop = asyncio.get_running_loop()
    # From a signal's handler, only this wakes a loop that waits for something else.
    with stopping_signals(lambda: loop.call_soon_threadsafe(stop.set)):
        return await processing.run(dead_letter)


class _Processing:
    def __init__(
        self,
        consumer: GroupConsumer,
        transform: Transform,
        producer: TransactionalProducer,
        batch_messages_max: int,
        batch_wait_s: float,
        attempts_max: int,
        stop: asyncio.Event,
    ) -> None:
        self._consumer = consumer
        self._transform = transform
        self._producer = producer
        self._batch_messages_max = batch_messages_max
        self._batch_wait_s = batch_wait_s
        self._attempts_max = attempts_max
        self._stop = stop
        self._dead_letter: str | None = None
        self._summary = ProcessSummary()
        self._runtime = consumer.work.runtime
        self._backoff = self._runtime.backoff()
        self._ended_by_others_count = 0
        self._turned_ms = self._runtime.now_ms()

    async def run(self, dead_letter: str | None) -> ProcessSummary:
        if dead_letter is not None:
            self._dead_letter = dead_letter
            await self._consumer.work.cluster.ensure_topic(dead_letter)
        await self._start_over()
        while not self._stop.is_set():
            messages = await self._receive()
            if messages:
                await self._process(messages)
        return self._summary

    async def _receive(self) -> list[Message]:
        """The next batch; empty when it is time to stop."""
        receiving = asyncio.ensure_future(self._consumer.receive_batch(self._batch_messages_max))
        try:
            if not await self._stops_before(receiving):
                messages = receiving.result()
            else:
                return []
        finally:
            receiving.cancel()
        missing = self._batch_messages_max - len(messages)
        if missing and self._batch_wait_s:
            await self._stops_within(self._batch_wait_s)
            for columns in self._consumer.work.take_ready(missing):
                messages += columns
        return messages

    async def _stops_before(self, other: asyncio.Future[list[Message]]) -> bool:
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((stopping, other), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        return not other.done()

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def _process(self, messages: list[Message]) -> None:
        """One batch: it counts as a whole, or comes again."""
        try:
            sent_count, dead_count = await self._attempt(messages)
        except PoisonMessage:
            await self._start_over()
            raise
        except MagnetarError as error:
            await self._react(error)
        except BaseException:
            self._runtime.spawn(self._abort, "abort what was being processed", self._runtime.fail)
            raise
        else:
            self._backoff.reset()
            self._ended_by_others_count = 0
            self._summary.batches += 1
            self._summary.messages_in += len(messages)
            self._summary.messages_out += sent_count
            self._summary.dead_lettered += dead_count

    async def _attempt(self, messages: list[Message]) -> tuple[int, int]:
        """Returns how many outputs and dead letters there were."""
        producer = self._producer
        sent_count = dead_count = 0
        await producer.begin()
        assert producer.transaction is not None
        with producer.transaction.work.cover("return it from transform() as an Output"):
            for message in messages:
                outputs = await self._outputs_of(message)
                if outputs is None:
                    dead_count += 1
                    continue
                sent_count += len(outputs)
                for output in outputs:
                    await producer.enqueue(
                        output.topic, output.value, output.key, properties=output.properties
                    )
        self._consumer.ack_nowait(messages, txn=producer.transaction)
        await self._commit()
        return sent_count, dead_count

    async def _outputs_of(self, message: Message) -> list[Output] | None:
        """Return the outputs for a message; None if it was poison, and has moved."""
        backoff = self._runtime.backoff()
        for attempt in range(1, self._attempts_max + 1):
            try:
                result = self._transform(message)
                if isawaitable(result):
                    result = await result
                outputs = list(result)
                _check(outputs)
            except Exception as error:
                log.warning("%r could not be transformed, attempt %d: %r", message, attempt, error)
                if attempt == self._attempts_max:
                    if self._dead_letter is None:
                        raise PoisonMessage(message, attempt) from error
                    await self._bury(message, error)
                    return None
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                now_ms = self._runtime.now_ms()
                if now_ms - self._turned_ms >= TURN_MS:
                    self._turned_ms = now_ms
                    await asyncio.sleep(0)
                return outputs
        raise AssertionError("attempts_max is above 0")

    async def _bury(self, message: Message, error: Exception) -> None:
        assert self._dead_letter is not None
        await self._producer.enqueue(
            self._dead_letter,
            message.value_or_none,
            message.key,
            properties={
                **message.properties,
                ORIGIN_TOPIC: message.topic,
                ORIGIN_SUBSCRIPTION: self._consumer.group,
                ORIGIN_MESSAGE_ID: str(message.message_id),
                DEAD_LETTER_REASON: f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX],
            },
            event_time_ms=message.event_time_ms,
        )

    async def _commit(self) -> None:
        """Until the outcome is known: to go on without knowing could count the batch twice."""
        backoff = self._runtime.backoff()
        while True:
            try:
                await self._producer.commit()
                return
            except MagnetarError as error:
                if not error.kind.may_pass:
                    raise
                log.info("asking again whether a batch was committed: %s", error)
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _react(self, error: MagnetarError) -> None:
        """The batch did not count. Raises: what trying again cannot help against."""
        reason = _reason_of(error)
        log.info("a batch is aborted, and comes again: %s", reason)
        self._summary.aborted += 1
        is_fenced = isinstance(reason, FENCED)
        if is_fenced:
            self._summary.fenced += 1
        elif isinstance(reason, InvalidTxnState):
            self._ended_by_others_count += 1
        await self._start_over()
        if is_fenced:
            return
        if isinstance(reason, InvalidTxnState):
            if self._ended_by_others_count >= ENDED_BY_OTHERS_MAX:
                raise error
        elif not reason.kind.may_pass:
            raise error
        await self._stops_within(self._backoff.next_ms() / 1000)

    async def _start_over(self) -> None:
        """Abort the open transaction, be a member again, and have the inputs come again."""
        await self._abort()
        backoff = self._runtime.backoff()
        while True:
            try:
                await self._producer.init_transactions(self._consumer)
                break
            except MagnetarError as error:
                if not error.kind.may_pass:
                    raise
                log.info("initialising transactions again: %s", error)
                if await self._stops_within(backoff.next_ms() / 1000):
                    return

    async def _abort(self) -> None:
        """Until it is known, so that the inputs are free again; their owner waits for that."""
        backoff = self._runtime.backoff()
        while self._producer.transaction is not None:
            try:
                await self._producer.abort()
            except MagnetarError as error:
                log.info("aborting: %s", error)
                if not error.kind.may_pass:
                    return  # Fenced, or ended by another client.
                if await self._stops_within(backoff.next_ms() / 1000):
                    return


def _check(outputs: list[Output]) -> None:
    for output in outputs:
        if not isinstance(output, Output):
            raise InvalidArgument(f"transform() gives Outputs, not {type(output).__name__}")
        text("topic", output.topic)
        checked_message(output.value, output.key, output.properties, None)


def _reason_of(error: MagnetarError) -> MagnetarError:
    """Return the first error of a transaction that failed."""
    while isinstance(error, CommitRefused | InvalidTxnState):
        cause = error.__cause__
        if not isinstance(cause, MagnetarError):
            break
        error = cause
    return error
