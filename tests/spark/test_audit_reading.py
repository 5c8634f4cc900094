"""The rows that an audit's tasks make of ranges, with real servers and without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.system.processes import Servers

from magnetar import blocking
from magnetar_spark.jobs.auditing.audit_checks import OPEN, PART, SCANNED, STORED, of_rows
from magnetar_spark.jobs.auditing.audit_source import list_sidecar, packed, watch
from magnetar_spark.planning import Range

pytestmark = pytest.mark.chaos

LARGE = b"x" * (3 << 20)


@pytest.fixture
def client(servers: Servers) -> Iterator[blocking.Client]:
    with blocking.connect(servers.address) as client:
        yield client


def test_a_message_in_parts_is_whole_wherever_tasks_are_cut(client: blocking.Client) -> None:
    """Its parts have offsets of their own, and it is read where it begins."""
    topic_id = client.admin.topics.create("t")
    producer = client.create_producer("t", whole_bytes_max=1 << 20)
    for value in (b"small", LARGE, b"small", LARGE):
        producer.send(value)
    # The parts are a transaction: it is decided when send() returns, and carried out soon.
    deadline = time.monotonic() + 30
    while len(list(client.read("t"))) < 4:
        assert time.monotonic() < deadline
    end = client.admin.topics.list_offsets("t").partitions[0].end_offset
    assert end > 6
    for cut in range(1, end):
        rows = [
            row
            for start, stop in ((0, cut), (cut, end))
            for row in watch(client, Range("t", topic_id, 0, start, stop))
        ]
        assert of_rows(rows) == [], cut
        assert sum(row.messages for row in rows if row.kind == SCANNED) == 4, cut
        assert sum(row.messages for row in rows if row.kind == PART) == 2, cut


def test_a_sidecar_is_listed_page_by_page(
    client: blocking.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar_spark.jobs.auditing.audit_source.STORED_AT_ONCE", 2)
    topic_id = client.admin.topics.create("t", partitions=2)
    producer = client.create_producer("t")
    transactions = [client.begin_transaction(600) for _ in range(5)]
    for txn in transactions:
        producer.send(b"m", partition=1, txn=txn)
    for txn in transactions[:3]:
        txn.commit(wait_finished=True)
    rows = list(list_sidecar(client, Range("t", topic_id, 1, 0, 0)))
    assert [row.txn_id for row in rows] == [str(txn.txn_id) for txn in transactions]
    assert [row.kind for row in rows] == [STORED] * 3 + [OPEN] * 2
    assert {row.last for row in rows if row.kind == STORED} == {3}
    assert list(list_sidecar(client, Range("t", topic_id, 0, 0, 0))) == []
    assert list(list_sidecar(client, Range("t", topic_id + 1, 1, 0, 0))) == []
    for txn in transactions[3:]:
        txn.abort()


def test_neighbours_are_read_by_one_task() -> None:
    ranges = [Range("t", 1, number, 0, 400_000) for number in range(5)]
    assert [len(some) for some in packed(ranges)] == [2, 2, 1]
    small = [Range("t", 1, number, 0, 1) for number in range(70)]
    assert [len(some) for some in packed(small)] == [32, 32, 6]
    assert [one for some in packed(small) for one in some] == small
    assert packed([]) == []
