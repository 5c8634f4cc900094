"""The event loop's histogram tells what prometheus_client's own would."""

from __future__ import annotations

from random import Random

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from magnetar_core.process.loop_histogram import LoopHistogram

BOUNDS = (0.5, 1, 5)


def told(kind: type[Histogram], values: list[float]) -> list[str]:
    registry = CollectorRegistry()
    histogram = kind("seconds", "Time.", buckets=BOUNDS, registry=registry)
    for value in values:
        histogram.observe(value)
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if "_created" not in line]


def test_it_counts_each_value_in_the_bucket_of_the_first_bound_that_is_not_below_it() -> None:
    random = Random(1)
    values = [0.0, *BOUNDS, 5.1, 1e9, *[random.expovariate(1) for _ in range(100)]]
    assert told(LoopHistogram, values) == told(Histogram, values)
    assert 'seconds_bucket{le="0.5"} 2.0' in told(LoopHistogram, [0.1, 0.5, 0.6])
    assert "seconds_count 3.0" in told(LoopHistogram, [0.1, 0.5, 0.6])
