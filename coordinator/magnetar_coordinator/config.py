"""Settings of a coordinator. Each field states its unit and its trade-off."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.config import InvalidConfig
from magnetar_core.ids import TCID_MAX

# Brokers take a TxnID that lies farther beyond a bound for an invented one.
_TXN_IDS_AHEAD_MAX = 1 << 24

_DAY_MS = 24 * 60 * 60 * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """Settings of a coordinator.

    Raises:
        InvalidConfig: the settings cannot work together; the message says which setting is wrong,
            and what would work.
    """

    # As in the cluster file.
    name: str = "coordinator-0"
    # Part of every TxnID; a store belongs to one TCID for ever.
    tcid: int = 0
    # Of the broker that serves every partition, while there is one.
    broker_address: str = "127.0.0.1:6650"
    # Of the broker that keeps the cluster's metadata; empty: the same one.
    metadata_broker_address: str = ""
    # Of the cluster file. A store that was stamped with another hash is refused unless the version
    # is higher now.
    membership_version: int = 1
    # Of the membership; empty: peers and the store are not checked.
    cluster_hash: str = ""

    # What a client gets that asks for no timeout. Longer: patience with slow clients. Shorter: what
    # a dead client wrote is discarded, and what it acknowledged delivered again, sooner.
    txn_timeout_ms_default: int = 60_000
    # A longer timeout is refused: it bounds how long a dead client can hold acknowledgements.
    txn_timeout_ms_max: int = 15 * 60_000
    # OPEN, COMMITTING and ABORTING together; about 2 KiB of memory each, and recovery reads them
    # all. Beyond, NewTxn gets QuotaExceeded.
    live_txns_max: int = 100_000
    # OPEN at once and begun over one connection; beyond, its NewTxn gets QuotaExceeded. It keeps
    # one client from taking what all of them share, also by connecting again and again: what its
    # machine's earlier connections left open counts, and so does what its unary calls began.
    session_open_txns_max: int = 20_000
    # Of one transaction: each is a message to a broker at the end.
    participants_max: int = 10_000

    # Whether producers may take part in two-phase commit (KIP-939): their transactions never
    # expire, so that one which is abandoned stays until an administrator ends it.
    two_phase_commit_enabled: bool = False
    # Then a transactional producer gets a new producer id. Kafka's epochs end here.
    producer_epoch_max: int = 32_767
    # A transactional id that is idle for longer is forgotten, unless something of it is open.
    identity_idle_ms_max: int = 7 * _DAY_MS
    # Transactional ids known at once; about 500 bytes of memory each, and recovery reads them all.
    identities_max: int = 100_000
    # Names of sequences, which are never forgotten by themselves.
    names_max: int = 100_000
    # How long who takes a transactional id over waits until its last transaction has ended.
    takeover_wait_ms: int = 5_000

    # How soon after its deadline a transaction expires, at a cost that does not grow with their
    # number.
    expiry_check_interval_ms: int = 200
    # Expired in one turn of the event loop; more of them wait for the next check.
    expiries_per_check_max: int = 1_000
    # How much run time a crash can take back; each interval costs one row while anything is live.
    run_time_persist_interval_ms: int = 1_000
    # A smaller step of the wall clock is not reported.
    clock_jump_ms_min: int = 1_000

    # Outcomes answer repeated ends. Kept for this much run time ...
    outcome_retention_ms: int = 7 * _DAY_MS
    # ... and no more than this many, about 100 bytes of disk each. At 10,000 transactions a second
    # this is what limits: raise it for longer answers.
    outcomes_max: int = 1_000_000
    # Rows that one removal reads and deletes: more would hold up the commits beside it.
    outcome_removal_rows: int = 2_000
    # Of the newest outcomes, in memory, so that a repeat costs no read; about 300 bytes each.
    recent_outcomes_max: int = 16_384

    # TxnIDs that brokers are told of before they are issued: what lies beyond is refused there. At
    # a start those that are left are passed over. Fewer: less that a made-up one can name. Too few
    # for some seconds: a broker out of reach refuses the newest ones for as long.
    txn_ids_ahead: int = 1_000_000

    # Brokers hear of the low watermark this often, and are asked what they hold.
    watermark_interval_ms: int = 1_000
    # Older live transactions are listed as ranges; younger ones hold the watermark back. Lower: it
    # follows sooner, with longer lists.
    watermark_listed_age_ms_min: int = 60_000
    # What a broker keeps for this coordinator; with more ranges the watermark stays.
    watermark_ranges_max: int = 1_024

    # An end that is not answered in this time is sent again; also the patience with a handshake.
    # Shorter: lost answers cost less. Longer: a slow broker gets fewer repeats.
    answer_deadline_ms: int = 5_000
    # Between repeats: doubled from the first to the second, with jitter.
    retry_delay_ms_min: int = 100
    retry_delay_ms_max: int = 10_000
    # Longest pause between attempts to reach a broker: what a broker's return waits for at most,
    # against the cost of refused connections while it is away.
    reconnect_delay_ms_max: int = 500
    # Between repeats to a participant that refuses (TxnIncomplete, InvalidTxnState): an
    # administrator is needed, so there is no hurry.
    refused_retry_delay_ms: int = 10_000

    # Below this much free space NewTxn gets DiskFull; the reserve serves ends and deletes.
    free_space_floor_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        if not 0 <= self.tcid <= TCID_MAX:
            raise InvalidConfig(f"tcid is {self.tcid}; choose one from 0 to {TCID_MAX}")
        if self.membership_version < 1:
            raise InvalidConfig("membership_version must be at least 1")
        for name in (
            "txn_timeout_ms_default",
            "live_txns_max",
            "session_open_txns_max",
            "participants_max",
            "identity_idle_ms_max",
            "identities_max",
            "names_max",
            "takeover_wait_ms",
            "expiry_check_interval_ms",
            "expiries_per_check_max",
            "run_time_persist_interval_ms",
            "clock_jump_ms_min",
            "outcome_retention_ms",
            "outcomes_max",
            "outcome_removal_rows",
            "txn_ids_ahead",
            "watermark_interval_ms",
            "watermark_listed_age_ms_min",
            "watermark_ranges_max",
            "answer_deadline_ms",
            "retry_delay_ms_min",
            "refused_retry_delay_ms",
        ):
            if getattr(self, name) <= 0:
                raise InvalidConfig(f"{name} must be positive")
        for name in ("recent_outcomes_max", "free_space_floor_bytes"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} must not be negative")
        if self.txn_ids_ahead > _TXN_IDS_AHEAD_MAX:
            raise InvalidConfig(f"txn_ids_ahead must be at most {_TXN_IDS_AHEAD_MAX}")
        if not 2 <= self.producer_epoch_max <= 32_767:
            raise InvalidConfig("producer_epoch_max must be from 2 to 32767")
        if self.txn_timeout_ms_default > self.txn_timeout_ms_max:
            raise InvalidConfig("txn_timeout_ms_default must not exceed txn_timeout_ms_max")
        if self.expiry_check_interval_ms > self.txn_timeout_ms_max:
            raise InvalidConfig("expiry_check_interval_ms must not exceed txn_timeout_ms_max")
        for name in ("retry_delay_ms_max", "reconnect_delay_ms_max"):
            if self.retry_delay_ms_min > getattr(self, name):
                raise InvalidConfig(f"retry_delay_ms_min must not exceed {name}")
        if self.outcome_retention_ms < self.txn_timeout_ms_max:
            raise InvalidConfig("outcome_retention_ms must be at least txn_timeout_ms_max")
