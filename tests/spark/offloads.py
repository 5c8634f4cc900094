"""Topics with everything that an offload has to keep, and what readers see of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from magnetar import blocking

LARGE_BYTES = 9 << 20


class Seen(NamedTuple):
    """A message as its reader sees it, or a row as whoever knows Parquet does."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    event_time_ms: int | None
    append_time_ms: int
    txn_id: str | None
    headers: tuple[tuple[str, str], ...]

    @property
    def content(self) -> tuple[object, ...]:
        """What a restore keeps; transactions and offsets become others."""
        return (self.key, self.value, self.event_time_ms, self.headers)


def fill(client: blocking.Client, topic: str, partitions: int = 3) -> None:
    """Plain messages, transactions that were open at the same time, aborted and open ones."""
    client.admin.topics.create(topic, partitions=partitions)
    add(client, topic, partitions, "first")
    hanging = client.begin_transaction(600)
    client.create_producer(topic).send(b"open", partition=0, txn=hanging)


def add(client: blocking.Client, topic: str, partitions: int, prefix: str) -> None:
    producer = client.create_producer(topic)

    def send(text: str, partition: int, txn: blocking.Transaction | None = None) -> None:
        producer.send(
            f"{prefix} {text}".encode(),
            {0: None, 1: b"", 2: b"key"}[partition % 3],
            properties={"name": text, "empty": "", "\u00e9": "\u00fc"} if "h" in text else None,
            event_time_ms=1_700_000_000_123 + len(text) if "t" in text else None,
            partition=partition,
            txn=txn,
        )

    for partition in range(partitions):
        for number in range(4):
            send(f"plain with {number}", partition)
            send(f"bare {number}", partition)
    one, other, lost = (client.begin_transaction(600) for _ in range(3))
    for number in range(3):
        for partition in range(partitions):
            send(f"one {number}", partition, one)
            send(f"the other {number}", partition, other)
            send(f"lost {number}", partition, lost)
    other.commit(wait_finished=True)
    lost.abort()
    send("between", 0)
    one.commit(wait_finished=True)
    large = f"{prefix} large ".encode() + bytes(LARGE_BYTES)
    producer.send(large, b"large", properties={"a": "b"}, partition=partitions - 1)
    send("the last", partitions - 1)
    producer.send(b"", partition=0)


def read_topic(client: blocking.Client, topic: str) -> list[Seen]:
    """In order, partition by partition."""
    return [
        Seen(
            one.partition,
            one.offset,
            one.key,
            one.value,
            one.event_time_ms,
            one.append_time_ms,
            None if one.txn_id is None else str(one.txn_id),
            tuple(sorted(one.properties.items())),
        )
        for place in client.admin.topics.describe(topic).partitions
        for one in client.read(topic, place.partition, place.first_offset)
    ]


def files(directory: Path) -> list[Path]:
    """What a reader of Parquet takes: all but what begins with "_" or "."."""
    found = [
        path
        for path in directory.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(directory).parts)
    ]
    return sorted(found, key=lambda path: (int(path.parent.name.partition("=")[2]), path.name))


def read_files(directory: Path) -> list[Seen]:
    """By pyarrow, which knows nothing of Magnetar, in the order of files' names."""
    return [row for path in files(directory) for row in read_file(path)]


def read_file(path: Path) -> list[Seen]:
    partition = int(path.parent.name.partition("=")[2])
    table = pq.read_table(path, partitioning=None)
    assert table.column_names == [
        *("key", "value", "headers", "event_time", "timestamp", "offset", "txn_id")
    ]
    return [
        Seen(
            partition,
            row["offset"],
            row["key"],
            row["value"],
            None if row["event_time"] is None else _ms(row["event_time"]),
            _ms(row["timestamp"]),
            row["txn_id"],
            tuple(sorted((one["key"], one["value"].decode()) for one in row["headers"] or ())),
        )
        for row in table.to_pylist()
    ]


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def by_partition(seen: list[Seen]) -> dict[int, list[tuple[object, ...]]]:
    found: dict[int, list[tuple[object, ...]]] = {}
    for one in seen:
        found.setdefault(one.partition, []).append(one.content)
    return found
