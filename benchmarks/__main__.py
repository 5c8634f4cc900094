"""`python -m benchmarks`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import click

import magnetar
from benchmarks import recovery, small_transactions, streams
from benchmarks.ceiling import measure as ceiling
from benchmarks.results import Result, print_json, print_table
from benchmarks.runner import run
from benchmarks.servers import Servers, started

WORKLOADS = ("transactions", "produce", "transactional", "consume", "latency", "recovery")
# The bare servers that each is held against.
CEILINGS: dict[str, tuple[str, ...]] = {
    "transactions": ("broker", "coordinator"),
    "produce": ("sink",),
    "latency": (),
}


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--workload", "workloads", type=click.Choice([*WORKLOADS, "all"]), multiple=True,
    default=["transactions"], help="May be given again.",
)  # fmt: skip
@click.option("--at-once", type=int, multiple=True, default=[1, 16, 64, 256])
@click.option("--seconds", type=float, default=5.0, help="For each measurement of that kind.")
@click.option("--transaction-message-bytes", type=click.IntRange(min=8), default=1024)
@click.option("--transaction-partitions", type=int, default=2, help="Each gets one message.")
@click.option("--transaction-inputs", type=int, default=1, help="Messages that each acknowledges.")
@click.option(
    "--await-sends", is_flag=True,
    help="Wait for the messages and acks before EndTxn, and measure EndTxn alone.",
)  # fmt: skip
@click.option(
    "--beside-open", type=int, default=0,
    help="Messages of a transaction that stays open in the same partitions.",
)  # fmt: skip
@click.option("--topic-partitions", type=int, default=8)
@click.option("--message-bytes", type=int, multiple=True, default=[100, 1024])
@click.option("--entries", type=int, multiple=True, default=[1_000, 10_000, 100_000])
@click.option("--open-transactions", type=int, default=10_000)
@click.option("--stream-bytes", type=int, default=200_000_000, help="Payload of each stream.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The servers' data directory is made there.",
)  # fmt: skip
@click.option(
    "--ceiling", "with_ceiling", is_flag=True,
    help="Measure the bare conversation, stream and store beside it.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True)
def main(
    workloads: tuple[str, ...],
    at_once: tuple[int, ...],
    seconds: float,
    transaction_message_bytes: int,
    transaction_partitions: int,
    transaction_inputs: int,
    await_sends: bool,
    beside_open: int,
    topic_partitions: int,
    message_bytes: tuple[int, ...],
    entries: tuple[int, ...],
    open_transactions: int,
    stream_bytes: int,
    data_dir: Path | None,
    with_ceiling: bool,
    as_json: bool,
) -> None:
    """Measure a broker, a coordinator and one client, each a process of its own, on loopback.

    Without options: the canonical workload, small transactions, every step durable.
    """
    chosen = WORKLOADS if "all" in workloads else workloads

    def begin(client: magnetar.Client, servers: Servers, workload: str) -> AsyncIterator[Result]:
        if workload == "transactions":
            return small_transactions.measure(
                client,
                servers,
                concurrencies=at_once,
                seconds=seconds,
                shape=small_transactions.Shape(
                    message_bytes=transaction_message_bytes,
                    partitions=topic_partitions,
                    partitions_written=transaction_partitions,
                    inputs=transaction_inputs,
                    await_sends=await_sends,
                ),
                beside_open_messages=beside_open,
            )
        if workload == "recovery":
            return recovery.measure(
                client, servers, entry_counts=entries, open_count=open_transactions
            )
        if workload == "latency":
            return streams.measure_latency(client, seconds=seconds)
        measure = {
            "produce": streams.measure_produce,
            "transactional": streams.measure_transactional,
            "consume": streams.measure_consume,
        }[workload]
        return measure(
            client,
            sizes=message_bytes,
            total_bytes=stream_bytes,
            topic_partitions=topic_partitions,
        )

    async def measure_all(servers: Servers, workload: str) -> list[Result]:
        async with await magnetar.connect(servers.address) as client:
            return [result async for result in begin(client, servers, workload)]

    async def measure_ceiling(workload: str, addresses: dict[str, str]) -> list[Result]:
        if workload == "transactions":
            found = ceiling.measure_transactions(
                addresses,
                concurrencies=at_once,
                seconds=seconds,
                message_bytes=transaction_message_bytes,
                partitions=transaction_partitions,
                inputs=transaction_inputs,
            )
        elif workload == "produce":
            found = ceiling.measure_stream(addresses, total_bytes=stream_bytes)
        else:
            found = ceiling.measure_store(data_dir, seconds=seconds)
        return [result async for result in found]

    results: list[Result] = []
    for workload in chosen:
        if with_ceiling and workload in CEILINGS:
            with ceiling.bare_servers(data_dir, *CEILINGS[workload]) as addresses:
                results += run(measure_ceiling(workload, addresses))
        with started(data_dir, restart=workload == "recovery") as servers:
            results += run(measure_all(servers, workload))
    if as_json:
        print_json(results)
    else:
        print_table(results)


main(prog_name="python -m benchmarks")
