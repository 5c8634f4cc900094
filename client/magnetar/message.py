"""Received batches, as columns, and messages, which are light views of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from itertools import repeat

from magnetar.habits import KnowsHabits
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

# The application does not get a larger message unless it raises this limit.
MESSAGE_BYTES_MAX_DEFAULT = 256 << 20


class ReceivedBatch:
    """A stored batch as it was received. It is decoded at the first access, once."""

    __slots__ = (
        "_columns",
        "_keys",
        "_properties",
        "_values",
        "append_time_ms",
        "body_bytes_max",
        "consumer_id",
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
        consumer_id: int = 0,
        message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
    ) -> None:
        """A batch as a broker delivered it.

        Args:
            receiver: the number of the receiver that got the batch; only that receiver may
                acknowledge its messages.
            consumer_id: the id of the Consumer or GroupConsumer that received the batch; 0: a
                reader did.
            message_bytes_max: the largest message that may be opened, in bytes.
        """
        self.receiver = receiver
        self.consumer_id = consumer_id
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

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy it without what was read of it."""
        given = {name: getattr(self, name) for name in ReceivedBatch.__slots__}
        state = given | dict.fromkeys(("_columns", "_keys", "_properties", "_values"))
        return object.__new__, (type(self),), (None, state)

    def single(self, place: int) -> ReceivedBatch:
        """Return a batch that has one of the messages, at place 0."""
        if isinstance(self, AssembledBatch):
            return self
        one = copy(self)
        one.first_index += place
        one.num_messages = 1
        one.data = self.columns.single(place)
        return one

    @property
    def first_offset(self) -> int:
        """The offset of the first message."""
        return self.entry_id + self.first_index

    @property
    def last_offset(self) -> int:
        """The offset of the last message."""
        return self.first_offset + self.num_messages - 1

    @property
    def permits(self) -> int:
        """Permits that the broker gets back when the application gets one of its offsets."""
        return 1

    @property
    def columns(self) -> Columns:
        """The columns of the batch.

        Raises:
            ChecksumMismatch: the batch is damaged.
            InvalidArgument: the batch is damaged.
            MessageTooLarge: the batch declares to be larger than a batch may be.
        """
        if self._columns is None:
            self._columns = decode(self.data, body_bytes_max=self.body_bytes_max)
        return self._columns

    def check_sizes(self, ranges: Iterable[tuple[int, int]], message_bytes_max: int) -> None:
        """Check the sizes of the messages at these offsets.

        The batch is opened only if a message may exceed the limit.

        Raises:
            MessageTooLarge: a message exceeds the limit, or the batch declares to be too large.
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
            return  # The application learns of the damage when it gets the batch.
        if size > message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes in the batch at offset {base} of partition"
                f" {self.partition}: raise message_bytes_max, {message_bytes_max}",
                message_bytes_max=message_bytes_max,
            )

    @property
    def values(self) -> list[bytes]:
        """The values of the messages."""
        if self._values is None:
            self._values = self.columns.values()
        return self._values

    @property
    def keys(self) -> list[bytes] | None:
        """The keys of the messages; None when no message has a key."""
        if self._keys is None:
            self._keys = self.columns.keys()
        return self._keys

    @property
    def properties(self) -> list[dict[str, str]] | None:
        """The properties of the messages; None when no message has properties."""
        if self._properties is None:
            self._properties = self.columns.properties()
        return self._properties


class AssembledBatch(ReceivedBatch):
    """A message that came in parts. It has the offsets of all parts."""

    __slots__ = ()

    def __init__(self, parts: list[ReceivedBatch], message_bytes_max: int) -> None:
        """Join the parts.

        Raises:
            ChecksumMismatch: a part is damaged.
            InvalidArgument: a part is damaged.
        """
        first = parts[0]
        self.body_bytes_max = message_bytes_max + ONE_MESSAGE_OVERHEAD_BYTES
        self.receiver = first.receiver
        self.consumer_id = first.consumer_id
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
        """Always 0: the permits were given back when the parts came."""
        return 0


class Message(KnowsHabits):
    """A received message. It is a light view of a message in a batch.

    Attributes:
        batch: the batch in which the message came.
        place: the place of the message in the columns of the batch.
    """

    __slots__ = ("batch", "place")

    def __init__(self, batch: ReceivedBatch, place: int) -> None:
        self.batch = batch
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy it without the other messages of its batch."""
        return Message, (self.batch.single(self.place), 0)

    @property
    def value(self) -> bytes:
        """The value."""
        # Not the batch's property, which would be a call more for each message.
        values = self.batch._values
        return (self.batch.values if values is None else values)[self.place]

    @property
    def key(self) -> bytes | None:
        """The key; None for a message without a key, or with an empty key."""
        keys = self.batch.keys
        return None if keys is None else keys[self.place] or None

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties, which the producer has set."""
        properties = self.batch.properties
        return {} if properties is None else properties[self.place]

    @property
    def event_time_ms(self) -> int | None:
        """The time that the producer gave, in milliseconds since the Unix epoch; None without."""
        return self.batch.columns.event_time_ms(self.place)

    @property
    def append_time_ms(self) -> int:
        """When the broker stored the message, in milliseconds since the Unix epoch.

        For a message of a transaction this is the time of the commit marker. Append times never
        decrease in a partition: after the broker's clock was set back, messages get the time of the
        last one until the clock has passed it.
        """
        return self.batch.append_time_ms

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.batch.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.batch.partition

    @property
    def offset(self) -> int:
        """The offset in the partition. For a message in parts, the offset of the first part."""
        return self.batch.first_offset + self.place

    @property
    def last_offset(self) -> int:
        """The last offset of a message that was sent in parts; otherwise the same as `offset`."""
        batch = self.batch
        return batch.last_offset if isinstance(batch, AssembledBatch) else self.offset

    @property
    def message_id(self) -> MessageId:
        """The id, with which the message can be acknowledged or found again."""
        batch = self.batch
        return MessageId(
            batch.ledger_id, batch.entry_id, batch.first_index + self.place, batch.partition
        )

    @property
    def redelivery_count(self) -> int:
        """Number of earlier deliveries of the message."""
        return self.batch.redelivery_count

    @property
    def txn_id(self) -> TxnID | None:
        """The transaction in which the message was sent; None outside of transactions."""
        return self.batch.txn_id

    def __repr__(self) -> str:
        return f"<Message {self.topic} {self.message_id}, {len(self.value)} bytes>"


class MessageColumns:
    """Consecutive messages of a batch, without an object for each message.

    Attributes:
        batch: the batch that has the messages.
        start: the place of the first message in `columns`.
        stop: the place after the last message. Messages before `start` and from `stop` on are not
            for this consumer.
    """

    __slots__ = ("batch", "start", "stop")

    def __init__(self, batch: ReceivedBatch, start: int, stop: int) -> None:
        self.batch = batch
        self.start = start
        self.stop = stop

    @property
    def columns(self) -> Columns:
        """The columns of the whole batch, as Arrow lays them out."""
        return self.batch.columns

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.batch.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.batch.partition

    @property
    def ledger_id(self) -> int:
        """The ledger id, as in the MessageId of each message."""
        return self.batch.ledger_id

    @property
    def append_time_ms(self) -> int:
        """When the broker stored the messages, in milliseconds since the Unix epoch."""
        return self.batch.append_time_ms

    @property
    def redelivery_count(self) -> int:
        """Number of earlier deliveries of the messages."""
        return self.batch.redelivery_count

    @property
    def txn_id(self) -> TxnID | None:
        """The transaction in which the messages were sent; None outside of transactions."""
        return self.batch.txn_id

    @property
    def first_offset(self) -> int:
        """The offset of the first message."""
        return self.batch.first_offset + self.start

    @property
    def last_offset(self) -> int:
        """The offset of the last message."""
        if isinstance(self.batch, AssembledBatch):
            return self.batch.last_offset
        return self.batch.first_offset + self.stop - 1

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Message]:
        return map(Message, repeat(self.batch), range(self.start, self.stop))

    def values(self) -> list[bytes]:
        """Return the values of the messages."""
        return self.batch.values[self.start : self.stop]

    def keys(self) -> list[bytes] | None:
        """Return the keys of the messages; None when no message has a key."""
        keys = self.batch.keys
        return None if keys is None else keys[self.start : self.stop]
