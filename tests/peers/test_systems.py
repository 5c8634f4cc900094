"""The comparison configures peers, and measures their servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.peers import kafka, pulsar
from benchmarks.peers.clients.measuring import Task, quantiles_ms
from benchmarks.peers.properties import rendered
from benchmarks.peers.rows import ROWS, Row
from benchmarks.peers.sampler import Moment, ServerTimes, between
from tests.peers.servers import plan

SYSTEMS = {"magnetar", "kafka", "pulsar"}


def kafka_nodes(durability: str, count: int = 1) -> list[dict[str, str]]:
    ports, controllers = list(range(1, 1 + count)), list(range(11, 11 + count))
    return kafka.configuration(Path("/run"), durability, ports=ports, controller_ports=controllers)


def test_only_a_synced_kafka_flushes_each_append() -> None:
    (synced,), (left,) = kafka_nodes("synced"), kafka_nodes("os")
    assert synced.pop("log.flush.interval.messages") == "1"
    assert synced == left
    assert left["log.dirs"] == "/run/data-1"
    assert left["add.partitions.to.txn.retry.backoff.ms"] == "1"
    assert left["default.replication.factor"] == left["min.insync.replicas"] == "1"


def test_a_cluster_of_kafka_has_everything_three_times_and_confirms_it_twice() -> None:
    nodes = kafka_nodes("cluster", 3)
    assert [node["node.id"] for node in nodes] == ["1", "2", "3"]
    assert (
        len({node["log.dirs"] for node in nodes}) == len({node["listeners"] for node in nodes}) == 3
    )
    for one in nodes:
        assert one["controller.quorum.voters"] == "1@localhost:11,2@localhost:12,3@localhost:13"
        factors = {name: text for name, text in one.items() if name.endswith("replication.factor")}
        assert len(factors) == 4
        assert set(factors.values()) == {"3"}
        minima = [one["min.insync.replicas"], one["transaction.state.log.min.isr"]]
        assert minima == ["2", "2"]
        assert "log.flush.interval.messages" not in one


def test_only_a_pulsar_that_is_left_to_the_os_does_not_sync_its_journal() -> None:
    synced, left, cluster = (
        pulsar.configuration(one, port=1, web_port=2) for one in ("synced", "os", "cluster")
    )
    assert synced.pop("journalSyncData") == cluster.pop("journalSyncData") == "true"
    assert left.pop("journalSyncData") == "false"
    assert synced == left
    assert left["transactionLogBatchedWriteEnabled"] == "true"
    assert left["transactionPendingAckBatchedWriteEnabled"] == "true"
    quorums = [name for name in cluster if cluster[name] != synced[name]]
    assert [cluster[name] for name in quorums] == ["3", "3", "2"]


def test_settings_are_lines_of_properties() -> None:
    assert rendered({"a.b": "1", "c": "x,y"}) == "a.b=1\nc=x,y\n"


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_every_row_gives_every_system_work(row: Row) -> None:
    tasks = list(row.tasks(plan()))
    assert tasks
    assert len({one.variant for one in tasks}) == len(tasks)
    for task in tasks:
        assert task.ways.keys() == SYSTEMS
        assert all(task.ways.values())


def test_what_the_machine_did_is_divided_among_servers_ourselves_and_others() -> None:
    before = Moment(at_s=100.0, busy_s=50.0, servers_s=10.0, own_s=5.0)
    after = Moment(at_s=110.0, busy_s=65.0, servers_s=16.0, own_s=7.0)
    found = between(before, after, 4_096)
    assert found.server_cpu_s == 6.0
    assert found.others_cpus == pytest.approx(0.7)
    assert found.memory_bytes == 4_096


def test_others_use_no_less_than_nothing() -> None:
    before = Moment(at_s=0.0, busy_s=0.0, servers_s=0.0, own_s=0.0)
    assert between(before, Moment(1.0, 0.5, 0.51, 0.0), 0).others_cpus == 0.0


def test_a_server_that_was_killed_counts_with_the_next_one() -> None:
    times = ServerTimes()
    times.look({1: 10.0})
    times.look({1: 12.0})
    times.look({2: 3.0})
    assert times.used_s == 5.0


def test_quantiles_are_those_of_the_sorted_values() -> None:
    found = quantiles_ms([one / 1_000 for one in range(1_000, 0, -1)])
    assert found == {"count": 1_000, "p50": 501.0, "p99": 991.0, "p99.9": 1_000.0}
    assert quantiles_ms([])["p99"] == 0.0


def test_the_first_round_of_a_task_warms_up() -> None:
    task = Task(
        ["topic=t", "partitions=8", "call=", "rounds=2", "seconds=5.0", "warm_up_seconds=1.5"]
    )
    assert list(task.rounds()) == [(False, 1.5), (True, 5.0), (True, 5.0)]
    assert task.number("in_turn", 0) == 0


def test_a_stream_is_read_until_a_client_is_warm_and_then_measured() -> None:
    told = ["topic=t", "partitions=8", "call=", "rounds=2"]
    cold = Task([*told, "warm_up_seconds=0"])
    assert list(cold.readings()) == [False, True, True]
    readings = Task([*told, "warm_up_seconds=1000"]).readings()
    assert [next(readings) for _ in range(4)] == [False] * 4
