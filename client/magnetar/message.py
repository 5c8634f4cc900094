"""What was received: batches as columns, and messages as light views of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from magnetar_core.batch import (
    BODY_BYTES_MAX,
    ONE_MESSAGE_OVERHEAD_BYTES,
    Columns,
    decode,
    join,
    read_header,
)
from magnetar_core.errors import ChecksumMismatch, InvalidArgument, MessageTooLarge
from magnetar_core.ids import MessageId, TxnID
from magnetar_core.wire import broker_pb2

# A larger message is not handed out, unless the application raises that.
MESSAGE_BYTES_MAX_DEFAULT = 256 << 20


class ReceivedBatch:
    """A stored batch as it came; decoded once, when it is first looked into."""

    __slots__ = (
        "_columns",
        "_keys",
        "_properties",
        "_values",
        "append_time_ms",
        "body_bytes_max",
        "data",
        "entry_id",
        "first_index",
        "ledger_id",
        "num_messages",
        "partition",
        "receiver",
        "redelivery_count",
        "topic",
        "txn_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        ledger_id: int,
        wire: broker_pb2.DeliveredBatch,
        receiver: int = 0,
        message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
    ) -> None:
        """A batch as a broker delivered it.

        Args:
            receiver: the number of the receiver that got the batch; only that receiver may
                acknowledge its messages.
            message_bytes_max: the largest message that may be opened, in bytes.
        """
        self.receiver = receiver
        # What opening it may take, whatever it declares.
        self.body_bytes_max = max(message_bytes_max, BODY_BYTES_MAX)
        self.topic = topic
        self.partition = partition
        self.ledger_id = ledger_id
        self.entry_id = wire.entry_id
        self.first_index = wire.first_index
        self.num_messages = wire.num_messages
        self.data = wire.batch
        self.redelivery_count = wire.redelivery_count
        self.append_time_ms = wire.append_time_ms
        self.txn_id = TxnID.from_wire(wire.txn_id) if wire.HasField("txn_id") else None
        self._columns: Columns | None = None
        self._values: list[bytes] | None = None
        self._keys: list[bytes] | None = None
        self._properties: list[dict[str, str]] | None = None

    @property
    def first_offset(self) -> int:
        return self.entry_id + self.first_index

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.num_messages - 1

    @property
    def permits(self) -> int:
        """What handing out one of its offsets gives back to the broker."""
        return 1

    @property
    def columns(self) -> Columns:
        """The batch's columns.

        Raises:
            ChecksumMismatch, InvalidArgument: damaged.
            MessageTooLarge: it declares to be larger than any batch may be.
        """
        if self._columns is None:
            self._columns = decode(self.data, body_bytes_max=self.body_bytes_max)
        return self._columns

    def check_sizes(self, ranges: Iterable[tuple[int, int]], message_bytes_max: int) -> None:
        """Hold the messages at these offsets against a limit; opens it only if one may exceed it.

        Raises:
            MessageTooLarge: a message has more, or the batch more than any may have.
        """
        try:
            body_bytes = read_header(self.data, verify=False).body_bytes
            if body_bytes <= message_bytes_max:
                return
            columns, base = self.columns, self.first_offset
            size = max(
                columns.largest_message_bytes(first - base, last - base) for first, last in ranges
            )
        except (ChecksumMismatch, InvalidArgument):
            return  # Whoever is handed it out is told.
        if size > message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes in the batch at offset {base} of partition"
                f" {self.partition}: raise message_bytes_max, {message_bytes_max}",
                message_bytes_max=message_bytes_max,
            )

    @property
    def values(self) -> list[bytes]:
        if self._values is None:
            self._values = self.columns.values()
        return self._values

    @property
    def keys(self) -> list[bytes] | None:
        if self._keys is None:
            self._keys = self.columns.keys()
        return self._keys

    @property
    def properties(self) -> list[dict[str, str]] | None:
        if self._properties is None:
            self._properties = self.columns.properties()
        return self._properties


class AssembledBatch(ReceivedBatch):
    """One message that came in parts; it has the offsets of all of them."""

    __slots__ = ()

    def __init__(self, parts: list[ReceivedBatch], message_bytes_max: int) -> None:
        """Raises: ChecksumMismatch, InvalidArgument: a part is damaged."""
        first = parts[0]
        self.body_bytes_max = message_bytes_max + ONE_MESSAGE_OVERHEAD_BYTES
        self.receiver = first.receiver
        self.topic = first.topic
        self.partition = first.partition
        self.ledger_id = first.ledger_id
        self.entry_id = first.entry_id
        self.first_index = first.first_index
        self.num_messages = len(parts)
        self.data = join([part.data for part in parts])
        self.redelivery_count = max(part.redelivery_count for part in parts)
        self.append_time_ms = first.append_time_ms
        self.txn_id = first.txn_id
        self._columns = None
        self._values = None
        self._keys = None
        self._properties = None

    @property
    def permits(self) -> int:
        """None: they were given back as the parts came."""
        return 0


class Message:
    """One received message: a place in a batch."""

    __slots__ = ("_at", "_batch")

    def __init__(self, batch: ReceivedBatch, at: int) -> None:
        self._batch = batch
        self._at = at

    @property
    def value(self) -> bytes:
        return self._batch.values[self._at]

    @property
    def key(self) -> bytes | None:
        """None without a key; an empty key counts as none."""
        keys = self._batch.keys
        return None if keys is None else keys[self._at] or None

    @property
    def properties(self) -> Mapping[str, str]:
        properties = self._batch.properties
        return {} if properties is None else properties[self._at]

    @property
    def event_time_ms(self) -> int | None:
        """The application's time, milliseconds since the Unix epoch; None when none was given."""
        times = self._batch.columns.event_times_ms
        return None if times is None else times[self._at] or None

    @property
    def append_time_ms(self) -> int:
        """When the broker stored it; for a transaction's message, its commit marker."""
        return self._batch.append_time_ms

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        return self._batch.partition

    @property
    def batch(self) -> ReceivedBatch:
        """The one that it came in."""
        return self._batch

    @property
    def offset(self) -> int:
        """Its place; of a message that was sent in parts, the first one's."""
        return self._batch.first_offset + self._at

    @property
    def last_offset(self) -> int:
        """Differs from `offset` for a message that was sent in parts."""
        batch = self._batch
        return batch.last_offset if isinstance(batch, AssembledBatch) else self.offset

    @property
    def message_id(self) -> MessageId:
        batch = self._batch
        return MessageId(
            batch.ledger_id, batch.entry_id, batch.first_index + self._at, batch.partition
        )

    @property
    def redelivery_count(self) -> int:
        return self._batch.redelivery_count

    @property
    def txn_id(self) -> TxnID | None:
        """The transaction that it was sent in."""
        return self._batch.txn_id

    def __repr__(self) -> str:
        return f"<Message {self.topic} {self.message_id}, {len(self.value)} bytes>"


class MessageColumns:
    """Messages of one batch that lie side by side, without an object for each.

    Attributes:
        start, stop: their places in `columns`, whose other messages are not to be looked at.
    """

    __slots__ = ("batch", "start", "stop")

    def __init__(self, batch: ReceivedBatch, start: int, stop: int) -> None:
        self.batch = batch
        self.start = start
        self.stop = stop

    @property
    def columns(self) -> Columns:
        """The whole batch, laid out as Arrow does; see magnetar_core.batch."""
        return self.batch.columns

    @property
    def topic(self) -> str:
        return self.batch.topic

    @property
    def partition(self) -> int:
        return self.batch.partition

    @property
    def ledger_id(self) -> int:
        return self.batch.ledger_id

    @property
    def append_time_ms(self) -> int:
        return self.batch.append_time_ms

    @property
    def redelivery_count(self) -> int:
        return self.batch.redelivery_count

    @property
    def txn_id(self) -> TxnID | None:
        return self.batch.txn_id

    @property
    def first_offset(self) -> int:
        return self.batch.first_offset + self.start

    @property
    def last_offset(self) -> int:
        if isinstance(self.batch, AssembledBatch):
            return self.batch.last_offset
        return self.batch.first_offset + self.stop - 1

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Message]:
        return (Message(self.batch, at) for at in range(self.start, self.stop))

    def values(self) -> list[bytes]:
        return self.batch.values[self.start : self.stop]

    def keys(self) -> list[bytes] | None:
        keys = self.batch.keys
        return None if keys is None else keys[self.start : self.stop]
