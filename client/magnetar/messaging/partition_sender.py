"""One producer's batches to one partition: plain ones, or those of one transaction.

Sequences count messages from 0 without gaps, per (producer, partition) for plain sends and per
(TxnID, producer, partition) for transactional ones, and are given when a batch is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from magnetar.config import Batching, ProducerConfig
from magnetar.link.cluster import TopicRoute
from magnetar.link.connection import Connection
from magnetar.link.in_flight import InFlightCommands, Item, copy_error
from magnetar.link.runtime import Runtime
from magnetar.messaging.backpressure import PendingBudget
from magnetar.messaging.batching import (
    MESSAGE_OVERHEAD_BYTES,
    OpenBatch,
    OpenBatchesByKey,
    Properties,
    cut,
    size_of,
)
from magnetar_core.batch import split
from magnetar_core.errors import (
    InvalidArgument,
    MagnetarError,
    MessageTooLarge,
    SequenceGap,
)
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.wire import broker_pb2, common_pb2

log = logging.getLogger("magnetar")

Receipt = asyncio.Future[common_pb2.MessageIdData]

# What header, offsets and checksum may add to a batch of one message.
BATCH_OVERHEAD_BYTES = 1024
# Larger pieces are stored slower, smaller ones cost more commands.
PART_BYTES_MAX = 1 << 20
# What one send can come after, as brokers have it. Older ones are left out.
FOLLOWED_MAX = 100


class ClosedBatch(Item[broker_pb2.CommandSendResponse]):
    """An encoded batch with its sequence; it never changes, however often it is sent."""

    __slots__ = (
        "awaited",
        "count",
        "follows",
        "payload",
        "producer_id",
        "receipt",
        "sequence_id",
        "size",
    )

    def __init__(
        self, payload: bytes, count: int, size: int, receipt: Receipt | None, awaited: int
    ) -> None:
        super().__init__()
        self.payload = payload
        self.count = count
        self.size = size
        self.receipt = receipt
        # How many of its messages have a caller that waits for the receipt.
        self.awaited = awaited
        self.producer_id = 0
        self.sequence_id = 0
        self.follows: tuple[TxnID, ...] = ()


class PartitionSender:
    """Gathers messages into batches and brings them to the broker in order."""

    __slots__ = (
        "_budget",
        "_config",
        "_in_flight",
        "_lane",
        "_linger",
        "_next_sequence",
        "_on_batch_closed",
        "_on_failed",
        "_open",
        "_producer_epoch",
        "_route",
        "_runtime",
        "confirmed_count",
        "failure",
        "follows",
        "name",
        "plain",
        "producer_id",
        "txn_id",
    )

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        route: TopicRoute,
        partition: int,
        producer_id: int,
        budget: PendingBudget,
        *,
        on_failed: Callable[[MagnetarError, int], None],
        on_batch_closed: Callable[[int], None],
        plain: PartitionSender | None = None,
    ) -> None:
        """A sender that has sent nothing yet.

        Args:
            on_failed: called when a batch fails, with the number of its messages that nobody
                waits for.
            on_batch_closed: called when a batch is complete; the next may go to another partition.
            plain: for a transaction's sender, the producer's sender for the same partition outside
                of transactions. A transaction's sender sends nothing until begin() is called.
        """
        self.name: PartitionName = route.partition_name(partition) if plain is None else plain.name
        self.txn_id: TxnID | None = None
        self.plain = plain
        self.producer_id = producer_id
        # Messages that the broker has confirmed. Counted by CommandEndTxn.
        self.confirmed_count = 0
        # Transactions of this producer here that ended while none of them followed another; their
        # ends may be under way (order, k). The newest is the last one.
        self.follows: tuple[TxnID, ...] = plain.follows if plain is not None else ()
        self.failure: MagnetarError | None = None
        self._runtime = runtime
        self._config = config
        self._budget = budget
        self._on_failed = on_failed
        self._on_batch_closed = on_batch_closed
        self._producer_epoch: int | None = None
        self._next_sequence = 0
        self._lane = 0
        self._open = self._new_open()
        self._linger: asyncio.Handle | None = None
        self._route = route
        self._in_flight: InFlightCommands[ClosedBatch, broker_pb2.CommandSendResponse] = (
            InFlightCommands(
                runtime, self, in_flight_max=config.in_flight_batches_max, open_gate=plain is None
            )
        )

    def begin(self, txn_id: TxnID, producer_epoch: int | None = None) -> None:
        """The transaction has its id: batches may leave.

        Args:
            producer_epoch: of the transactional producer whose transaction it is.
        """
        self.txn_id = txn_id
        self._producer_epoch = producer_epoch
        self._in_flight.open()
        if self._open.count and self._linger is None:
            self._linger_later()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered: the last message has completed its batch."""
        return self._open.count == 0

    def follow(self, txn_id: TxnID, *, in_place_of: Collection[TxnID] = ()) -> None:
        """Plain sends name this transaction until one that does is acknowledged (order, k).

        Args:
            in_place_of: what it follows itself.
        """
        self._follow_no_more((txn_id, *in_place_of))
        self.follows = (*self.follows, txn_id)[-FOLLOWED_MAX:]

    def _follow_no_more(self, txn_ids: Collection[TxnID]) -> None:
        self.follows = tuple(one for one in self.follows if one not in txn_ids)

    def add(
        self,
        value: bytes,
        key: bytes | None,
        properties: Properties | None,
        event_time_ms: int | None,
    ) -> None:
        """Append a message; nobody waits for it in particular.

        Raises:
            MessageTooLarge: it has to be sent in parts, and this is no transaction's sender; or
                it is more than message_bytes_max. No effect.
            MagnetarError: the transaction failed before. No effect.
        """
        if type(value) is not bytes:
            value = as_bytes(value, "a value")
        size = len(value) + MESSAGE_OVERHEAD_BYTES
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes(key, "a key")
            size += len(key)
        config = self._config
        if size > config.message_bytes_max or properties:
            self._check_size(value, key, properties)
        batch = self._open
        if size + batch.size > config.batch_bytes_max:
            if self.needs_parts(value, key, properties):
                self._add_parts(value, key, properties, event_time_ms, receipt=None)
                return
            if batch.count:
                self.close_batch()
                batch = self._open
        if self.failure is not None:
            raise copy_error(self.failure)
        batch.add(value, key, properties, event_time_ms)
        if batch.size >= config.batch_bytes_max or batch.count >= config.batch_messages_max:
            self.close_batch()
        elif self._linger is None:
            self._linger_later()

    def add_awaited(
        self,
        value: bytes,
        key: bytes | None,
        properties: Properties | None,
        event_time_ms: int | None,
    ) -> tuple[int, Receipt]:
        """Append a message; returns its place in its batch, and the batch's receipt.

        Raises: as `add`.
        """
        value = as_bytes(value, "a value")
        if self.needs_parts(value, key, properties):
            whole = self._new_receipt()
            count = self._add_parts(value, key, properties, event_time_ms, receipt=whole)
            # The receipt is the last part's: its place is so many before that.
            return 1 - count, whole
        if self._open.count and (
            self._open.size + len(value) + len(key or b"") + MESSAGE_OVERHEAD_BYTES
            > self._config.batch_bytes_max
        ):
            self.close_batch()
        if key is not None:
            key = as_bytes(key, "a key")
        batch = self._open.of_key(key)
        if batch.receipt is None:
            batch.receipt = self._new_receipt()
        index, receipt = batch.count, batch.receipt
        batch.awaited += 1
        try:
            self.add(value, key, properties, event_time_ms)
        except BaseException:
            batch.awaited -= 1
            raise
        return index, receipt

    def add_many(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """Append many; raises as `add`, then without effect."""
        if self.failure is not None:
            raise copy_error(self.failure)
        config = self._config
        pieces = list(
            cut(
                values,
                keys,
                room_bytes=config.batch_bytes_max - self._open.size,
                room_messages=config.batch_messages_max - self._open.count,
                batch_bytes_max=config.batch_bytes_max,
                batch_messages_max=config.batch_messages_max,
            )
        )
        if max((size for _, _, size in pieces), default=0) > config.message_bytes_max:
            for place, value in enumerate(values):
                self._check_size(value, None if keys is None else keys[place], None)
        last = len(pieces) - 1
        for number, (start, stop, size) in enumerate(pieces):
            if stop > start:
                self._open.extend(
                    values[start:stop], None if keys is None else keys[start:stop], size
                )
            if number < last or self._open.size >= config.batch_bytes_max:
                self.close_batch()
        if self._open.count and self._linger is None:
            self._linger_later()

    def add_encoded(self, payload: bytes, count: int, size: int) -> None:
        """Send a batch that somebody else has encoded, right after all that was added before.

        Args:
            size: what it counts in the budget.
        Raises: as `add`.
        """
        limit = self._whole_bytes_max + BATCH_OVERHEAD_BYTES
        if len(payload) > limit:
            raise MessageTooLarge(f"a batch of {len(payload)} bytes exceeds {limit}")
        self.close_batch()
        if self.failure is not None:
            raise copy_error(self.failure)
        batch = ClosedBatch(payload, count, size, None, 0)
        self._number(batch)
        self._on_batch_closed(self.name.partition)
        self._submit(batch, self._runtime.config.send_timeout_ms)

    def close_batch(self) -> None:
        """Send what is gathered, without waiting for more."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._open.count == 0:
            return
        gathered, self._open = self._open, self._new_open()
        for open_batch in gathered.batches:
            if open_batch.count:
                self._close(open_batch)

    def _close(self, open_batch: OpenBatch) -> None:
        receipt, awaited = open_batch.receipt, open_batch.awaited
        if self.failure is not None:
            batch = ClosedBatch(b"", open_batch.count, 0, receipt, awaited)
            self._tell(batch, self.failure)
            return
        try:
            payload = self._encode(open_batch)
        except InvalidArgument as error:
            batch = ClosedBatch(b"", open_batch.count, 0, receipt, awaited)
            self._fail([batch], error)
            return
        batch = ClosedBatch(payload, open_batch.count, open_batch.size, receipt, awaited)
        self._number(batch)
        self._on_batch_closed(self.name.partition)
        self._submit(batch, self._runtime.config.send_timeout_ms)

    def take_open_batch(self) -> OpenBatch:
        """What is gathered, to be sent in another way."""
        taken, self._open = self._open, self._new_open()
        # Of several keys it had to begin, and has no way but the usual one.
        (batch,) = (one for one in taken.batches if one.count)
        return batch

    def _new_open(self) -> OpenBatch | OpenBatchesByKey:
        by_key = self._config.batching is Batching.BY_KEY
        return OpenBatchesByKey() if by_key else OpenBatch()

    def send_alone(self, open_batch: OpenBatch, *, timeout_ms: float) -> ClosedBatch:
        """Send these as one batch, after all that was added before. Its receipt tells the rest.

        Raises:
            InvalidArgument: they cannot be encoded. No effect.
        """
        self.close_batch()
        receipt = self._new_receipt()
        payload = self._encode(open_batch)
        count = open_batch.count
        batch = ClosedBatch(payload, count, open_batch.size, receipt, count)
        self._number(batch)
        self._submit(batch, timeout_ms)
        return batch

    def send_again(self, batch: ClosedBatch, *, timeout_ms: float) -> None:
        """Repeat what send_alone() sent, as what it was, when nobody knows whether it arrived."""
        batch.renew()
        batch.receipt = self._new_receipt()
        batch.lane = self._lane
        self._submit(batch, timeout_ms)

    def drain(self) -> Awaitable[None]:
        """Wait until all that is closed is confirmed or has failed."""
        return self._in_flight.drain()

    def abandon(self, error: MagnetarError) -> None:
        """Fail and drop what is buffered; answers that are under way are still counted."""
        if self.failure is None:
            self.failure = error
        self.close_batch()
        self._in_flight.abandon(error)

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        if self.failure is None:
            self.failure = error
        self.close_batch()
        self._in_flight.refuse_all(error)

    def retire(self) -> None:
        """The transaction has ended."""
        self._in_flight.retire()

    def _linger_later(self) -> None:
        if self.plain is not None and self.txn_id is None:
            # It may turn out that all of the transaction fits this batch.
            if len(self._open.batches) > 1:
                self._on_batch_closed(self.name.partition)
            return
        loop = self._runtime.loop
        if self._config.linger_ms:
            self._linger = loop.call_later(self._config.linger_ms / 1000, self.close_batch)
        else:
            self._linger = loop.call_soon(self.close_batch)

    def needs_parts(self, value: bytes, key: bytes | None, properties: Properties | None) -> bool:
        """Whether a message is too large for one batch.

        Raises:
            InvalidArgument: for no bytes.
            MessageTooLarge: more than message_bytes_max.
        """
        if type(value) is not bytes:
            value = as_bytes(value, "a value")
        size = self._check_size(value, key, properties)
        return size > self._config.batch_bytes_max and size > self._whole_bytes_max

    def _check_size(self, value: bytes, key: bytes | None, properties: Properties | None) -> int:
        """A message's bytes. Raises: MessageTooLarge."""
        size = len(value) + len(key or b"") + (size_of(properties) if properties else 0)
        limit = self._config.message_bytes_max
        if size > limit:
            raise MessageTooLarge(
                f"a message of {size} bytes exceeds message_bytes_max, {limit}",
                message_bytes_max=limit,
            )
        return size

    @property
    def _whole_bytes_max(self) -> int:
        """Of the columns of a batch with one message."""
        limit = self._config.whole_bytes_max
        session = self.connection().live_session
        if session is not None:
            limit = min(limit, session.batch_bytes_max - BATCH_OVERHEAD_BYTES)
        return limit

    def _add_parts(
        self,
        value: bytes,
        key: bytes | None,
        properties: Properties | None,
        event_time_ms: int | None,
        *,
        receipt: Receipt | None,
    ) -> int:
        """Send a message as parts, right after all that was added before; returns how many.

        Args:
            receipt: told what becomes of the last part.
        Raises: as `add`.
        """
        if self.plain is None:
            raise MessageTooLarge(
                f"a message of {len(value)} bytes has to be sent in parts, which takes a"
                " transaction: use send() or enqueue()"
            )
        if self.failure is not None:
            raise copy_error(self.failure)
        message = OpenBatch()
        message.add(value, key, properties, event_time_ms)
        parts = split(self._encode(message), min(PART_BYTES_MAX, self._whole_bytes_max))
        self.close_batch()
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            awaited = int(is_last and receipt is not None)
            batch = ClosedBatch(part, 1, len(part), receipt if is_last else None, awaited)
            self._number(batch)
            self._submit(batch, self._runtime.config.send_timeout_ms)
        self._on_batch_closed(self.name.partition)
        return len(parts)

    def _new_receipt(self) -> Receipt:
        receipt: Receipt = self._runtime.loop.create_future()
        # Whoever waits may have gone when it fails; flush() tells then.
        receipt.add_done_callback(_retrieve)
        return receipt

    def _encode(self, open_batch: OpenBatch) -> bytes:
        try:
            return open_batch.encode(self._config.codec)
        except (MagnetarError, TypeError, ValueError) as cause:
            raise InvalidArgument(
                f"a batch of {open_batch.count} messages cannot be encoded"
            ) from cause

    def _submit(self, batch: ClosedBatch, timeout_ms: float) -> None:
        self._budget.take(batch.size, batch.count)
        self._in_flight.submit(batch, timeout_ms=timeout_ms)

    def _number(self, batch: ClosedBatch) -> None:
        batch.lane = self._lane
        batch.producer_id = self.producer_id
        batch.sequence_id = self._next_sequence
        self._next_sequence += batch.count

    # What the queue in flight asks for, and tells.

    def connection(self) -> Connection:
        return self._route.connection(self.name.partition)

    def moved(self) -> None:
        self._route.refresh_soon()

    def build(self, batch: ClosedBatch) -> broker_pb2.CommandSend:
        batch.follows = self.follows
        # A broker of an earlier version knows of one only.
        latest = batch.follows[-1] if batch.follows else None
        batch.patient = latest is not None
        return broker_pb2.CommandSend(
            partition=self.name.to_wire(),
            producer_id=batch.producer_id,
            sequence_id=batch.sequence_id,
            num_messages=batch.count,
            txn_id=None if self.txn_id is None else self.txn_id.to_wire(),
            follows_txn_id=None if latest is None else latest.to_wire(),
            also_follows_txn_ids=[one.to_wire() for one in batch.follows[:-1]],
            batch=batch.payload,
            producer_epoch=self._producer_epoch,
        )

    def confirmed(self, batch: ClosedBatch, reply: broker_pb2.CommandSendResponse) -> None:
        self.confirmed_count += batch.count
        if self.plain is None:
            if batch.follows:
                self._follow_no_more(batch.follows)
        elif reply.settled_txn_ids:
            self.plain._follow_no_more([TxnID.from_wire(one) for one in reply.settled_txn_ids])
        self._budget.give_back(batch.size, batch.count)
        if batch.receipt is not None and not batch.receipt.done():
            batch.receipt.set_result(reply.message_id)

    def refused(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        if self.plain is None:
            # From here on another producer id counts from 0: the broker never saw the numbers that
            # are lost, and would wait for them.
            self._lane += 1
            self.producer_id = self._runtime.new_id()
            self._next_sequence = 0
            if isinstance(error, SequenceGap) and tail[0].attempts <= 1 and tail[0].sequence_id:
                # The broker has forgotten this producer, for instance after a long silence. It
                # never had these batches, so sending them under the new id repeats nothing.
                log.warning("%s: the broker forgot a producer; it continues as another", self.name)
                for batch in tail:
                    self._number(batch)
                self._in_flight.resubmit(tail)
                return
        for batch in tail:
            self._budget.give_back(batch.size, batch.count)
        self._fail(tail, error)

    def _fail(self, tail: list[ClosedBatch], error: MagnetarError) -> None:
        if self.plain is not None and self.failure is None:
            self.failure = error
        for batch in tail:
            self._tell(batch, error)
        if self.plain is not None:
            self.close_batch()

    def _tell(self, batch: ClosedBatch, error: MagnetarError) -> None:
        if batch.receipt is not None and not batch.receipt.done():
            batch.receipt.set_exception(copy_error(error))
        self._on_failed(error, batch.count - batch.awaited)


def as_bytes(value: object, what: str) -> bytes:
    """Accept bytes-like values.

    Raises:
        InvalidArgument: not bytes, bytearray or memoryview.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{what} must be bytes, not {type(value).__name__}")


def _retrieve(receipt: Receipt) -> None:
    if not receipt.cancelled():
        receipt.exception()
