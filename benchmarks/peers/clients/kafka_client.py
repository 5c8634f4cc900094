"""The rows of the comparison for Kafka, with its Python client (confluent-kafka)."""

from __future__ import annotations

import struct
import sys
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.clients.measuring import (
    ARRIVAL_PATIENCE_S,
    CHUNK_MESSAGES,
    COMMIT_PERIOD_S,
    PACE_S,
    POLL_S,
    Round,
    Task,
    awaited,
)

SENT = struct.Struct("<d")
POLL_MESSAGES_MAX = 10_000
TIMEOUT_S = 30.0
# What is said of partitions that have no leader yet, or whose leader has moved.
LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "retry.backoff.ms": 5,
    # A callback for each message would be Python's work, not the peer's.
    "delivery.report.only.error": True,
}
CONSUMER = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
}


class Rows:
    """The work of one task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._address = {"bootstrap.servers": task.text("address")}
        self._admin = AdminClient(self._address)
        self._failed: list[object] = []
        self._partitions = range(task.partitions)
        self._create()
        # Asks for offsets only.
        self._offsets = self._consumer("offsets")

    def produce(self) -> None:
        producer = self._producer()
        for measured, seconds in self._task.rounds():
            before = self._settled()
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds
            sent = 0
            while time.perf_counter() < deadline_s:
                sent += self._send_chunk(producer)
            self._flush(producer)
            one_round.end()
            one_round.result(sent, sent, awaited(before + sent, self._stored) - before)

    def commits(self) -> None:
        """Partitions in turn, so that it is known how many got a marker."""
        producer = self._producer({"transactional.id": self._task.topic})
        producer.init_transactions(TIMEOUT_S)
        for measured, seconds in self._task.rounds():
            before = self._settled()
            commits_s: list[float] = []
            one_round = Round(measured=measured)
            deadline_s = time.perf_counter() + seconds
            sent = markers = 0
            while time.perf_counter() < deadline_s:
                producer.begin_transaction()
                commit_at_s = time.perf_counter() + COMMIT_PERIOD_S
                chunks = 0
                while time.perf_counter() < commit_at_s:
                    sent += self._send_chunk(producer, chunks % self._task.partitions)
                    chunks += 1
                markers += min(chunks, self._task.partitions)
                called_s = time.perf_counter()
                producer.commit_transaction(TIMEOUT_S)
                commits_s.append(time.perf_counter() - called_s)
            one_round.end()
            without = before + markers
            arrived = awaited(without + sent, self._stored) - without
            one_round.result(sent, sent, arrived, {"commit()": commits_s})

    def consume(self) -> None:
        expected = self._task.number("count")
        consumer = self._consumer(f"{self._task.topic}-{self._task.call}")
        for measured in self._task.readings():
            consumer.assign(self._all(OFFSET_BEGINNING))
            one_round = Round(measured=measured)
            seen = 0
            while seen < expected:
                if self._task.call == "batch call":
                    messages = consumer.consume(POLL_MESSAGES_MAX, 0.1)
                    seen += sum(1 for message in messages if message.value())
                    if messages:
                        consumer.commit(asynchronous=True)
                else:
                    message = consumer.poll(0.1)
                    if message is not None and message.value():
                        seen += 1
                        if seen % POLL_MESSAGES_MAX == 0:
                            consumer.commit(asynchronous=True)
            # By name, since no position may have changed after the last commit.
            consumer.commit(offsets=consumer.position(self._all(OFFSET_END)), asynchronous=False)
            one_round.end()
            one_round.result(seen, self._stored(), seen)
        consumer.close()

    def tailing(self) -> None:
        producer = self._producer({"linger.ms": 1})
        padding = bytes(self._task.number("message_bytes") - SENT.size)
        rate = self._task.number("rate")
        places = [TopicPartition(self._task.topic, one, self._end(one)) for one in self._partitions]
        tail = Tail(self._consumer("tail"), places)
        for measured, seconds in self._task.rounds():
            before = self._stored()
            tail.latencies_s = []
            one_round = Round(measured=measured)
            began_s = time.perf_counter()
            sent = 0
            while (elapsed_s := time.perf_counter() - began_s) < seconds:
                while sent < int(elapsed_s * rate):
                    value = SENT.pack(time.perf_counter()) + padding
                    partition = sent % self._task.partitions
                    producer.produce(self._task.topic, value, partition=partition)
                    sent += 1
                producer.poll(0)
                time.sleep(PACE_S)
            self._flush(producer)
            tail.wait(sent)
            one_round.end()
            arrived = awaited(before + sent, self._stored) - before
            one_round.result(sent, sent, arrived, {"send to receive": tail.latencies_s})
        tail.close()

    def _send_chunk(self, producer: Producer, partition: int | None = None) -> int:
        """Send a thousand messages; to no partition in particular: to one for each batch."""
        value, topic = self._task.value, self._task.topic
        place = -1 if partition is None else partition
        if self._task.call == "batch call":
            messages: list[dict[str, Any]] = [{"value": value} for _ in range(CHUNK_MESSAGES)]
            while messages:
                producer.produce_batch(topic, messages, partition=place)
                # Those for which there was no room are marked.
                messages = [{"value": value} for message in messages if "_error" in message]
                producer.poll(0.01 if messages else 0)
            return CHUNK_MESSAGES
        for _ in range(CHUNK_MESSAGES):
            while True:
                try:
                    producer.produce(topic, value, None, place)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        return CHUNK_MESSAGES

    def _flush(self, producer: Producer) -> None:
        if producer.flush(ARRIVAL_PATIENCE_S) or self._failed:
            raise RuntimeError(f"not all messages were delivered: {self._failed[:1]}")

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def _producer(self, others: Mapping[str, object] = MappingProxyType({})) -> Producer:
        return Producer({**self._address, **PRODUCER, **others, "on_delivery": self._delivered})

    def _consumer(self, group: str) -> Consumer:
        return Consumer({**self._address, **CONSUMER, "group.id": group})

    def _all(self, offset: int) -> list[TopicPartition]:
        return [TopicPartition(self._task.topic, one, offset) for one in self._partitions]

    def _stored(self) -> int:
        """The sum of the end offsets, which counts markers, too."""
        return sum(self._end(one) for one in self._partitions)

    def _end(self, partition: int) -> int:
        """The end offset of a partition, which has no leader for a moment after it was made."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                place = TopicPartition(self._task.topic, partition)
                return int(self._offsets.get_watermark_offsets(place, TIMEOUT_S)[1])
            except KafkaException as error:
                if error.args[0].code() not in LEADERLESS or time.monotonic() > deadline_s:
                    raise
                time.sleep(POLL_S)

    def _settled(self) -> int:
        """The same, once it does not grow: markers of the last round may be on their way."""
        found, last = self._stored(), -1
        while found != last:
            time.sleep(POLL_S * 5)
            found, last = self._stored(), found
        return found

    def _create(self) -> None:
        if self._task.topic not in self._admin.list_topics(timeout=TIMEOUT_S).topics:
            topic = NewTopic(self._task.topic, self._task.partitions)
            for made in self._admin.create_topics([topic]).values():
                made.result(TIMEOUT_S)


class Tail:
    """A reader of everything that is committed from now on, on a thread of its own."""

    def __init__(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self.latencies_s: list[float] = []
        self._consumer = consumer
        # The places have the present offsets, so messages before the first fetch are read, too.
        consumer.assign(places)
        self._open = True
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self, count: int) -> None:
        deadline_s = time.monotonic() + ARRIVAL_PATIENCE_S
        while len(self.latencies_s) < count and time.monotonic() < deadline_s:
            time.sleep(PACE_S)

    def close(self) -> None:
        self._open = False
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        while self._open:
            message = self._consumer.poll(0.1)
            if message is not None and message.value():
                now_s = time.perf_counter()
                self.latencies_s.append(now_s - SENT.unpack_from(message.value())[0])


def main(arguments: list[str]) -> None:
    task = Task(arguments)
    getattr(Rows(task), task.text("work"))()


if __name__ == "__main__":
    main(sys.argv[1:])
