"""Periodic work of a coordinator: transactions expire, old outcomes and idle ids are forgotten.

It also sets gauges.
Source: PIP-31, TC Transaction Expiration.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.finisher import Finisher
from magnetar_coordinator.ending.past_ends import PastEnd, open_before_loss
from magnetar_coordinator.metadata.records import Restored
from magnetar_coordinator.metadata.transaction import Cause, EndCause, TxnAction, TxnStatus
from magnetar_coordinator.metadata_store import TransactionMetadataStore
from magnetar_coordinator.runtime import Runtime
from magnetar_coordinator.transactions.decision import EndTxnRequest
from magnetar_core.ids import TxnID
from magnetar_storage.store import RowsUnreadable, StoreFailed

log = logging.getLogger(__name__)

_IDLE_CHECK_INTERVAL_MS = 60_000


# Retention of outcomes: old outcomes, and outcomes beyond the limit, are forgotten.
# Outcomes are checked in the order of their TxnIDs, the oldest first, in portions. A portion
# full of transactions that stayed open for very long can delay the removal of later ones.

# Portions in a row, before the removal rests until the next call.
_PORTIONS_MAX = 20


class OutcomeRetention:
    """Retention of a coordinator's outcomes."""

    def __init__(self, metadata: TransactionMetadataStore, config: CoordinatorConfig) -> None:
        self._metadata = metadata
        self._config = config
        # Until this run time no outcome is old enough, and nothing is read.
        self._due_run_time_ms = 0

    async def remove(self, run_time_ms: int) -> int:
        """Remove old outcomes, in a few portions. Returns how many were removed.

        Raises:
            RowsUnreadable: outcomes cannot be read; earlier ones may be removed.
        """
        excess = self._metadata.outcome_count - self._config.outcomes_max
        if excess <= 0 and run_time_ms < self._due_run_time_ms:
            return 0
        removed = 0
        for _ in range(_PORTIONS_MAX):
            scanned_now, removed_now = await self._remove_portion(run_time_ms)
            removed += removed_now
            if removed_now == 0 or scanned_now < self._config.constants.outcome_removal_rows:
                break
        else:
            self._due_run_time_ms = 0
        return removed

    async def _remove_portion(self, run_time_ms: int) -> tuple[int, int]:
        metadata = self._metadata
        start = metadata.first_outcome_key
        rows = await metadata.outcome_ends(
            start, rows_max=self._config.constants.outcome_removal_rows
        )
        old_run_time_ms = run_time_ms - self._config.outcome_retention_ms
        excess = metadata.outcome_count - self._config.outcomes_max
        removed: list[bytes] = []
        first_kept = b""
        oldest_kept_ms = run_time_ms
        for key, end_run_time_ms in rows:
            if len(removed) < excess or end_run_time_ms <= old_run_time_ms:
                removed.append(key)
                continue
            first_kept = first_kept or key
            oldest_kept_ms = min(oldest_kept_ms, end_run_time_ms)
        self._due_run_time_ms = oldest_kept_ms + self._config.outcome_retention_ms
        # Unless an earlier transaction ended while we read.
        if rows and metadata.first_outcome_key == start:
            metadata.first_outcome_key = first_kept or rows[-1][0] + b"\x00"
        if removed:
            await metadata.forget_outcomes(removed)
        return len(rows), len(removed)


class Upkeep:
    """Periodic work of a coordinator, and the work that it finds when it starts."""

    _retention: OutcomeRetention

    def __init__(self, runtime: Runtime, finisher: Finisher) -> None:
        self._runtime = runtime
        self._finisher = finisher
        self._removing = False
        self._next_idle_check_ms = 0

    def recovered(self) -> None:
        """Begin: the store is read."""
        self._retention = OutcomeRetention(self._runtime.metadata, self._runtime.config)

    def resume(self) -> None:
        """Continue to end transactions. PIP-31, TC Transaction Expiration, steps 2 and 3."""
        ending = frozenset({TxnStatus.COMMITTING, TxnStatus.ABORTING})
        transactions = list(self._runtime.shard.select(ending))
        for transaction in transactions:
            transaction.is_loss_durable = transaction.loss_accepted
        self._finisher.finish(transactions, self._runtime.on_finished)

    def expire(self) -> None:
        """Abort transactions whose time is up. PIP-31, TC Transaction Expiration, step 1."""
        runtime = self._runtime
        expired = runtime.shard.expiry.expired(
            runtime.run_time_ms(),
            count_max=runtime.config.constants.expiries_per_check_max,
            kept=runtime.shard.past_commits,
        )
        for txn_id in expired:
            log.info("transaction %s has expired", txn_id, extra={"txn_id": txn_id})
            decision = runtime.shard.expire(txn_id, time_ms=runtime.time_ms())
            runtime.carry_out(decision, Cause(EndCause.TIMED_OUT))
            runtime.metrics.expired.inc()

    def go_on_with(self, txn_id: TxnID, end: PastEnd) -> None:
        """Carry out a decision whose records are lost (rule n)."""
        runtime = self._runtime
        if end.action is TxnAction.COMMIT:
            # In cuts it is whole only if all of its markers have the same stamp.
            runtime.shard.past_stamps[txn_id] = end.stamp
        if end.selection_digest:
            # The selection of writers is lost as well: only the client that commits again knows it.
            runtime.shard.past_commits[txn_id] = end.selection_digest
            log.critical(
                "transaction %s was committed with a selection that is lost: it stays open until"
                " its client commits it again",
                txn_id,
                extra={"txn_id": txn_id},
            )
            return
        log.warning("transaction %s had ended before the loss: %s", txn_id, end.action.name)
        runtime.carry_out(
            runtime.shard.end(EndTxnRequest(txn_id, end.action), time_ms=runtime.time_ms()),
            Cause(EndCause.DECIDED_BEFORE_LOSS),
        )

    def abort_restored(self, restored: Restored) -> None:
        """Abort the OPEN transactions of a backup: their clients wrote on after it (rule n).

        A commit of the rest would be torn, or would wait for messages that are gone.
        """
        runtime = self._runtime
        shard = runtime.shard
        for txn_id in open_before_loss(shard):
            if txn_id in shard.past_commits:
                continue
            if restored is Restored.KEEP_TWO_PHASE and not shard.live[txn_id].expires:
                log.warning("transaction %s stays open: its owner decides", txn_id)
                continue
            log.info("transaction %s was open in the backup: it is aborted", txn_id)
            decision = shard.expire(txn_id, time_ms=runtime.time_ms())
            runtime.carry_out(decision, Cause(EndCause.RESTORED))
        runtime.metadata.forget_restore()

    def abort_expelled(self, txn_ids: list[TxnID]) -> None:
        """Abort transactions of expelled group members: others wait for their end.

        Transactions that are ending are left alone; so are those that never expire, for their owner
        decides.
        """
        runtime = self._runtime
        if not runtime.is_serving:
            return
        for txn_id in txn_ids:
            transaction = runtime.shard.live.get(txn_id)
            if transaction is None or transaction.status is not TxnStatus.OPEN:
                continue
            if transaction.expires and txn_id not in runtime.shard.past_commits:
                log.info(
                    "transaction %s is aborted: a member of a group that took part is gone",
                    txn_id,
                    extra={"txn_id": txn_id},
                )
                abort = EndTxnRequest(txn_id, TxnAction.ABORT)
                decision = runtime.shard.end(abort, time_ms=runtime.time_ms())
                runtime.carry_out(decision, Cause(EndCause.MEMBER_EXPELLED))
                runtime.metrics.expelled.inc()

    def note_time(self) -> None:
        """Persist the run time, set gauges, and forget old outcomes and idle ids."""
        runtime = self._runtime
        runtime.disk_reserve.look()
        runtime.shard.ended_details.forget_old()
        runtime.changes.stop_if_idle(runtime.monotonic_ms())
        run_time_ms = runtime.run_time_ms()
        transactional_ids = runtime.transactional_ids
        checks_idle = len(transactional_ids) > 0 and run_time_ms >= self._next_idle_check_ms
        if runtime.shard.live or checks_idle:
            runtime.metadata.persist_run_time(run_time_ms)
        jump_ms = runtime.run_time.wall_jump_ms()
        if jump_ms:
            runtime.metrics.clock_jumps.inc()
            log.warning("the wall clock jumped by %d ms; nothing depends on it", jump_ms)
        outcome_count = runtime.metadata.outcome_count
        runtime.metrics.show(
            runtime.shard,
            time_ms=runtime.time_ms(),
            run_time_ms=run_time_ms,
            outcome_count=outcome_count,
            identity_count=len(transactional_ids),
            oldest_finishing_ms=self._finisher.oldest_ms(),
            cuts_waiting=len(runtime.cut_closings),
        )
        if checks_idle:
            self._next_idle_check_ms = run_time_ms + _IDLE_CHECK_INTERVAL_MS
            for idle in transactional_ids.forget_idle(run_time_ms):
                log.info("transactional id %r was idle for long; it is forgotten", idle)
        if not self._removing and outcome_count:
            self._removing = True
            runtime.spawn(self._remove_outcomes(run_time_ms))

    async def _remove_outcomes(self, run_time_ms: int) -> None:
        try:
            # Unreadable outcomes stay; they were logged and counted.
            with suppress(RowsUnreadable):
                await self._retention.remove(run_time_ms)
        except StoreFailed as error:
            self._runtime.fail(error)
        finally:
            self._removing = False
