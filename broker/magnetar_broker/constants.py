"""Constants of a broker that no operator has a reason to change. Tests give other values. Pure.

A value that operators change, or that bounds what clients take, is a setting in `config`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConstants:
    """Constants of a broker. A test gives its own with `BrokerConfig(constants=...)`."""

    # A link to another broker without data for this long is closed. Connecting and the handshake
    # may take as long.
    broker_answer_deadline_ms: int = 5_000

    # Limits of a batch, which its header declares: its size when it is opened (a larger
    # batch_bytes_max raises this limit), and its number of messages. Peek, KEY_SHARED with mixed
    # keys and consumers need as much memory to open a batch.
    batch_body_bytes_max: int = 8 << 20
    batch_messages_max: int = 1 << 18

    # Timeouts of a member of a group that names none, never above the largest ones of the
    # settings; and the shortest session timeout that a member may ask for.
    group_session_timeout_ms_default: int = 10_000
    group_session_timeout_ms_min: int = 1_000
    group_rebalance_timeout_ms_default: int = 60_000
    # The longest time between heartbeats; never above a third of the session timeout.
    group_heartbeat_interval_ms: int = 3_000

    # Newest entries of each partition that stay in memory, so that a consumer at the end of the log
    # reads nothing from the disk. tails_bytes_max limits those of all partitions together.
    tail_bytes_max: int = 4 << 20
    # Bytes that are read from the log at once for a subscription.
    dispatch_bytes_max: int = 1 << 20
    # Messages that are read ahead for a KEY_SHARED subscription on a partition while their keys
    # wait for a consumer; each takes some hundred bytes of memory. A higher limit lets a slow
    # consumer delay the others later.
    key_shared_waiting_max: int = 20_000

    # Series of Prometheus: partitions that show the age of their oldest open transaction, the
    # oldest first, and pairs of a group and a partition that show the lag, the largest first.
    open_txn_gauges_max: int = 100
    group_lag_gauges_max: int = 10_000
