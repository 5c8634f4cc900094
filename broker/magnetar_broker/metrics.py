"""Metrics of a broker. Counters increase when replies leave, not before.

Source: docs/protocol/rules.md, rule a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge

from magnetar_broker.constants import BrokerConstants
from magnetar_core.process.build_metrics import tell_version
from magnetar_storage.commit_metrics import CommitMetrics
from magnetar_storage.read_metrics import ReadMetrics

_PREFIX = "magnetar_broker"
_CONSTANTS = BrokerConstants()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Sums over all partitions and groups of a broker."""

    topics: int
    partitions: int
    subscriptions: int
    consumers: int
    groups: int
    group_members: int
    group_waiting_partitions: int
    # Keys are group, topic and partition.
    group_lags: Mapping[tuple[str, str, int], int]
    open_txns: int
    oldest_open_txn_ms: int
    # Keys are topic and partition; only partitions with the oldest open transactions.
    partition_open_txn_ms: Mapping[tuple[str, int], int]
    txnlog_open_bytes: int
    late_partitions: int
    pending_acks: int
    backlog: int
    retained_bytes: int


class BrokerMetrics:
    """Prometheus metrics, on a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry if registry is not None else CollectorRegistry()
        self.registry = registry
        tell_version(registry)
        self.commits = CommitMetrics(_PREFIX, registry)
        self.reads = ReadMetrics(_PREFIX, registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", text, labels, registry=registry)

        messages_in = counter("messages_in", "Messages accepted: plain or transactional.", "kind")
        self.plain_in = messages_in.labels("plain")
        self.transactional_in = messages_in.labels("transactional")
        self.bytes_in = counter("bytes_in", "Bytes of the batches accepted.")
        self._messages_out = counter("messages_out", "Messages pushed to consumers.")
        self._bytes_out = counter("bytes_out", "Bytes of the batches pushed to consumers.")
        acks = counter("acks", "Ack commands: plain or transactional.", "kind")
        self.plain_acks = acks.labels("plain")
        self.transactional_acks = acks.labels("transactional")
        self.txn_ends = counter(
            "txn_ends", "Transactions ended on partitions: committed or aborted.", "outcome"
        )
        self.refusals = counter("refusals", "Commands refused, by the error's name.", "error")
        self.unannounced = counter(
            "unannounced_commands",
            "Commands in transactions that came before their coordinator had announced the"
            " transaction here, and waited for that: 0.1 s at most, then they are refused.",
        )
        # Nearly every command of a transaction would change the gauge, and a gauge takes a lock.
        self.open_txns = 0
        gauge(
            "open_txns",
            "Transactions open at participants; one counts at each of its partitions and"
            " subscriptions.",
        ).set_function(lambda: self.open_txns)
        self._oldest_open_seconds = gauge(
            "oldest_open_txn_seconds",
            "Since the first write of the oldest open transaction. Beyond the longest timeout: its"
            " coordinator is away.",
        )
        self._partition_open_seconds = gauge(
            "partition_oldest_open_txn_seconds",
            "Since the first write of the longest open transaction of a partition, its"
            " subscriptions included (KIP-664, MaxActiveTransactionDuration). Only where one is"
            f" open; only the {_CONSTANTS.open_txn_gauges_max} partitions with the oldest ones.",
            "topic",
            "partition",
        )
        self._late_partitions = gauge(
            "late_partitions",
            "Partitions with a transaction that has been open for longer than late_txn_ms"
            " (KIP-664, PartitionsWithLateTransactionsCount). Look for it with `magnetar"
            " transactions find-hanging`.",
        )
        self._txnlog_bytes = gauge(
            "txnlog_open_bytes", "Of messages that wait for their transaction's end."
        )
        self._pending_acks = gauge(
            "pending_acks", "Messages in PENDING_ACK, over all subscriptions."
        )
        self._backlog = gauge("backlog", "Messages not acknowledged, over all subscriptions.")
        self._retained_bytes = gauge(
            "retained_bytes", "Of committed messages that retention has not removed."
        )
        self._topics = gauge("topics", "Topics of the cluster, as far as this broker knows them.")
        self._partitions = gauge("partitions", "Partitions that this broker keeps.")
        self.directory_current = gauge(
            "directory_current",
            "1: this broker knows all topics of the cluster. 0: the first broker is away, or has"
            " not accepted this broker's store, or its directory is not followed: the log says"
            " which.",
        )
        self._subscriptions = gauge("subscriptions", "Cursors: one a subscription and partition.")
        self._consumers = gauge(
            "consumers", "Attached consumers, one a subscription and partition."
        )
        self._groups = gauge("groups", "Groups, those without members included.")
        self._group_members = gauge("group_members", "Members of all groups.")
        self._group_waiting_partitions = gauge(
            "group_waiting_partitions",
            "Partitions whose new owner waits for transactions of earlier generations.",
        )
        self._group_lag = gauge(
            "group_lag",
            "Messages that a group has not acknowledged, by partition; only the"
            f" {_CONSTANTS.group_lag_gauges_max:,} pairs of both with the largest lag.",
            "group",
            "topic",
            "partition",
        )
        self.group_rebalances = counter(
            "group_rebalances", "New assignments: members joined or left, topics came or went."
        )
        self.group_members_expelled = counter(
            "group_members_expelled",
            "Members that were silent for their session timeout, or did not release a partition.",
        )
        self.recovery_seconds = gauge(
            "recovery_seconds",
            "What reading the store took at the start, its own log replayed before.",
        )
        self.resident_bytes = gauge(
            "resident_bytes",
            "Memory that the process has, with all of its brokers: at most memory_bytes, if tails"
            " can give way.",
        )
        self.tails_bytes = gauge(
            "tails_bytes",
            "What the newest entries of all partitions take of memory_bytes, over all brokers of"
            " the process. Near 0 for long: other things need the memory, and readers read from"
            " the store.",
        )
        self.unsynced_seconds = gauge(
            "unsynced_seconds",
            "How long the oldest write has waited for a sync, with durability os: plain messages"
            " and plain acks of that time are lost if the machine goes down. 0 with durability"
            " synced.",
        )
        self._free_bytes = gauge("disk_free_bytes", "Free space where the store lies.")

    def delivered(self, messages: int, byte_count: int) -> None:
        """Count batches that were pushed to a consumer."""
        self._messages_out.inc(messages)
        self._bytes_out.inc(byte_count)

    def show(self, overview: Overview, *, free_bytes: int) -> None:
        """Set the gauges, which are refreshed from time to time."""
        self.open_txns = overview.open_txns
        self._oldest_open_seconds.set(overview.oldest_open_txn_ms / 1_000)
        self._partition_open_seconds.clear()
        for (topic, partition), open_ms in overview.partition_open_txn_ms.items():
            self._partition_open_seconds.labels(topic, str(partition)).set(open_ms / 1_000)
        self._late_partitions.set(overview.late_partitions)
        self._txnlog_bytes.set(overview.txnlog_open_bytes)
        self._pending_acks.set(overview.pending_acks)
        self._backlog.set(overview.backlog)
        self._retained_bytes.set(overview.retained_bytes)
        self._topics.set(overview.topics)
        self._partitions.set(overview.partitions)
        self._subscriptions.set(overview.subscriptions)
        self._consumers.set(overview.consumers)
        self._groups.set(overview.groups)
        self._group_members.set(overview.group_members)
        self._group_waiting_partitions.set(overview.group_waiting_partitions)
        self._group_lag.clear()
        for (group, topic, partition), lag in overview.group_lags.items():
            self._group_lag.labels(group, topic, str(partition)).set(lag)
        self._free_bytes.set(free_bytes)
