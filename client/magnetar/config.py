"""Settings, each with its unit and its trade-off. Relations are checked once, at construction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from magnetar_core.batch import Codec
from magnetar_core.errors import InvalidArgument


def require(condition: bool, complaint: str) -> None:
    """Raises: InvalidArgument with the complaint, unless the condition holds."""
    if not condition:
        raise InvalidArgument(complaint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Of a client and everything made from it.

    Attributes:
        client_name: shown in the servers' logs and descriptions.
        connect_timeout_ms: for one attempt, the handshake included.
        request_timeout_ms: a link on which a request has had no answer for so long is taken for
            dead, closed, and replaced. Short: quick recovery. Long: patience with a slow disk.
        operation_timeout_ms: until an administrative call, a lookup, a subscribe or an ack gives
            up, all repeats included.
        coordinator_patience_ms: how long a coordinator may take to begin a transaction before the
            next one is asked as well. Short: little is lost to one that hangs. Long: a slow disk
            makes nobody begin transactions twice, one of which is aborted.
        send_timeout_ms: until a batch gives up, all repeats included.
        commit_timeout_ms: until commit() stops asking for the outcome; ask again to know.
        abort_timeout_ms: until abort() stops asking. The coordinator expires it in any case.
        abort_drain_ms: how long abort() waits for answers that are under way.
        close_timeout_ms: how long close() waits for what is still buffered.
        backoff_ms_min, backoff_ms_max: between repeats; doubled each time, with jitter.
        pending_bytes_max, pending_messages_max: what all producers of the client may hold
            unacknowledged in closed batches; each partition's open batch comes on top.
    """

    client_name: str = "magnetar-python"
    connect_timeout_ms: float = 5_000
    request_timeout_ms: float = 10_000
    operation_timeout_ms: float = 30_000
    coordinator_patience_ms: float = 250
    send_timeout_ms: float = 120_000
    commit_timeout_ms: float = 60_000
    abort_timeout_ms: float = 10_000
    abort_drain_ms: float = 5_000
    close_timeout_ms: float = 10_000
    backoff_ms_min: float = 20
    backoff_ms_max: float = 2_000
    pending_bytes_max: int = 64 << 20
    pending_messages_max: int = 1 << 20

    def __post_init__(self) -> None:
        for name in (
            "connect_timeout_ms",
            "request_timeout_ms",
            "operation_timeout_ms",
            "coordinator_patience_ms",
            "send_timeout_ms",
            "commit_timeout_ms",
            "abort_timeout_ms",
            "abort_drain_ms",
            "close_timeout_ms",
            "backoff_ms_min",
            "pending_bytes_max",
            "pending_messages_max",
        ):
            require(getattr(self, name) > 0, f"{name} must be above 0")
        require(
            self.backoff_ms_min <= self.backoff_ms_max,
            "backoff_ms_min must not exceed backoff_ms_max",
        )


class Batching(Enum):
    """Which messages share a batch."""

    # All of a partition.
    MIXED = "mixed"
    # Those of one key. The broker then sees the key without opening the batch, and gives it as a
    # whole to one consumer of a KEY_SHARED subscription; batches are smaller, and more.
    BY_KEY = "by_key"

    @classmethod
    def of(cls, choice: Batching | str) -> Batching:
        """Read "mixed" or "by_key".

        Raises:
            InvalidArgument: neither.
        """
        try:
            return cls(choice)
        except ValueError:
            raise InvalidArgument(f'{choice!r} is neither "mixed" nor "by_key"') from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Of one producer.

    Attributes:
        codec: how batches are compressed.
        batching: which messages share a batch.
        linger_ms: how long a batch waits for more messages. 0: until the end of the loop's turn.
        batch_bytes_max, batch_messages_max: a batch that reaches either is closed at once. Of
            64 KiB to 256 KiB, servers store best. BY_KEY: what is gathered for a partition, of all
            keys together.
        in_flight_batches_max: per partition, sent and not yet answered.
        whole_bytes_max: a larger message is sent in parts, inside a transaction. The broker's own
            limit on a batch counts too, once it is known.
        message_bytes_max: a larger one is refused: value, key and properties together.
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
        require(self.linger_ms >= 0, "linger_ms must not be negative")
        require(self.batch_bytes_max > 0, "batch_bytes_max must be above 0")
        require(self.batch_messages_max > 0, "batch_messages_max must be above 0")
        require(self.in_flight_batches_max > 0, "in_flight_batches_max must be above 0")
        require(self.whole_bytes_max > 0, "whole_bytes_max must be above 0")
        require(self.message_bytes_max > 0, "message_bytes_max must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Of one consumer.

    Attributes:
        receiver_queue_messages, receiver_queue_bytes: per partition, fetched ahead of the
            application. The last batch may exceed them.
        message_bytes_max: a larger message stops the consumer: its value, key and properties
            together, as they are when its batch is opened. A batch may be opened to as much, and to
            64 MiB in any case.
        ack_linger_ms: how long `ack_nowait` waits for more. 0: until the end of the loop's turn.
        nack_delay_ms: from a nack to the request for redelivery; doubled with each redelivery.
        nack_delay_ms_max: where doubling stops.
    """

    receiver_queue_messages: int = 1_000
    receiver_queue_bytes: int = 64 << 20
    message_bytes_max: int = 256 << 20
    ack_linger_ms: float = 5.0
    nack_delay_ms: float = 1_000
    nack_delay_ms_max: float = 60_000

    def __post_init__(self) -> None:
        require(self.receiver_queue_messages > 0, "receiver_queue_messages must be above 0")
        require(self.receiver_queue_bytes > 0, "receiver_queue_bytes must be above 0")
        require(self.message_bytes_max > 0, "message_bytes_max must be above 0")
        require(self.ack_linger_ms >= 0, "ack_linger_ms must not be negative")
        require(self.nack_delay_ms >= 0, "nack_delay_ms must not be negative")
        require(
            self.nack_delay_ms <= self.nack_delay_ms_max,
            "nack_delay_ms must not exceed nack_delay_ms_max",
        )

    def nack_delay_of(self, redelivery_count: int) -> float:
        """Milliseconds to wait before asking again for a message redelivered so often."""
        return min(self.nack_delay_ms * 2.0 ** min(redelivery_count, 32), self.nack_delay_ms_max)
