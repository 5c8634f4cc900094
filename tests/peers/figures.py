"""Figures as a client and a sampler would give them."""

from __future__ import annotations

from benchmarks.peers.figures import Figure


def figure(
    *,
    row: str = "produce",
    variant: str = "100 B",
    system: str = "kafka",
    durability: str = "synced",
    way: str = "Java",
    scale: int | None = None,
    count: int = 1_000,
    seconds: float = 2.0,
    arrived: int | None = None,
    latency_of: str = "commit()",
    p50_ms: float | None = None,
) -> Figure:
    """A round in which everything arrived unless something else is said."""
    latency = {"p50": p50_ms or 0.0, "p99": 9.0, "p99.9": 10.0}
    return Figure(
        system=system,
        durability=durability,
        row=row,
        variant=variant,
        way=way,
        scale=scale,
        count=count,
        seconds=seconds,
        expected=count,
        arrived=count if arrived is None else arrived,
        latencies_ms={} if p50_ms is None else {latency_of: latency},
        server_cpu_s=0.5,
        client_cpu_s=0.25,
        memory_bytes=3 << 20,
        others_cpus=0.125,
    )
