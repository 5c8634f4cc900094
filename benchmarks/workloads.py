"""A plan carried out: each workload on servers of its own, and the ceilings beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from benchmarks import (
    memory,
    recovery,
    small_transactions,
    streams,
    tailing,
)
from benchmarks.ceiling import measure as ceiling
from benchmarks.plan import Plan
from benchmarks.results import Result
from benchmarks.servers import Servers, started
from magnetar import Client

# What each is held against, and the bare servers that this takes.
CEILINGS = {
    "transactions": ("conversation",),
    "produce": ("stream", "store"),
    "latency": ("store",),
}
# Workloads that kill a server, and wait until it is back.
RESTARTED = ("recovery",)
BARE_SERVERS: dict[str, tuple[str, ...]] = {
    "conversation": ("broker", "coordinator"),
    "stream": ("sink",),
    "store": (),
}


async def measure(plan: Plan) -> list[Result]:
    """Every line as often as the plan says: each time all of them, one after the other."""
    results: list[Result] = []
    for _ in range(plan.repeat):
        measured: set[str] = set()
        for workload in plan.workloads:
            if plan.with_ceiling:
                for name in CEILINGS.get(workload, ()):
                    if name not in measured:
                        measured.add(name)
                        results += await _measure_ceiling(plan, name)
            results += await _measure(plan, workload)
    return results


async def _measure_ceiling(plan: Plan, name: str) -> list[Result]:
    with ceiling.bare_servers(plan.data_dir, *BARE_SERVERS[name]) as addresses:
        return [result async for result in _begin_ceiling(plan, name, addresses)]


async def _measure(plan: Plan, workload: str) -> list[Result]:
    with started(
        plan.data_dir,
        restart=workload in RESTARTED,
        store=plan.store,
        with_tls=plan.with_tls,
    ) as servers:
        async with await servers.connect() as client:
            return [result async for result in _begin(plan, client, servers, workload)]


def _begin_ceiling(plan: Plan, name: str, addresses: dict[str, str]) -> AsyncIterator[Result]:
    if name == "conversation":
        return ceiling.measure_transactions(
            addresses,
            concurrencies=plan.at_once,
            seconds=plan.seconds,
            message_bytes=plan.transaction_message_bytes,
            partitions=plan.transaction_partitions,
            inputs=plan.transaction_inputs,
        )
    if name == "stream":
        return ceiling.measure_stream(addresses, total_bytes=plan.stream_bytes)
    return ceiling.measure_store(plan.data_dir, seconds=plan.seconds)


def _begin(plan: Plan, client: Client, servers: Servers, workload: str) -> AsyncIterator[Result]:
    if workload == "transactions":
        return small_transactions.measure(
            client,
            servers,
            concurrencies=plan.at_once,
            seconds=plan.seconds,
            shape=small_transactions.Shape(
                message_bytes=plan.transaction_message_bytes,
                partitions=plan.topic_partitions,
                partitions_written=plan.transaction_partitions,
                inputs=plan.transaction_inputs,
                lazy=plan.lazy,
                await_sends=plan.await_sends,
            ),
            beside_open_messages=plan.beside_open,
        )
    if workload == "recovery":
        return recovery.measure(
            client, servers, entry_counts=plan.entries, open_count=plan.open_transactions
        )
    if workload == "memory":
        return memory.measure(
            client, servers, count=plan.open_transactions, topic_partitions=plan.topic_partitions
        )
    if workload == "latency":
        return streams.measure_latency(client, seconds=plan.seconds)
    if workload == "consume":
        return _begin_consume(plan, client, servers)
    measure = {
        "produce": streams.measure_produce,
        "transactional": streams.measure_transactional,
    }[workload]
    return measure(
        client,
        sizes=plan.message_bytes,
        total_bytes=plan.stream_bytes,
        topic_partitions=plan.topic_partitions,
    )


async def _begin_consume(plan: Plan, client: Client, servers: Servers) -> AsyncIterator[Result]:
    """Catching up, then tailing."""
    async for result in streams.measure_consume(
        client,
        servers,
        sizes=plan.message_bytes,
        total_bytes=plan.stream_bytes,
        topic_partitions=plan.topic_partitions,
    ):
        yield result
    async for result in tailing.measure(
        client,
        servers,
        sizes=plan.message_bytes,
        rate_per_s=plan.tail_rate,
        seconds=plan.seconds,
        topic_partitions=plan.topic_partitions,
    ):
        yield result
