"""Settings of a broker. Each field states its unit and its trade-off."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_core.batch import BODY_BYTES_MAX
from magnetar_core.config import FRAME_BYTES_MAX, InvalidConfig, check_numbers
from magnetar_core.cuts.hybrid_clock import AHEAD_MS_MAX
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.membership.placement import SHARDS_MAX

SYNCED = "synced"
OS = "os"
# The interpreter and its libraries take 70 MiB of it before the first message, and a store that is
# busy about 100.
MEMORY_BYTES_MIN = 256 << 20
DURABILITIES = (SYNCED, OS)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of a broker."""

    # Name of this broker in the cluster file.
    name: str = "broker-0"
    # The address to which clients are told to connect.
    address: str = "127.0.0.1:6650"
    # The address that clients are told if they reached this broker at it, through a published port
    # or a gateway; empty: none.
    external_address: str = ""
    # All brokers of the cluster file, this one too, in its order: the one at position N keeps the
    # shard N. Empty: this broker is alone.
    brokers: tuple[MemberAddress, ...] = ()
    coordinators: tuple[MemberAddress, ...] = field(
        default=(MemberAddress(name="coordinator-0", address="127.0.0.1:6651"),)
    )
    # Id of the cluster in the cluster file; empty: clients that knew an earlier list are refused.
    cluster_id: str = ""
    # Version of the cluster file, raised whenever the members change.
    membership_version: int = 1
    # Hash of the list of members; empty: peers are not checked.
    cluster_hash: str = ""

    # When plain messages and plain acks are confirmed. "synced": when they are on the disk. "os":
    # when the operating system has them. Then they outlive the process, but what was confirmed
    # since the last sync is lost if the machine goes down. Whatever belongs to a transaction waits
    # for a sync in either case, and so does every other answer. "os" needs a data directory.
    durability: str = "synced"
    # With durability "os": how long anything waits for a sync for which nobody waits. Higher: fewer
    # syncs. Lower: less is lost when the machine goes down.
    sync_interval_ms: int = 1_000

    # A link to another broker that is silent for this long is given up; the limit also holds for a
    # handshake. Shorter: a broker that vanished is noticed sooner. Longer: a slow one is kept.
    broker_answer_deadline_ms: int = 5_000

    # A larger batch is refused. Higher: a single client can delay the others for longer.
    batch_bytes_max: int = 5 * 1024 * 1024
    # The largest size of a batch's body when it is opened, and its most messages: batches whose
    # headers declare more are refused. Opening a batch takes this much memory: Peek, KEY_SHARED
    # with mixed keys, consumers.
    batch_body_bytes_max: int = 8 * 1024 * 1024
    batch_messages_max: int = 1 << 18
    # With more topics, CreateTopic gets QuotaExceeded; recovery reads all topics.
    topics_max: int = 10_000
    # The most partitions of a topic.
    partitions_max: int = 1_024
    # The most partitions of all topics, for each broker that they are spread over. With more,
    # CreateTopic gets QuotaExceeded. Higher: a broker may need more memory than it has, at each of
    # its starts; a partition takes 4 KB and, in use, up to 10 KB.
    broker_partitions_max: int = 100_000
    # The most subscriptions of a partition; each is a cursor that recovery reads.
    subscriptions_max: int = 1_000
    # The most consumers of a subscription on a partition.
    consumers_max: int = 1_000
    # Each group is a row that recovery reads, and a cursor on each of its partitions.
    groups_max: int = 10_000
    # The most members of a group.
    group_members_max: int = 1_000
    # A member without a heartbeat for this long is expelled, and others get its partitions: the
    # default, and the range that a member may ask for when it joins. Shorter: a dead member is
    # replaced sooner. Longer: a pause of its process is forgiven.
    group_session_timeout_ms_default: int = 10_000
    group_session_timeout_ms_min: int = 1_000
    group_session_timeout_ms_max: int = 30 * 60 * 1000
    # How long a member may take to settle its messages of a partition that moves to another member.
    group_rebalance_timeout_ms_default: int = 60_000
    group_rebalance_timeout_ms_max: int = 30 * 60 * 1000
    # The longest time between heartbeats; never above a third of the session timeout.
    group_heartbeat_interval_ms: int = 3_000
    # The most producers (or consumers) that write in a transaction at a participant.
    txn_writers_max: int = 10_000
    # The most transactions that are open at a participant.
    open_txns_max: int = 100_000
    # Bytes that open transactions may hold in the sidecars of this broker, and the part that a
    # connection may have sent; open bytes of its machine's earlier connections and unary calls
    # count, too. Beyond that, sends get QuotaExceeded: the limit bounds the disk space that dead
    # clients use until their transactions expire.
    open_txn_bytes_max: int = 16 << 30
    session_open_txn_bytes_max: int = 4 << 30
    # Memory for commands that wait: plain sends until the transaction that they follow has ended,
    # and commands of a new transaction until its coordinator has announced it. Beyond that, such a
    # command gets LogUnavailable, and its client sends it again: order holds.
    parked_bytes_max: int = 64 << 20
    # The part of that memory that a connection may use, together with its machine's earlier
    # connections: the rest stays for other clients.
    session_parked_bytes_max: int = 16 << 20

    # How far the stamp of a commit may lie ahead of the wall clock, unless the transaction's
    # coordinator itself tells it: somebody may have invented it, and coordinators refuse the
    # commits of those who have read it. The same as the coordinators' stamp_ahead_ms_max.
    stamp_ahead_ms_max: int = 366 * 24 * 60 * 60 * 1000

    # Memory that the process may have. The store gets up to a quarter of it for memtables and
    # blocks, and tails what all else leaves, up to tails_bytes_max: what transactions, partitions
    # and clients need comes first. It is no limit for those, which have limits of their own.
    # Higher: more is read from memory. Lower: more brokers fit into a machine.
    memory_bytes: int = 512 * 1024 * 1024
    # Newest entries of each partition that stay in memory, so that consumers at the tail cost no
    # read.
    tail_bytes_max: int = 4 * 1024 * 1024
    # The same for all partitions of the process together. Beyond that, the least recently written
    # partitions keep less. Messages of small open transactions take up to a quarter of it besides.
    tails_bytes_max: int = 256 * 1024 * 1024
    # Bytes that are read from the log at once for a subscription.
    dispatch_bytes_max: int = 1024 * 1024
    # Messages that are read ahead for a Key_Shared subscription on a partition, while their keys
    # wait for a consumer. Beyond that, no new message goes out until some of them are settled.
    # Higher: a slow consumer delays the others later. Each takes up to some hundred bytes of
    # memory.
    key_shared_waiting_max: int = 20_000

    # Below this much free space, sends and new topics get DiskFull; ends, acks and deletes go on.
    free_space_floor_bytes: int = 256 * 1024 * 1024
    # How often retention checks every partition, and gauges are set. Shorter: limits are kept more
    # closely, at a cost that grows with the number of partitions.
    retention_check_interval_ms: int = 5_000
    # A transaction that is open here for longer counts as late. The default is the coordinators'
    # longest timeout and five minutes, so that an end which is under way raises no alarm.
    late_txn_ms: int = 20 * 60 * 1000
    # How many partitions show the age of their oldest open transaction, the oldest first. Higher:
    # Prometheus keeps more series. 0: none.
    open_txn_gauges_max: int = 100
    # How many partitions show a group's lag, over all groups, the greatest lag first. Higher:
    # Prometheus keeps more series. 0: none.
    group_lag_gauges_max: int = 10_000
    # A plain producer that is idle for longer is forgotten; it then starts again with a new id.
    # Only the broker's run time counts.
    producer_idle_ms_max: int = 24 * 60 * 60 * 1000

    def __post_init__(self) -> None:
        check_numbers(
            self,
            may_be_zero=(
                "tail_bytes_max",
                "tails_bytes_max",
                "free_space_floor_bytes",
                "open_txn_gauges_max",
                "group_lag_gauges_max",
            ),
        )
        if self.stamp_ahead_ms_max > AHEAD_MS_MAX:
            raise InvalidConfig(f"stamp_ahead_ms_max must be at most {AHEAD_MS_MAX}, a century")
        if self.durability not in DURABILITIES:
            raise InvalidConfig(
                f"durability is {self.durability!r}, but must be one of {', '.join(DURABILITIES)}"
            )
        if self.memory_bytes < MEMORY_BYTES_MIN:
            raise InvalidConfig(
                f"memory_bytes must be at least {MEMORY_BYTES_MIN}, with which a busy broker and"
                " its store get by"
            )
        if self.batch_bytes_max > FRAME_BYTES_MAX // 2:
            raise InvalidConfig(
                f"batch_bytes_max must be at most {FRAME_BYTES_MAX // 2}, half of a frame"
            )
        if not self.batch_bytes_max <= self.batch_body_bytes_max <= BODY_BYTES_MAX:
            raise InvalidConfig(
                f"batch_body_bytes_max must be from batch_bytes_max to {BODY_BYTES_MAX}: clients"
                " open nothing larger"
            )
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
        if self.brokers and self.name not in [one.name for one in self.brokers]:
            raise InvalidConfig(
                f"{self.name!r} is not among the brokers of the cluster file: correct the name, or"
                " add it"
            )
        if len(self.brokers) > SHARDS_MAX:
            raise InvalidConfig(f"a cluster has at most {SHARDS_MAX} brokers")

    @property
    def late_syncs(self) -> bool:
        """Whether plain messages are confirmed before they are synced."""
        return self.durability == OS

    @property
    def shard(self) -> int:
        """The number of the shard that this broker keeps: its position among the brokers."""
        return next((at for at, one in enumerate(self.brokers) if one.name == self.name), 0)

    @property
    def shard_count(self) -> int:
        """How many shards new topics are spread over: one for each broker."""
        return len(self.brokers) or 1
