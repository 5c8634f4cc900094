"""Worker of a group: consumes a topic with a client library, and commits what it has told.

Arguments: the library, the broker's address, the group, the topic. Each message is a line of its
partition, offset and value; it is told before it is committed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

SETTINGS = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}


def tell(partition: int, offset: int, value: bytes) -> None:
    print(partition, offset, value.decode(), flush=True)


def confluent(address: str, group: str, topic: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "roundrobin",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([topic])
    while True:
        messages = [one for one in consumer.consume(20, 0.2) if one.error() is None]
        for one in messages:
            tell(one.partition(), one.offset(), one.value())
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print("not committed:", error, file=sys.stderr)


def kafka_python(address: str, group: str, topic: str) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        max_poll_records=20,
        **SETTINGS,
    )
    while True:
        found = consumer.poll(timeout_ms=200)
        for messages in found.values():
            for one in messages:
                tell(one.partition, one.offset, one.value)
        if found:
            try:
                consumer.commit()
            except KafkaError as error:
                print("not committed:", error, file=sys.stderr)


def aiokafka(address: str, group: str, topic: str) -> None:
    asyncio.run(_aiokafka(address, group, topic))


async def _aiokafka(address: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        max_poll_records=20,
        **SETTINGS,
    )
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=200)
        for messages in found.values():
            for one in messages:
                tell(one.partition, one.offset, one.value)
        if found:
            try:
                await consumer.commit()
            except KafkaError as error:
                print("not committed:", error, file=sys.stderr)


LIBRARIES: dict[str, Callable[[str, str, str], None]] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

if __name__ == "__main__":
    LIBRARIES[sys.argv[1]](*sys.argv[2:])
