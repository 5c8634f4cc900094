"""Calls for connectors: offsets of topics, ranges read ahead, transactions of several clients."""

from __future__ import annotations

import pytest
from tests.client.messaging.test_column_batch import column
from tests.system.processes import Servers

from magnetar import CommitRefused, Gone, InvalidTxnState, OutOfRange, TopicNotFound, blocking
from magnetar.column_batch import ColumnBatch
from magnetar_core.errors import DataLoss


def test_offsets_of_a_topic(servers: Servers) -> None:
    with blocking.connect(servers.address) as client:
        topic_id = client.admin.topics.create("flights", partitions=2)
        producer = client.create_producer("flights")
        for number in range(3):
            producer.send(b"%d" % number, partition=1)
        times = [one.append_time_ms for one in client.read("flights", 1)]
        found = client.admin.topics.list_offsets("flights", append_time_ms=times[2])
        assert found.topic_id == topic_id
        first, second = found.partitions
        assert (first.partition, first.first_offset, first.end_offset) == (0, 0, 0)
        assert (second.partition, second.first_offset, second.end_offset) == (1, 0, 3)
        assert first.time_offset == 0
        assert second.time_offset is not None
        assert times[second.time_offset] == times[2]
        (late,) = client.admin.topics.list_offsets(
            "flights", partitions=[1], append_time_ms=times[2] + 60_000
        ).partitions
        assert late.time_offset == 3
        (plain,) = client.admin.topics.list_offsets(
            "flights", partitions=[0], topic_id=topic_id
        ).partitions
        assert plain.time_offset is None
        with pytest.raises(TopicNotFound):
            client.admin.topics.list_offsets("flights", partitions=[2])
        with pytest.raises(TopicNotFound):
            client.admin.topics.list_offsets("nowhere")
        with pytest.raises(Gone):
            client.admin.topics.list_offsets("flights", topic_id=topic_id + 1)


def test_a_range_is_read_whole_or_not_at_all(servers: Servers) -> None:
    with blocking.connect(servers.address) as client:
        topic_id = client.admin.topics.create("flights")
        producer = client.create_producer("flights", batch_messages_max=7)
        producer.send_many([b"%d" % number for number in range(100)])
        txn = client.begin_transaction()
        producer.send(bytes(5 << 20), txn=txn)
        producer.send(b"behind it", txn=txn)
        txn.commit(wait_finished=True)
        end = client.admin.topics.list_offsets("flights").partitions[0].end_offset

        def read(start: int, stop: int) -> list[bytes]:
            return [
                value
                for pieces in client.read_ahead("flights", 0, start, stop, topic_id=topic_id)
                for columns in pieces
                for value in columns.values()
            ]

        assert read(3, 50) == [b"%d" % number for number in range(3, 50)]
        assert [len(value) for value in read(99, 101)] == [2, 5 << 20]
        # A message in parts is where it begins, and nowhere else.
        assert read(101, end) == [b"behind it"]
        assert read(5, 5) == []
        with pytest.raises(DataLoss):
            read(90, end + 1)
        with pytest.raises(OutOfRange):
            read(end + 1, end + 2)
        with pytest.raises(Gone):
            list(client.read_ahead("flights", 0, 0, 1, topic_id=topic_id + 1))
        pieces = client.read_ahead("flights", 0, 0, end)
        next(pieces)
        pieces.close()  # type: ignore[attr-defined]


def test_clients_that_share_a_transaction(servers: Servers) -> None:
    """One withdraws and one fails: what the third has written counts, and nothing else."""
    with (
        blocking.connect(servers.address) as winner,
        blocking.connect(servers.address) as loser,
        blocking.connect(servers.address) as failing,
    ):
        winner.admin.topics.create("flights")
        shared = [
            client.begin_named_transaction("job", 0, "run") for client in (winner, loser, failing)
        ]
        assert len({txn.txn_id for txn in shared}) == 1
        batch = ColumnBatch(2, column([b"a", b"b"]))
        winner.create_producer("flights").send_columns([batch], txn=shared[0])
        loser.create_producer("flights").send(b"too slow", txn=shared[1])
        shared[1].withdraw()
        with pytest.raises(InvalidTxnState):
            shared[1].leave()
        producer = failing.create_producer("flights")
        producer.send(b"void", txn=shared[2])
        shared[2].inner.work.doom(InvalidTxnState("a send failed"))
        with pytest.raises(CommitRefused):
            shared[2].leave()
        loser.close()
        failing.close()
        part = shared[0].leave()
        winner.commit_parts([part], wait_finished=True)
        assert [one.value for one in winner.read("flights")] == [b"a", b"b"]
        assert winner.admin.named_sequences.describe("job").committed_sequence == 0
        winner.admin.named_sequences.remove("job")
