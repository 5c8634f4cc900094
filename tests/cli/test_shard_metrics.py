"""Metrics of shards that come and go, as Prometheus sees them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from magnetar_cli.servers.shard_metrics import ShardMetrics


def shard(count: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("sends", "Messages.", ["error"], registry=registry).labels("none").inc(count)
    Gauge("open", "Transactions.", registry=registry).set(count)
    Histogram("seconds", "Time.", buckets=(1,), registry=registry).observe(count)
    return registry


def lines(registry: CollectorRegistry) -> list[str]:
    text = generate_latest(registry).decode()
    return [one for one in text.splitlines() if "_created" not in one]


def test_each_shard_has_its_samples_and_each_metric_is_told_once() -> None:
    process, shards = CollectorRegistry(), ShardMetrics()
    process.register(shards)
    Gauge("own", "Of the process.", registry=process).set(1)
    assert lines(process) == ["# HELP own Of the process.", "# TYPE own gauge", "own 1.0"]
    shards.add(3, shard(30))
    shards.add(0, shard(1))
    told = lines(process)
    assert told.count("# TYPE sends_total counter") == 1
    assert 'sends_total{error="none",shard="0"} 1.0' in told
    assert 'sends_total{error="none",shard="3"} 30.0' in told
    assert 'open{shard="3"} 30.0' in told
    assert 'seconds_bucket{le="+Inf",shard="3"} 1.0' in told
    assert "own 1.0" in told


def test_a_shard_that_went_is_not_told_and_its_next_ownership_is() -> None:
    process, shards = CollectorRegistry(), ShardMetrics()
    process.register(shards)
    first, second = shard(1), shard(2)
    shards.add(3, first)
    shards.remove(3, first)
    assert lines(process) == []
    shards.add(3, second)
    # The end of the earlier one is late.
    shards.remove(3, first)
    assert 'open{shard="3"} 2.0' in lines(process)
