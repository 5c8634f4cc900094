"""Settings of a broker. Each says what a higher and a lower value cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_broker.constants import BrokerConstants
from magnetar_core.config import FRAME_BYTES_MAX, NO_SETTING, InvalidConfig, check_numbers
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
    name: str = field(default="broker-0", metadata=NO_SETTING)
    # Address that the broker tells clients to connect to. Unset: the address where it listens.
    address: str = "127.0.0.1:6650"
    # Address that the broker tells clients which reached it at this address, as through a published
    # port or a gateway. Empty: none.
    external_address: str = ""
    # All brokers of the cluster file, this one too, in its order: the one at position N keeps the
    # shard N. Empty: this broker is alone.
    brokers: tuple[MemberAddress, ...] = ()
    coordinators: tuple[MemberAddress, ...] = field(
        default=(MemberAddress(name="coordinator-0", address="127.0.0.1:6651"),)
    )
    # Id of the cluster. Empty: the broker refuses clients that knew an earlier list of members.
    cluster_id: str = ""
    # Version of the cluster file, which rises whenever the members change.
    membership_version: int = field(default=1, metadata=NO_SETTING)
    # Hash of the list of members. Empty: the broker does not compare it with that of its peers.
    cluster_hash: str = field(default="", metadata=NO_SETTING)

    # When the broker confirms plain messages and plain acks. "synced": when they are on the disk.
    # "os": when the operating system has them; this is faster on slow disks, but if the machine
    # goes down, it loses what was confirmed since the last sync. A killed process loses nothing
    # either way. Transactions and all other answers always wait for a sync. "os" needs a data
    # directory.
    durability: str = "synced"
    # Longest time between a plain write and its sync, with durability "os". Higher: fewer syncs.
    # Lower: less is lost when the machine goes down.
    sync_interval_ms: int = 1_000

    # Largest batch that the broker accepts, in bytes as sent. Higher: larger messages, but each
    # batch delays other clients for longer. Lower: less memory for each producer and consumer.
    batch_bytes_max: int = 5 * 1024 * 1024
    # Limit on topics; CreateTopic beyond it gets QuotaExceeded. Higher: more memory, and a longer
    # start, since recovery reads every topic. Lower: creating topics fails sooner.
    topics_max: int = 10_000
    # Limit on the partitions of a topic. Higher: a single topic may take more of
    # broker_partitions_max. Lower: fewer members of a group can share the work of a topic.
    partitions_max: int = 1_024
    # Limit on the partitions of all topics, for each broker of the cluster; CreateTopic beyond it
    # gets QuotaExceeded. A partition takes 4 KB of memory, and up to 10 KB in use. Higher: a broker
    # may run out of memory, at each of its starts. Lower: creating topics fails sooner.
    broker_partitions_max: int = 100_000
    # Limit on the subscriptions of a partition. Higher: more memory, and a longer start, since
    # recovery reads the cursor of each. Lower: subscribing fails sooner.
    subscriptions_max: int = 1_000
    # Limit on the consumers of a subscription on a partition. Higher: more memory. Lower: further
    # consumers are refused sooner.
    consumers_max: int = 1_000
    # Limit on groups. Higher: more memory, and a longer start, since recovery reads each group and
    # its cursor on each of its partitions. Lower: creating groups fails sooner.
    groups_max: int = 10_000
    # Limit on the members of a group. Higher: each member that comes or goes costs more, since
    # partitions are spread anew. Lower: further members are refused sooner.
    group_members_max: int = 1_000
    # Longest session timeout that a member of a group may ask for. A member without a heartbeat for
    # its session timeout is expelled, and others get its partitions. Higher: members may pause for
    # longer. Lower: a dead member holds its partitions for less time.
    group_session_timeout_ms_max: int = 30 * 60 * 1000
    # Longest rebalance timeout that a member may ask for. A member has this time to settle its
    # messages of a partition that moves to another member. Higher: slow work may finish. Lower:
    # partitions move sooner.
    group_rebalance_timeout_ms_max: int = 30 * 60 * 1000
    # Limit on the producers, and on the consumers, that write in a transaction at a participant.
    # Higher: more memory for each transaction. Lower: a job with many tasks fails sooner.
    txn_writers_max: int = 10_000
    # Limit on the transactions that are open at a participant. Higher: more memory. Lower: sends
    # and acks in a new transaction get QuotaExceeded sooner.
    open_txns_max: int = 100_000
    # Limit on the bytes of open transactions in this broker's sidecars; sends beyond it get
    # QuotaExceeded. It bounds the disk space that dead clients hold until their transactions
    # expire. Higher: more and larger transactions at once. Lower: less disk space.
    open_txn_bytes_max: int = 16 << 30
    # Limit on the bytes of open transactions from a connection, including those that its machine's
    # earlier connections and unary calls left open. Higher: a client may write larger transactions.
    # Lower: more of open_txn_bytes_max is left for others.
    session_open_txn_bytes_max: int = 4 << 30
    # Memory for commands that wait: plain sends until the transaction that they follow has ended,
    # and commands of a new transaction until its coordinator has announced it. A command beyond it
    # gets LogUnavailable, and its client sends it again; order holds. Higher: fewer repeats. Lower:
    # less memory.
    parked_bytes_max: int = 64 << 20
    # Part of parked_bytes_max that a connection may use, together with its machine's earlier
    # connections. Higher: fewer repeats for that client. Lower: more is left for others.
    session_parked_bytes_max: int = 16 << 20

    # Longest time by which the stamp of a commit may be ahead of the wall clock, unless the
    # transaction's own coordinator sends it. Give coordinators the same value. Higher: a cluster
    # continues after a clock was set that far ahead. Lower: a client that invents a stamp does
    # less harm.
    stamp_ahead_ms_max: int = 366 * 24 * 60 * 60 * 1000

    # Soft memory budget of the process. The store uses up to a quarter of it for memtables and
    # blocks. The newest entries of partitions use what is left, at most tails_bytes_max. Open
    # transactions, partitions and clients come first, and have limits of their own. Higher: more
    # reads come from memory. Lower: more brokers fit into a machine.
    memory_bytes: int = 512 * 1024 * 1024
    # Limit on the newest entries that stay in memory, of all partitions of the process together;
    # beyond it, the partitions that were written least recently keep less. Messages of small open
    # transactions may take up to a quarter of it in addition. Higher: consumers that are a little
    # behind read from memory. Lower: they read from the disk sooner.
    tails_bytes_max: int = 256 * 1024 * 1024

    # Free space of the volume below which sends and new topics get DiskFull; ends, acks and deletes
    # continue, so that open transactions can finish. Higher: a larger reserve for them. Lower: more
    # of the disk holds messages.
    free_space_floor_bytes: int = 256 * 1024 * 1024
    # Time between two checks of retention on every partition; gauges are set as often. Higher: less
    # processor time with many partitions. Lower: topics exceed their retention for less time.
    retention_check_interval_ms: int = 5_000
    # Age from which an open transaction counts as late. The default is the coordinators' default of
    # txn_timeout_ms_max and five minutes more. Higher: no alert for transactions that may be long.
    # Lower: a hanging transaction is seen sooner.
    late_txn_ms: int = 20 * 60 * 1000
    # Idle time after which the broker forgets a plain producer, which then continues with a new
    # id. Only time during which the broker runs counts. Higher: repeated sends are recognized
    # after longer pauses. Lower: less memory, and faster restarts.
    producer_idle_ms_max: int = 24 * 60 * 60 * 1000

    constants: BrokerConstants = field(default_factory=BrokerConstants)

    def __post_init__(self) -> None:
        check_numbers(
            self,
            may_be_zero=("tails_bytes_max", "free_space_floor_bytes"),
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
        shortest_ms = self.constants.group_session_timeout_ms_min
        if self.group_session_timeout_ms_max < shortest_ms:
            raise InvalidConfig(f"group_session_timeout_ms_max must be at least {shortest_ms}")
        if self.brokers and self.name not in [broker.name for broker in self.brokers]:
            raise InvalidConfig(
                f"{self.name!r} is not among the brokers of the cluster file: correct the name, or"
                " add it"
            )
        if len(self.brokers) > SHARDS_MAX:
            raise InvalidConfig(f"a cluster has at most {SHARDS_MAX} brokers")

    @property
    def batch_body_bytes_max(self) -> int:
        """The largest size of a batch's body when it is opened."""
        return max(self.constants.batch_body_bytes_max, self.batch_bytes_max)

    @property
    def group_session_timeout_ms_default(self) -> int:
        """The session timeout of a member that names none."""
        default_ms = self.constants.group_session_timeout_ms_default
        return min(default_ms, self.group_session_timeout_ms_max)

    @property
    def group_rebalance_timeout_ms_default(self) -> int:
        """The rebalance timeout of a member that names none."""
        default_ms = self.constants.group_rebalance_timeout_ms_default
        return min(default_ms, self.group_rebalance_timeout_ms_max)

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
        """The number of shards over which new topics are spread: one for each broker."""
        return len(self.brokers) or 1
