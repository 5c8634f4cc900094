"""Settings of clients, producers and consumers. They are checked once, at construction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from magnetar.arguments import check_fields
from magnetar_core.batch import Codec
from magnetar_core.config import wrong_number
from magnetar_core.errors import InvalidArgument


def require(condition: bool, complaint: str) -> None:
    """Check a setting.

    Raises:
        InvalidArgument: the condition does not hold; the complaint is its text.
    """
    if not condition:
        raise InvalidArgument(complaint)


def _check_settings(settings: object, *, may_be_zero: Collection[str] = ()) -> None:
    check_fields(settings)
    complaint = wrong_number(settings, may_be_zero=may_be_zero)
    require(complaint is None, complaint or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of a client. They also hold for its producers, consumers and transactions.

    Attributes:
        client_name: the name that servers show in their logs and descriptions.
        connect_timeout_ms: how long an attempt to connect may take, the handshake included.
        bootstrap_timeout_ms: how long connect() tries to reach a first server. A program that
            starts before its cluster needs a longer time, or is started again. A server that was
            reached may take operation_timeout_ms to answer.
        request_timeout_ms: how long a request may stay without an answer before the client closes
            the link and opens another. A short time means quick recovery, a long time means
            patience with a slow disk.
        operation_timeout_ms: how long an administrative call, a lookup, a subscribe or an ack may
            take, all repeats included.
        coordinator_patience_ms: how long a coordinator may take to begin a transaction before the
            client asks the next coordinator as well. With a short time, a coordinator that hangs
            costs little. With a long time, a slow disk does not lead to a second transaction,
            which the client then aborts.
        broker_patience_ms: how long a broker may take to answer what every broker knows, before
            the client asks the next one as well. It has no effect while one broker is known.
        topic_refresh_ms: after how long a topic is looked up again that producers, consumers or
            readers use. With a short time they use new partitions soon; with a long time, brokers
            have fewer questions to answer.
        send_timeout_ms: how long sending a batch may take, all repeats included.
        commit_timeout_ms: how long commit() asks for the outcome; call it again to ask longer.
        abort_timeout_ms: how long abort() asks. The coordinator ends the transaction in any case
            when its time is up.
        abort_drain_ms: how long abort() waits for answers to sends and acks that are under way.
        close_timeout_ms: how long close() waits for messages that are still buffered.
        backoff_ms_min: the first pause between repeats; it doubles each time, with jitter.
        backoff_ms_max: the longest pause between repeats.
        pending_bytes_max: how many bytes all producers of the client together may hold in batches
            that are complete and not acknowledged. The incomplete batch of each partition is not
            counted.
        pending_messages_max: the same limit, as a number of messages.
        prefetch_bytes_max: how many bytes all consumers of the client together may fetch ahead of
            the application. Their partitions share it equally, and one that is not read holds
            little of it. The last batch of each partition may exceed its share. When partitions
            come to a client whose others hold all of it, it may be twice as much for a while.
    """

    client_name: str = "magnetar-python"
    connect_timeout_ms: float = 5_000
    bootstrap_timeout_ms: float = 8_000
    request_timeout_ms: float = 10_000
    operation_timeout_ms: float = 30_000
    coordinator_patience_ms: float = 250
    broker_patience_ms: float = 1_000
    topic_refresh_ms: float = 30_000
    send_timeout_ms: float = 120_000
    commit_timeout_ms: float = 60_000
    abort_timeout_ms: float = 10_000
    abort_drain_ms: float = 5_000
    close_timeout_ms: float = 10_000
    backoff_ms_min: float = 20
    backoff_ms_max: float = 2_000
    pending_bytes_max: int = 64 << 20
    pending_messages_max: int = 1 << 20
    prefetch_bytes_max: int = 64 << 20

    def __post_init__(self) -> None:
        _check_settings(self)
        require(
            self.backoff_ms_min <= self.backoff_ms_max,
            "backoff_ms_min must not exceed backoff_ms_max",
        )


class Batching(Enum):
    """Rule that says which messages share a batch."""

    # All messages of a partition.
    MIXED = "mixed"
    # The messages of a key. The broker then knows the key without opening the batch, and gives the
    # whole batch to one consumer of a KEY_SHARED subscription. There are more, smaller batches.
    BY_KEY = "by_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of a producer.

    Attributes:
        codec: how batches are compressed.
        batching: which messages share a batch.
        linger_ms: how long a batch waits for more messages. With 0 it waits until the end of the
            event loop's turn.
        batch_bytes_max: a batch that reaches this size leaves at once. Servers store batches of
            64 KiB to 256 KiB best. With BY_KEY the limit counts all keys of a partition together.
        batch_messages_max: a batch that reaches this number of messages leaves at once.
        in_flight_batches_max: how many batches of a partition may be sent and not yet answered.
        whole_bytes_max: a larger message is sent in parts, inside a transaction. The broker's
            limit on a batch counts as well.
        message_bytes_max: a larger message is refused. Value, key and properties count together.
    """

    codec: Codec = Codec.NONE
    batching: Batching = Batching.MIXED
    linger_ms: float = 1.0
    batch_bytes_max: int = 256 << 10
    batch_messages_max: int = 1 << 14
    in_flight_batches_max: int = 16
    whole_bytes_max: int = 4 << 20
    message_bytes_max: int = 256 << 20

    def __post_init__(self) -> None:
        _check_settings(self, may_be_zero=("linger_ms",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings of a consumer.

    Attributes:
        receiver_queue_messages: how many messages of each partition the consumer fetches ahead of
            the application. The last batch may exceed the limit.
        receiver_queue_bytes: the same limit, in bytes. All partitions of the client together have
            prefetch_bytes_max of ClientConfig.
        message_bytes_max: a larger message stops the consumer. Value, key and properties count
            together, after decompression. A batch may be decompressed to this size, and to 64 MiB
            in any case.
        ack_linger_ms: how long `ack_nowait` waits for more acks. With 0 it waits until the end of
            the event loop's turn.
        nack_delay_ms: how long after a nack the consumer asks for redelivery. The time doubles
            with each redelivery.
        nack_delay_ms_max: the longest such time.
    """

    receiver_queue_messages: int = 1_000
    receiver_queue_bytes: int = 64 << 20
    message_bytes_max: int = 256 << 20
    ack_linger_ms: float = 5.0
    nack_delay_ms: float = 1_000
    nack_delay_ms_max: float = 60_000

    def __post_init__(self) -> None:
        _check_settings(self, may_be_zero=("ack_linger_ms", "nack_delay_ms", "nack_delay_ms_max"))
        require(
            self.nack_delay_ms <= self.nack_delay_ms_max,
            "nack_delay_ms must not exceed nack_delay_ms_max",
        )

    def nack_delay_of(self, redelivery_count: int) -> float:
        """Return how many milliseconds to wait after a nack, given the redeliveries before it."""
        return min(self.nack_delay_ms * 2.0 ** min(redelivery_count, 32), self.nack_delay_ms_max)


Settings = TypeVar("Settings", ProducerConfig, ConsumerConfig)


def with_defaults(kind: type[Settings], **given: object) -> Settings:
    """Return settings; None stands for a field's default.

    Raises:
        InvalidArgument: a setting is not valid.
    """
    return kind(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
