"""Constants of a coordinator that no operator has a reason to change. Tests give others. Pure.

A value that operators change, or that bounds what clients take, is a setting in `config`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConstants:
    """Constants of a coordinator. A test gives its own with `CoordinatorConfig(constants=...)`."""

    # The timeout of a transaction whose client names none; never above txn_timeout_ms_max.
    txn_timeout_ms_default: int = 60_000
    # How soon after its deadline a transaction expires. The cost does not depend on the number of
    # transactions.
    expiry_check_interval_ms: int = 200
    # Transactions that expire in a turn of the event loop; others wait for the next check.
    expiries_per_check_max: int = 1_000

    # After this epoch a transactional producer gets a new producer id, as in Kafka.
    producer_epoch_max: int = 32_767
    # How long a takeover of a transactional id waits until its last transaction has ended.
    takeover_wait_ms: int = 5_000

    # How much run time a crash can take back. Each interval costs a row while any transaction is
    # live.
    run_time_persist_interval_ms: int = 1_000
    # A smaller step of the wall clock is not reported.
    clock_jump_ms_min: int = 1_000

    # Rows that a removal of outcomes reads and deletes at once: more would delay commits.
    outcome_removal_rows: int = 2_000
    # The newest outcomes that stay in memory, about 300 bytes each, so that a repeated end reads
    # nothing from the store; never more than outcomes_max.
    recent_outcomes_max: int = 16_384

    # How many ended transactions stay in memory with their details, about 1 kB each, so that people
    # can see what became of them: so many short ones, and so many that took long or are large.
    ended_details_max: int = 10_000
    # Participants of those that took long or are large, all together.
    ended_participants_max: int = 100_000

    # How many transactions that have changed are remembered for those who follow changes, about
    # 300 B each. A follower that is farther behind lists all live transactions again.
    txn_changes_max: int = 50_000

    # Number of TxnIDs that are announced to brokers before they are issued: brokers refuse others.
    # A start skips the unused ones. With more, a client can invent more TxnIDs that brokers accept.
    # If they do not last for some seconds, a broker out of reach refuses the newest transactions
    # until it can be reached.
    txn_ids_ahead: int = 1_000_000
    # How often brokers get the low watermark, and are asked for orphans.
    watermark_interval_ms: int = 1_000
    # Older live transactions are listed as ranges; younger ones hold the watermark back. A lower
    # age lets it follow sooner, with longer lists.
    watermark_listed_age_ms_min: int = 60_000
    # Ranges that a broker keeps for this coordinator; with more, the watermark stays.
    watermark_ranges_max: int = 1_024

    # An end command without an answer for this long is sent again. A handshake may take as long.
    answer_deadline_ms: int = 5_000
    # Time between repeats: doubled from the lower to the upper limit, with jitter.
    retry_delay_ms_min: int = 100
    retry_delay_ms_max: int = 10_000
    # Longest pause between attempts to reach a broker.
    reconnect_delay_ms_max: int = 500
    # Time between repeats to a participant that refuses (TxnIncomplete, InvalidTxnState): an
    # administrator is needed, so there is no hurry.
    refused_retry_delay_ms: int = 10_000
