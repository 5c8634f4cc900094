"""Messages for transactions to acknowledge."""

from __future__ import annotations

from collections import deque

from magnetar import Client, Consumer, Message, Producer

# Entries that are stored at once.
ENTRIES_AT_ONCE = 1_000


class Inputs:
    """One-message entries of a topic of their own, received beforehand.

    A transaction that takes some pays for their acknowledgement, and not for their delivery.
    """

    def __init__(self, producer: Producer, consumer: Consumer, value: bytes) -> None:
        self._producer = producer
        self._consumer = consumer
        self._value = value
        self._received: deque[Message] = deque()

    @classmethod
    async def create(
        cls, client: Client, topic: str, *, partitions: int, message_bytes: int
    ) -> Inputs:
        await client.admin.topics.create(topic, partitions=partitions)
        producer = await client.create_producer(topic, linger_ms=0, batch_messages_max=1)
        consumer = await client.subscribe(topic, "inputs", initial_position="earliest")
        return cls(producer, consumer, bytes(message_bytes))

    @property
    def consumer(self) -> Consumer:
        """The consumer that acknowledges the inputs."""
        return self._consumer

    def __len__(self) -> int:
        return len(self._received)

    async def fill(self, count: int) -> None:
        """Make sure that so many can be taken."""
        missing = count - len(self._received)
        for done in range(0, missing, ENTRIES_AT_ONCE):
            for _ in range(min(ENTRIES_AT_ONCE, missing - done)):
                await self._producer.enqueue(self._value)
            await self._producer.flush()
        while len(self._received) < count:
            self._received += await self._consumer.receive_batch()

    def take(self, count: int) -> list[Message]:
        """Each once; there must be so many."""
        return [self._received.popleft() for _ in range(count)]
