"""The plan of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WORKLOADS = (
    "transactions",
    "produce",
    "transactional",
    "consume",
    "latency",
    "memory",
    "recovery",
)
# It starts its servers again, which would have to be told of the certificates.
WITHOUT_TLS = ("recovery",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The command line's options: `python -m benchmarks --help` says what each means."""

    workloads: tuple[str, ...]
    at_once: tuple[int, ...]
    seconds: float
    transaction_message_bytes: int
    transaction_partitions: int
    transaction_inputs: int
    lazy: bool
    await_sends: bool
    beside_open: int
    topic_partitions: int
    message_bytes: tuple[int, ...]
    tail_rate: int
    entries: tuple[int, ...]
    open_transactions: int
    stream_bytes: int
    data_dir: Path | None
    store: str | None
    with_tls: bool
    with_ceiling: bool
    repeat: int
