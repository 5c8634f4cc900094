"""Settings of a coordinator. Each field states its unit and its trade-off."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.config import InvalidConfig, check_numbers
from magnetar_core.cuts.hybrid_clock import AHEAD_MS_MAX
from magnetar_core.ids import TCID_MAX
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.placement import SHARDS_MAX

# Brokers reject a TxnID that lies farther beyond a bound: a client must have invented it.
_TXN_IDS_AHEAD_MAX = 1 << 24

_DAY_MS = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """Settings of a coordinator.

    Raises:
        InvalidConfig: the settings cannot work together; the message says which setting is wrong,
            and what would work.
    """

    # Name of this coordinator in the cluster file.
    name: str = "coordinator-0"
    # Part of every TxnID. A store never changes its TCID.
    tcid: int = 0
    # Addresses of brokers, in the order of their shards. The first keeps the cluster's metadata.
    broker_addresses: tuple[str, ...] = ("127.0.0.1:6650",)
    # Their names; empty: the store does not notice a broker that was removed or moved.
    broker_names: tuple[str, ...] = ()
    # Id of the cluster in the cluster file; empty: clients that knew an earlier list are refused.
    cluster_id: str = ""
    # Version of the cluster file. A store that was stamped with another hash is refused unless the
    # version is higher now.
    membership_version: int = 1
    # Hash of the list of members; empty: peers and the store are not checked.
    cluster_hash: str = ""

    # The timeout if a client asks for none. Longer: patience with slow clients. Shorter: writes of
    # a dead client are discarded, and its acknowledged messages delivered again, sooner.
    txn_timeout_ms_default: int = 60_000
    # A longer timeout is refused: it bounds how long a dead client can hold acknowledgements.
    txn_timeout_ms_max: int = 15 * 60_000
    # The most transactions that are OPEN, COMMITTING or ABORTING; each takes about 2 KiB of memory,
    # and recovery reads all of them. Beyond that, NewTxn gets QuotaExceeded.
    live_txns_max: int = 100_000
    # The most OPEN transactions that a connection has begun; beyond that, its NewTxn gets
    # QuotaExceeded. The limit keeps a single client from using what all clients share, also by
    # connecting again and again: open transactions of its machine's earlier connections and unary
    # calls count, too.
    session_open_txns_max: int = 20_000
    # The most participants of a transaction: each needs an end command to a broker.
    participants_max: int = 10_000

    # Whether producers may take part in two-phase commit (KIP-939): their transactions never
    # expire, so an abandoned transaction stays until an administrator ends it.
    two_phase_commit_enabled: bool = False
    # After this epoch a transactional producer gets a new producer id. Kafka's epochs end here.
    producer_epoch_max: int = 32_767
    # A transactional id that is idle for longer is forgotten, unless something of it is open.
    identity_idle_ms_max: int = 7 * _DAY_MS
    # The most transactional ids; each takes about 500 bytes of memory, and recovery reads all of
    # them.
    identities_max: int = 100_000
    # The most names of sequences. Names are never forgotten without a command.
    names_max: int = 100_000
    # How long a takeover of a transactional id waits until its last transaction has ended.
    takeover_wait_ms: int = 5_000

    # How soon after its deadline a transaction expires. The cost does not depend on the number of
    # transactions.
    expiry_check_interval_ms: int = 200
    # How many transactions expire in a turn of the event loop; others wait for the next check.
    expiries_per_check_max: int = 1_000
    # How much run time a crash can take back; each interval costs a row while any transaction is
    # live.
    run_time_persist_interval_ms: int = 1_000
    # A smaller step of the wall clock is not reported.
    clock_jump_ms_min: int = 1_000
    # Commits get higher stamps than what their clients have seen, unless that lies farther ahead of
    # the wall clock: then they are refused, since a client may have invented it. If the clock of a
    # coordinator was once set further ahead than this, raise it everywhere: the stamps of its
    # commits stay.
    stamp_ahead_ms_max: int = 366 * _DAY_MS

    # Outcomes answer repeated ends. They are kept for this much run time ...
    outcome_retention_ms: int = 7 * _DAY_MS
    # ... and no more than this many, about 100 bytes of disk each. At 10,000 transactions a second
    # this is what limits: raise it for longer answers.
    outcomes_max: int = 1_000_000
    # Rows that a removal reads and deletes: more rows would delay commits.
    outcome_removal_rows: int = 2_000
    # The newest outcomes that stay in memory, so that a repeat costs no read; about 300 bytes each.
    recent_outcomes_max: int = 16_384

    # How many TxnIDs brokers are told of before they are issued: brokers refuse others. A start
    # skips the unused ones. Lower: fewer valid TxnIDs for a client that invents them. If they do
    # not last for some seconds, a broker out of reach refuses the newest TxnIDs for as long.
    txn_ids_ahead: int = 1_000_000

    # How often brokers get the low watermark, and are asked for orphans.
    watermark_interval_ms: int = 1_000
    # Older live transactions are listed as ranges; younger transactions hold the watermark back.
    # Lower: the watermark follows sooner, with longer lists.
    watermark_listed_age_ms_min: int = 60_000
    # The most ranges that a broker keeps for this coordinator; with more ranges the watermark
    # stays.
    watermark_ranges_max: int = 1_024

    # An end command without an answer for this long is sent again; the limit also holds for a
    # handshake. Shorter: lost answers cost less. Longer: a slow broker gets fewer repeats.
    answer_deadline_ms: int = 5_000
    # Time between repeats: doubled from the lower to the upper limit, with jitter.
    retry_delay_ms_min: int = 100
    retry_delay_ms_max: int = 10_000
    # Longest pause between attempts to reach a broker. Shorter: a broker's return is noticed
    # sooner. Longer: fewer refused connections while it is away.
    reconnect_delay_ms_max: int = 500
    # Time between repeats to a participant that refuses (TxnIncomplete, InvalidTxnState): an
    # administrator is needed, so there is no hurry.
    refused_retry_delay_ms: int = 10_000

    # Below this much free space NewTxn gets DiskFull; the reserve serves ends and deletes.
    free_space_floor_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if not 0 <= self.tcid <= TCID_MAX:
            raise InvalidConfig(f"tcid is {self.tcid}; choose one from 0 to {TCID_MAX}")
        if not 0 < len(self.broker_addresses) <= SHARDS_MAX:
            raise InvalidConfig(f"broker_addresses must have 1 to {SHARDS_MAX} addresses")
        if len(set(self.broker_addresses)) < len(self.broker_addresses):
            raise InvalidConfig("broker_addresses has an address twice; each broker has its own")
        if self.broker_names and len(self.broker_names) != len(self.broker_addresses):
            raise InvalidConfig("broker_names must have a name for each of broker_addresses")
        check_numbers(self, may_be_zero=("tcid", "recent_outcomes_max", "free_space_floor_bytes"))
        if self.txn_ids_ahead > _TXN_IDS_AHEAD_MAX:
            raise InvalidConfig(f"txn_ids_ahead must be at most {_TXN_IDS_AHEAD_MAX}")
        if not 2 <= self.producer_epoch_max <= 32_767:
            raise InvalidConfig("producer_epoch_max must be from 2 to 32767")
        if self.stamp_ahead_ms_max > AHEAD_MS_MAX:
            raise InvalidConfig(f"stamp_ahead_ms_max must be at most {AHEAD_MS_MAX}, a century")
        if self.txn_timeout_ms_default > self.txn_timeout_ms_max:
            raise InvalidConfig("txn_timeout_ms_default must not exceed txn_timeout_ms_max")
        if self.expiry_check_interval_ms > self.txn_timeout_ms_max:
            raise InvalidConfig("expiry_check_interval_ms must not exceed txn_timeout_ms_max")
        for name in ("retry_delay_ms_max", "reconnect_delay_ms_max"):
            if self.retry_delay_ms_min > getattr(self, name):
                raise InvalidConfig(f"retry_delay_ms_min must not exceed {name}")
        if self.outcome_retention_ms < self.txn_timeout_ms_max:
            raise InvalidConfig("outcome_retention_ms must be at least txn_timeout_ms_max")

    def link_settings(self) -> LinkSettings:
        """Return the settings of links to brokers."""
        return LinkSettings(
            client_name=self.name,
            cluster_hash=self.cluster_hash,
            answer_deadline_ms=self.answer_deadline_ms,
            retry_delay_ms_min=self.retry_delay_ms_min,
            reconnect_delay_ms_max=self.reconnect_delay_ms_max,
        )
