"""Settings of a coordinator. Each says what a higher and a lower value cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_coordinator.constants import CoordinatorConstants
from magnetar_core.config import NO_SETTING, InvalidConfig, check_numbers
from magnetar_core.cuts.hybrid_clock import AHEAD_MS_MAX
from magnetar_core.ids import TCID_MAX
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.placement import SHARDS_MAX

_DAY_MS = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """Settings of a coordinator.

    Raises:
        InvalidConfig: the settings cannot work together; the message says which setting is wrong,
            and what would work.
    """

    # Name of this coordinator in the cluster file.
    name: str = field(default="coordinator-0", metadata=NO_SETTING)
    # Part of every TxnID. A store never changes its TCID.
    tcid: int = field(default=0, metadata=NO_SETTING)
    # Addresses of brokers, in the order of their shards. The first keeps the cluster's metadata.
    broker_addresses: tuple[str, ...] = ("127.0.0.1:6650",)
    # Their names; empty: the store does not notice a broker that was removed or moved.
    broker_names: tuple[str, ...] = ()
    # Id of the cluster. Empty: the coordinator refuses clients that knew an earlier list of
    # members.
    cluster_id: str = ""
    # Version of the cluster file. A store that was stamped with another hash is refused unless the
    # version is higher now.
    membership_version: int = field(default=1, metadata=NO_SETTING)
    # Hash of the list of members. Empty: it is compared neither with that of peers nor with that of
    # the store.
    cluster_hash: str = field(default="", metadata=NO_SETTING)

    # Longest timeout that a client may ask for; a longer one is refused. A transaction without a
    # timeout of its own has 60,000 ms, or this limit if it is less. Higher: jobs may run for longer
    # in a transaction. Lower: a dead client holds its acknowledgements, and the disk space of its
    # messages, for less time.
    txn_timeout_ms_max: int = 15 * 60_000
    # Limit on the transactions that are OPEN, COMMITTING or ABORTING; NewTxn beyond it gets
    # QuotaExceeded. Each takes about 2 KiB of memory. Higher: more memory, and a longer start,
    # since recovery reads all of them. Lower: clients are refused sooner while brokers are away.
    live_txns_max: int = 100_000
    # Limit on the OPEN transactions of a connection, including those that its machine's earlier
    # connections and unary calls left open; its NewTxn beyond it gets QuotaExceeded. Higher: a
    # client may have more transactions at once. Lower: more of live_txns_max is left for others.
    session_open_txns_max: int = 20_000
    # Limit on the participants of a transaction. Higher: transactions over more partitions, each of
    # which needs an end command. Lower: such transactions are refused sooner.
    participants_max: int = 10_000

    # Whether producers may use two-phase commit (KIP-939). Their transactions never expire: if a
    # client does not come back, its transaction stays open until an administrator ends it.
    two_phase_commit_enabled: bool = False
    # Idle time after which a transactional id is forgotten, unless a transaction of it is open.
    # Higher: a producer may pause for longer and still fence its earlier instances. Lower: less
    # memory where clients choose new ids again and again.
    identity_idle_ms_max: int = 7 * _DAY_MS
    # Limit on transactional ids; each takes about 500 bytes of memory. Higher: more memory, and a
    # longer start, since recovery reads all of them. Lower: new ids get QuotaExceeded sooner.
    identities_max: int = 100_000
    # Limit on the names of sequences, which stay until an administrator removes them. Higher: more
    # memory, and a longer start. Lower: new names get QuotaExceeded sooner.
    names_max: int = 100_000

    # Longest time by which the stamp of a commit may be ahead of the wall clock; a commit that
    # would need a higher one is refused, since a client may have invented it. Give brokers the
    # same value. Higher: a cluster continues after a clock was set that far ahead. Lower: a
    # client that invents a stamp does less harm.
    stamp_ahead_ms_max: int = 366 * _DAY_MS

    # Run time for which the coordinator keeps the outcome of a transaction, which answers repeated
    # ends. Higher: an owner of a transaction may come back after a longer time. Lower: less disk.
    outcome_retention_ms: int = 7 * _DAY_MS
    # Limit on the outcomes that are kept, about 100 bytes of disk each; the oldest go first. At
    # 10,000 transactions a second, the default lasts 100 seconds, and not outcome_retention_ms.
    # Higher: ends may be repeated for longer. Lower: less disk.
    outcomes_max: int = 1_000_000

    # Free space of the volume below which NewTxn gets DiskFull; ends and deletes continue. Higher:
    # a larger reserve for them. Lower: more of the disk holds transactions.
    free_space_floor_bytes: int = 256 << 20

    constants: CoordinatorConstants = field(default_factory=CoordinatorConstants)

    def __post_init__(self) -> None:
        if not 0 <= self.tcid <= TCID_MAX:
            raise InvalidConfig(f"tcid is {self.tcid}; choose one from 0 to {TCID_MAX}")
        if not 0 < len(self.broker_addresses) <= SHARDS_MAX:
            raise InvalidConfig(f"broker_addresses must have 1 to {SHARDS_MAX} addresses")
        if len(set(self.broker_addresses)) < len(self.broker_addresses):
            raise InvalidConfig("broker_addresses has an address twice; each broker has its own")
        if self.broker_names and len(self.broker_names) != len(self.broker_addresses):
            raise InvalidConfig("broker_names must have a name for each of broker_addresses")
        check_numbers(self, may_be_zero=("tcid", "free_space_floor_bytes"))
        if self.stamp_ahead_ms_max > AHEAD_MS_MAX:
            raise InvalidConfig(f"stamp_ahead_ms_max must be at most {AHEAD_MS_MAX}, a century")
        if self.outcome_retention_ms < self.txn_timeout_ms_max:
            raise InvalidConfig("outcome_retention_ms must be at least txn_timeout_ms_max")

    @property
    def txn_timeout_ms_default(self) -> int:
        """The timeout of a transaction whose client names none."""
        return min(self.constants.txn_timeout_ms_default, self.txn_timeout_ms_max)

    @property
    def recent_outcomes_max(self) -> int:
        """The number of outcomes that stay in memory."""
        return min(self.constants.recent_outcomes_max, self.outcomes_max)

    def link_settings(self) -> LinkSettings:
        """Return the settings of links to brokers."""
        return LinkSettings(
            client_name=self.name,
            cluster_hash=self.cluster_hash,
            answer_deadline_ms=self.constants.answer_deadline_ms,
            retry_delay_ms_min=self.constants.retry_delay_ms_min,
            reconnect_delay_ms_max=self.constants.reconnect_delay_ms_max,
        )
