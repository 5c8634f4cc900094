"""The broker's counters, and the gauges that it updates periodically."""

from __future__ import annotations

import dataclasses

import pytest
from tests.broker.harness import World, ack, end, flow, run, send, subscribe, txn
from tests.configs import broker_config

from magnetar_core.errors import TopicNotFound
from magnetar_core.wire import topic_pb2 as topic_wire

T1 = txn(1)


def read(world: World, name: str, **labels: str) -> float:
    value = world.broker.metrics.registry.get_sample_value(f"magnetar_broker_{name}", labels)
    assert value is not None, name
    return value


def test_counters() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        world.client.tell(flow())
        await world.client.ask(send(b"0", b"1"))
        await world.client.ask(send(b"0", b"1"))
        await world.client.ask(send(b"2", in_txn=T1))
        await world.client.ask(ack((0, 0)))
        await world.client.ask(ack((1, 1), in_txn=T1))
        await world.client.ask(end(T1))
        with pytest.raises(TopicNotFound):
            await world.client.ask(topic_wire.CommandDescribeTopic(topic="u"))
        assert read(world, "messages_in_total", kind="plain") == 2, "a repeat counts once"
        assert read(world, "messages_in_total", kind="transactional") == 1
        assert read(world, "messages_out_total") == 3
        assert read(world, "bytes_out_total") == read(world, "bytes_in_total") > 0
        assert read(world, "acks_total", kind="plain") == 1
        assert read(world, "acks_total", kind="transactional") == 1
        assert read(world, "txn_ends_total", outcome="committed") == 1
        assert read(world, "refusals_total", error="TopicNotFound") == 1
        assert read(world, "group_commit_operations_count") > 3
        assert read(world, "group_commit_bytes_total") > 0

    run(scenario)


def test_the_longest_open_transaction_of_each_partition() -> None:
    """KIP-664, MaxActiveTransactionDuration; only where one is open, and of so many at most."""

    async def scenario(world: World) -> None:
        def shown() -> dict[str, float]:
            world.broker._show()
            (family,) = [
                one
                for one in world.broker.metrics.registry.collect()
                if one.name == "magnetar_broker_partition_oldest_open_txn_seconds"
            ]
            assert {sample.labels["topic"] for sample in family.samples} <= {"t"}
            return {sample.labels["partition"]: sample.value for sample in family.samples}

        assert shown() == {}
        await world.client.ask(send(b"0", in_txn=T1))
        world.clock.advance(30_000)
        await world.client.ask(send(b"1", in_txn=txn(2)))
        await world.client.ask(send(b"1", in_txn=txn(2), number=1))
        world.clock.advance(10_000)
        assert shown() == {"0": 40, "1": 10}
        await world.client.ask(end(T1))
        assert shown() == {"0": 10, "1": 10}
        await world.client.ask(end(txn(2)))
        assert shown() == {"1": 10}
        # An acknowledgement holds its messages as long.
        await world.client.ask(subscribe(consumer=1))
        await world.client.ask(send(b"2"))
        world.clock.advance(5_000)
        await world.client.ask(ack((0, 0), in_txn=txn(3)))
        world.clock.advance(5_000)
        assert shown() == {"0": 5, "1": 20}
        config = broker_config(**world.settings, open_txn_gauges_max=1)
        world.broker.environment = dataclasses.replace(world.broker.environment, config=config)
        assert shown() == {"1": 20}

    run(scenario)


def test_what_is_shown() -> None:
    async def scenario(world: World) -> None:
        await world.client.ask(subscribe(consumer=1))
        await world.client.ask(send(b"0", b"1"))
        body = send(b"2", in_txn=T1)
        await world.client.ask(body)
        await world.client.ask(ack((1, 1), in_txn=T1))
        world.clock.advance(90_000)
        world.broker._show()
        assert read(world, "open_txns") == 2
        assert read(world, "oldest_open_txn_seconds") == 90
        assert read(world, "txnlog_open_bytes") == len(body.batch)
        assert read(world, "pending_acks") == 1
        assert read(world, "backlog") == 2
        assert read(world, "retained_bytes") > 0
        names = ("topics", "partitions", "subscriptions", "consumers")
        assert [read(world, name) for name in names] == [1, 2, 1, 1]
        assert read(world, "disk_free_bytes") == world.disk.free_bytes
        await world.restart()
        assert read(world, "open_txns") == 2, "from the start on"
        await world.client.ask(end(T1))
        await world.client.ask(end(T1, on="s"))
        world.broker._show()
        for name in ("open_txns", "oldest_open_txn_seconds", "txnlog_open_bytes", "pending_acks"):
            assert read(world, name) == 0, name

    run(scenario)
