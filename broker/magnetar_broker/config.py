"""Settings of a broker. Each field states its unit and its trade-off."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_core.batch import BODY_BYTES_MAX
from magnetar_core.config import FRAME_BYTES_MAX, InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAddress:
    """Addresses of a server; clients outside of the members' network use its external address."""

    name: str
    address: str
    external_address: str = ""
    tcid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of a broker."""

    # As in the cluster file.
    name: str = "broker-0"
    # What clients are told to connect to.
    address: str = "127.0.0.1:6650"
    # What clients are told that reached this broker there, through a published port or a gateway;
    # empty: there is no such way.
    external_address: str = ""
    coordinators: tuple[MemberAddress, ...] = field(
        default=(MemberAddress(name="coordinator-0", address="127.0.0.1:6651"),)
    )
    # Of the cluster file, raised whenever the members change.
    membership_version: int = 1
    # Of the membership; empty: peers are not checked.
    cluster_hash: str = ""

    # A larger batch is refused. Raising it lets one client hold up the others for longer.
    batch_bytes_max: int = 5 * 1024 * 1024
    # What a batch may become when it is opened, and how many messages it may have: headers that
    # declare more are refused. Whoever opens one needs so much memory: Peek, KEY_SHARED with mixed
    # keys, consumers.
    batch_body_bytes_max: int = 8 * 1024 * 1024
    batch_messages_max: int = 1 << 18
    # Beyond, CreateTopic gets QuotaExceeded; recovery reads them all.
    topics_max: int = 10_000
    # Of one topic.
    partitions_max: int = 1_024
    # Of one partition; each is a cursor that recovery reads.
    subscriptions_max: int = 1_000
    # Of one subscription on one partition.
    consumers_max: int = 1_000
    # Each group is a row that recovery reads, and a cursor on each of its partitions.
    groups_max: int = 10_000
    # Of one group.
    group_members_max: int = 1_000
    # A member that is not heard of for so long is expelled, and others get its partitions: of who
    # does not say when it joins, and what it may say. Short: a dead one is replaced soon. Long:
    # a pause of its process is forgiven.
    group_session_timeout_ms_default: int = 10_000
    group_session_timeout_ms_min: int = 1_000
    group_session_timeout_ms_max: int = 30 * 60 * 1000
    # How long a member may settle what it holds of a partition that another one is to get.
    group_rebalance_timeout_ms_default: int = 60_000
    group_rebalance_timeout_ms_max: int = 30 * 60 * 1000
    # Between heartbeats, at most; never above a third of the session timeout.
    group_heartbeat_interval_ms: int = 3_000
    # Producers (or consumers) that write in one transaction at one participant.
    txn_writers_max: int = 10_000
    # Transactions open at one participant.
    open_txns_max: int = 100_000
    # What open transactions may hold in the sidecars of this broker, and what one connection may
    # have sent of that; what earlier connections of its machine left open counts too, and unary
    # calls. Beyond, their sends get QuotaExceeded: it bounds what dead clients leave on the disk
    # until their transactions expire.
    open_txn_bytes_max: int = 16 << 30
    session_open_txn_bytes_max: int = 4 << 30
    # Memory for plain sends of this broker that wait until the transaction that they follow has
    # ended. Beyond, such a send gets LogUnavailable, and its client sends it again: order holds.
    parked_send_bytes_max: int = 64 << 20
    # What of that one connection may take, with what earlier connections of its machine left there:
    # the rest stays for others.
    session_parked_send_bytes_max: int = 16 << 20

    # Newest entries of each partition kept in memory, so that consumers at the tail cost no read.
    tail_bytes_max: int = 4 * 1024 * 1024
    # Of all partitions together. Beyond, those that were written to least recently keep less.
    tails_bytes_max: int = 256 * 1024 * 1024
    # Read from the log at once for one subscription.
    dispatch_bytes_max: int = 1024 * 1024
    # Read ahead for one Key_Shared subscription on one partition, while their keys have to wait for
    # a consumer. Beyond, nothing new goes out until something of that is settled. Larger: a slow
    # consumer holds up the others later, at up to some hundred bytes of memory each.
    key_shared_waiting_max: int = 20_000

    # Below this much free space, sends and new topics get DiskFull; ends, acks and deletes go on.
    free_space_floor_bytes: int = 256 * 1024 * 1024
    # How often retention looks at every partition, and gauges are set. Shorter: limits are kept
    # more closely, at a cost that grows with the number of partitions.
    retention_check_interval_ms: int = 5_000
    # A transaction that is open here for longer counts as late: the coordinators' longest timeout,
    # and five minutes on top, lest an end that is under way raises an alarm.
    late_txn_ms: int = 20 * 60 * 1000
    # Partitions of which the age of the longest open transaction is shown, the oldest ones first.
    # More: more series for Prometheus to keep. 0: none.
    open_txn_gauges_max: int = 100
    # Partitions whose lag is shown for a group, over all groups, those with the greatest lag first.
    # More: more series for Prometheus to keep. 0: none.
    group_lag_gauges_max: int = 10_000
    # A plain producer that is idle for longer is forgotten; it then starts again with a new id.
    # Time that the broker has been running counts, and no other.
    producer_idle_ms_max: int = 24 * 60 * 60 * 1000

    def __post_init__(self) -> None:
        if self.batch_bytes_max > FRAME_BYTES_MAX // 2:
            raise InvalidConfig(
                f"batch_bytes_max must be at most {FRAME_BYTES_MAX // 2}, half of a frame"
            )
        if not self.batch_bytes_max <= self.batch_body_bytes_max <= BODY_BYTES_MAX:
            raise InvalidConfig(
                f"batch_body_bytes_max must be from batch_bytes_max to {BODY_BYTES_MAX}: clients"
                " open nothing larger"
            )
        for name in (
            "batch_bytes_max",
            "batch_messages_max",
            "topics_max",
            "partitions_max",
            "subscriptions_max",
            "consumers_max",
            "txn_writers_max",
            "open_txns_max",
            "open_txn_bytes_max",
            "session_open_txn_bytes_max",
            "parked_send_bytes_max",
            "session_parked_send_bytes_max",
            "dispatch_bytes_max",
            "key_shared_waiting_max",
            "retention_check_interval_ms",
            "producer_idle_ms_max",
            "late_txn_ms",
            "groups_max",
            "group_members_max",
            "group_session_timeout_ms_min",
            "group_rebalance_timeout_ms_default",
            "group_heartbeat_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise InvalidConfig(f"{name} must be positive")
        if not (
            self.group_session_timeout_ms_min
            <= self.group_session_timeout_ms_default
            <= self.group_session_timeout_ms_max
        ):
            raise InvalidConfig(
                "group_session_timeout_ms_default must lie between group_session_timeout_ms_min"
                " and group_session_timeout_ms_max"
            )
        if self.group_rebalance_timeout_ms_default > self.group_rebalance_timeout_ms_max:
            raise InvalidConfig(
                "group_rebalance_timeout_ms_default must not exceed group_rebalance_timeout_ms_max"
            )
        for name in (
            "tail_bytes_max",
            "tails_bytes_max",
            "free_space_floor_bytes",
            "open_txn_gauges_max",
            "group_lag_gauges_max",
        ):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} must not be negative")
