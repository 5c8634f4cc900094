"""Sequences of plain sends, which make a repeated send harmless. Pure.

Sequences count messages, from 0 without gaps, per (producer, partition).
A producer of Kafka has an epoch beside its id; here the pair is a producer id. An epoch before the
newest that is known is fenced, for as long as the newest is remembered. A transactional producer of
Kafka has a single row for all its epochs: its sequence runs over its transactions, and begins at 0
with each epoch.
Source: PIP-31, Broker - Transaction Buffer, Dedup Cursor; docs/protocol/rules.md, rule l; and
docs/design/0024-kafka.md for epochs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from magnetar_core.errors import InvalidArgument, ProducerFenced, SequenceGap
from magnetar_core.ids import NO_EPOCH

# How many answers are remembered for repeats of batches that were in flight together.
RECENT_BATCHES_MAX = 16
# An epoch is the lower part of a producer id that has one.
EPOCH_BITS = 16
# Marks the row of a transactional producer: no other producer id has this bit.
_TRANSACTIONAL = 1 << 63
# Sequences of Kafka count so far, and begin at 0 again.
_WRAPPED_AT = 1 << 31


def with_epoch(producer_id: int, producer_epoch: int) -> int:
    """Return the producer id here of a producer that has an epoch."""
    return producer_id << EPOCH_BITS | producer_epoch


def transactional(producer_id: int) -> int:
    """Return the producer id here of a transactional producer of Kafka, for all its epochs."""
    return producer_id | _TRANSACTIONAL


def client_pair(known: int, producer: Producer) -> tuple[int, int]:
    """Return the producer id and the epoch by which a client of Kafka knows a producer.

    Args:
        known: the producer id here.
    """
    if known & _TRANSACTIONAL:
        return known ^ _TRANSACTIONAL, producer.epoch
    return known >> EPOCH_BITS, known & ((1 << EPOCH_BITS) - 1)


def id_and_epoch(known: int, producer: Producer) -> tuple[int, int]:
    """Return a producer id without marks, and its epoch if it has its own; else NO_EPOCH.

    Args:
        known: the producer id here.
    """
    if known & _TRANSACTIONAL:
        return known ^ _TRANSACTIONAL, producer.epoch
    return known, NO_EPOCH


def wrapped(sequence_id: int) -> int:
    """Return the sequence of 31 bits that a client of Kafka knows."""
    return sequence_id % _WRAPPED_AT


def unwrapped(next_expected: int, sequence: int) -> int:
    """Return the sequence without end that a wrapped one means: the nearest to the next one."""
    found = next_expected - next_expected % _WRAPPED_AT + sequence
    if found - next_expected > _WRAPPED_AT // 2 and found >= _WRAPPED_AT:
        return found - _WRAPPED_AT
    if next_expected - found > _WRAPPED_AT // 2:
        return found + _WRAPPED_AT
    return found


def check_sequence(next_expected: int, sequence_id: int, count: int) -> bool:
    """Compare a batch with the expected sequence.

    Returns:
        Whether the batch is a repeat.
    Raises:
        SequenceGap: earlier messages are missing.
        InvalidArgument: partly accepted before: not a repeat of any batch that was sent.
    """
    if sequence_id == next_expected:
        return False
    if sequence_id > next_expected:
        raise SequenceGap(
            f"sequence {sequence_id} came where {next_expected} is next",
            expected=next_expected,
        )
    if sequence_id + count <= next_expected:
        return True
    raise InvalidArgument(
        f"messages {sequence_id} to {sequence_id + count - 1} were accepted in part before:"
        " resend batches as they were"
    )


@dataclass(slots=True)
class Producer:
    """Sequence of a producer on a partition."""

    next_sequence_id: int = 0
    # Wall clock, for people.
    last_time_ms: int = 0
    # Measured by the broker's run time: a jump of the wall clock makes no producer idle.
    last_run_time_ms: int = 0
    # Of a transactional producer of Kafka; 0 for others.
    epoch: int = 0
    # (sequence of the first message, entry id) of the newest batches.
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES_MAX))


class Producers:
    """All producers of a partition that sent plain messages."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Producers that changed since the last group was sealed; insertion order.
        self.dirty: dict[int, None] = {}
        # The newest epoch of each id that has epochs; None: no producer with an epoch came yet.
        self._epochs: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def all(self) -> Iterable[tuple[int, Producer]]:
        """Return all producers, by their ids."""
        return self._producers.items()

    def restore(self, producer_id: int, producer: Producer) -> None:
        """Restore a producer from its row."""
        self._producers[producer_id] = producer

    def get(self, producer_id: int) -> Producer | None:
        """Return a producer, or None."""
        return self._producers.get(producer_id)

    def newest_epoch(self, producer_id: int) -> int | None:
        """Return the newest epoch of an id that has epochs; None: the id is not known."""
        if self._epochs is None:
            self._epochs = {}
            for known in self._producers:
                self._note_epoch(self._epochs, known)
        return self._epochs.get(producer_id)

    @staticmethod
    def _note_epoch(epochs: dict[int, int], known: int) -> None:
        if known & _TRANSACTIONAL:
            return
        producer_id, epoch = known >> EPOCH_BITS, known & ((1 << EPOCH_BITS) - 1)
        if epoch > epochs.get(producer_id, -1):
            epochs[producer_id] = epoch

    def check(self, producer_id: int, sequence_id: int, count: int) -> bool:
        """Return whether a batch is a repeat. An unknown producer starts at 0.

        Raises:
            SequenceGap: as check_sequence.
            InvalidArgument: as check_sequence.
        """
        producer = self._producers.get(producer_id)
        expected = producer.next_sequence_id if producer is not None else 0
        return check_sequence(expected, sequence_id, count)

    def entry_of(self, producer_id: int, sequence_id: int) -> int | None:
        """Return the entry id of a repeated batch, if it is still remembered."""
        producer = self._producers.get(producer_id)
        if producer is not None:
            for first, entry_id in producer.recent:
                if first == sequence_id:
                    return entry_id
        return None

    def accept(
        self,
        producer_id: int,
        sequence_id: int,
        count: int,
        entry_id: int,
        *,
        now_ms: int,
        run_time_ms: int,
    ) -> None:
        """Note an accepted batch.

        Args:
            now_ms: wall clock.
        """
        if self._epochs is not None:
            self._note_epoch(self._epochs, producer_id)
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer()
        producer.next_sequence_id = sequence_id + count
        producer.last_time_ms = now_ms
        producer.last_run_time_ms = run_time_ms
        producer.recent.append((sequence_id, entry_id))
        self.dirty[producer_id] = None

    def place_in_transactions(
        self, producer_id: int, epoch: int, sequence: int, in_transaction: int
    ) -> int:
        """Return the place in its transaction of a batch of a transactional producer of Kafka.

        Args:
            sequence: of 31 bits; it runs over all transactions of the epoch.
            in_transaction: how many messages of the producer the transaction has here.
        Returns:
            The place to compare with `in_transaction`; negative: it repeats a batch of a
            transaction before.
        Raises:
            ProducerFenced: a later epoch of the producer is known.
        """
        known = self._producers.get(transactional(producer_id))
        expected = 0
        if known is not None:
            if epoch < known.epoch:
                raise ProducerFenced(
                    f"producer {producer_id} has epoch {known.epoch} here, and not {epoch}"
                )
            if epoch == known.epoch:
                expected = known.next_sequence_id
        return unwrapped(expected, sequence) - expected + in_transaction

    def accept_in_transaction(
        self, producer_id: int, epoch: int, count: int, *, now_ms: int, run_time_ms: int
    ) -> None:
        """Note an accepted batch of a transactional producer of Kafka.

        Args:
            now_ms: wall clock.
        """
        key = transactional(producer_id)
        producer = self._producers.get(key)
        if producer is None or producer.epoch != epoch:
            producer = self._producers[key] = Producer(epoch=epoch)
        # It has no offset before its transaction is committed.
        producer.recent.append((producer.next_sequence_id, 0))
        producer.next_sequence_id += count
        producer.last_time_ms = now_ms
        producer.last_run_time_ms = run_time_ms
        self.dirty[key] = None

    def idle_since(self, before_run_time_ms: int) -> list[int]:
        """Return producers whose last batch is older."""
        return [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.last_run_time_ms < before_run_time_ms
        ]

    def forget(self, producer_id: int) -> None:
        """Forget a producer."""
        self._producers.pop(producer_id, None)
        self.dirty.pop(producer_id, None)
        if self._epochs is not None and not producer_id & _TRANSACTIONAL:
            with_epochs, epoch = producer_id >> EPOCH_BITS, producer_id & ((1 << EPOCH_BITS) - 1)
            if self._epochs.get(with_epochs) == epoch:
                del self._epochs[with_epochs]
