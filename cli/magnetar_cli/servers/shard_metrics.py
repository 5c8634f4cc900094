"""Metrics of the shards of a process: each has a registry of its own, which comes and goes with it.

Prometheus sees each metric once, with a sample for each shard.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LABEL = "shard"


class ShardMetrics(Collector):
    """Collects the metrics of all shards, with the shard's number as a label."""

    def __init__(self) -> None:
        # Keys are numbers of shards. Replaced whole: another thread collects.
        self._registries: dict[int, CollectorRegistry] = {}

    def add(self, shard: int, registry: CollectorRegistry) -> None:
        """Show a shard's metrics from now on, in place of those of an earlier ownership."""
        self._registries = {**self._registries, shard: registry}

    def remove(self, shard: int, registry: CollectorRegistry) -> None:
        """Stop showing them. Repeating it, or being late, is harmless."""
        self._registries = {
            number: one
            for number, one in self._registries.items()
            if number != shard or one is not registry
        }

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all shards."""
        merged: dict[str, Metric] = {}
        for shard, registry in sorted(self._registries.items()):
            for metric in registry.collect():
                family = merged.get(metric.name)
                if family is None:
                    family = Metric(metric.name, metric.documentation, metric.type, metric.unit)
                    merged[metric.name] = family
                family.samples += [
                    sample._replace(labels={LABEL: str(shard), **sample.labels})
                    for sample in metric.samples
                ]
        return list(merged.values())
