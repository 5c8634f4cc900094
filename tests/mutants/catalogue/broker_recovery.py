"""Mistakes in what the broker keeps, reads back, forgets and asks coordinators about."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WATERMARK = "broker/magnetar_broker/transactions/watermark.py"
_COMMANDS = "broker/magnetar_broker/coordinators/transaction_commands.py"
_RECOVERY = "broker/magnetar_broker/recovery.py"
_LOG = "broker/magnetar_broker/log/partition_log.py"
_SETTLING = "broker/magnetar_broker/coordinators/orphan_resolver.py"
_HELD = "broker/magnetar_broker/transactions/orphan_candidates.py"

MUTANTS = (
    Mutant(
        name="producer-run-time-not-restored",
        file=_RECOVERY,
        old="row.last_time_ms, row.last_run_time_ms)",
        new="row.last_time_ms, 0)",
        mistake="After a restart every producer looks as if it had never sent anything.",
    ),
    Mutant(
        name="batch-starts-not-restored",
        file=_RECOVERY,
        old="            writer.batch_starts.append(index)\n",
        new=(
            "            if not writer.batch_starts:\n"
            "                writer.batch_starts.append(index)\n"
        ),
        mistake="After a restart only the first batch of an open transaction is known.",
    ),
    Mutant(
        name="index-after-watermark-only",
        file=_RECOVERY,
        old=(
            "            live = list(watermark.live) + [(one, one) for one in "
            "self._orphans.get(tcid, [])]"
        ),
        new="            live = list(watermark.live)",
        mistake="A recovery does not read what is open here although it is covered.",
    ),
    Mutant(
        name="second-page-skipped",
        file=_RECOVERY,
        old='        start = rows[-1][0] + b"\\x00"',
        new='        start = rows[-1][0] + b"\\xff"',
        mistake="Between two pages of a recovery a row may be passed over.",
    ),
    Mutant(
        name="watermark-covers-live",
        file=_WATERMARK,
        old="        return at < 0 or self.live[at][1] < txn_id.counter",
        new="        return at < 0 or self.live[at][1] <= txn_id.counter",
        mistake="The last TxnID of a live range counts as ended.",
    ),
    Mutant(
        name="watermark-covers-itself",
        file=_WATERMARK,
        old="or txn_id.counter >= self.low_watermark:",
        new="or txn_id.counter > self.low_watermark:",
        mistake="The watermark covers its own counter, which may be open.",
    ),
    Mutant(
        name="old-watermark-taken",
        file=_WATERMARK,
        old="        if low_watermark < self.low_watermark:\n            return known",
        new="        if low_watermark < self.low_watermark and not live:\n            return known",
        mistake="A late copy of an older watermark uncovers what had ended.",
    ),
    Mutant(
        name="live-ranges-uncovered-again",
        file=_WATERMARK,
        old="        still_live = intersected(clipped(live, 0, self.low_watermark), self.live)",
        new="        still_live = clipped(live, 0, self.low_watermark)",
        mistake="A TxnID that was covered becomes live again.",
    ),
    Mutant(
        name="older-incarnation-heard",
        file=_COMMANDS,
        old="        if command.incarnation < known.incarnation:",
        new="        if command.incarnation + 1 < known.incarnation:",
        mistake="The coordinator's store before the newest one may still move the watermark.",
    ),
    Mutant(
        name="orphans-of-subscriptions-not-told",
        file=_SETTLING,
        old="            if covers(txn_id):",
        new="            if covers(txn_id) and not isinstance(participant, SubscriptionName):",
        mistake=(
            "An ack that was left behind by an ended transaction is not told to its coordinator."
        ),
    ),
    Mutant(
        name="end-answered-before-durable",
        file=_COMMANDS,
        old="            self._environment.when_durable(leave)\n\n        def failed(",
        new="            leave()\n\n        def failed(",
        mistake="A coordinator hears that a transaction has ended before that is durable.",
    ),
    Mutant(
        name="ends-together-answered-before-durable",
        file=_COMMANDS,
        old="            self._environment.when_durable(leave)\n\n        EndsTogether(",
        new="            leave()\n\n        EndsTogether(",
        mistake="The same, of a command that ends several participants.",
    ),
    Mutant(
        name="tail-shows-what-is-not-durable",
        file=_LOG,
        old="        return [entry for entry in entries if entry.end <= self.durable_end]",
        new="        return [entry for entry in entries if entry.entry_id <= self.durable_end]",
        mistake="The tail serves one entry more than what is durable.",
    ),
    Mutant(
        name="tail-from-next-entry",
        file=_LOG,
        old="key=_entry_id) - 1\n",
        new="key=_entry_id)\n",
        mistake="A read from the tail begins behind the entry that holds the offset.",
    ),
    Mutant(
        name="superseded-asked-for",
        file=_SETTLING,
        old="            elif not is_superseded(txn_id):",
        new="            else:",
        mistake="A coordinator is asked about what its store before the present one has issued.",
    ),
    Mutant(
        name="held-by-young-asked-for",
        file=_HELD,
        old="            if now_ms - opened_ms >= ORPHAN_AGE_MS_MIN or",
        new="            if now_ms - opened_ms < ORPHAN_AGE_MS_MIN or",
        mistake="A broker asks about young transactions, and never about those that stay.",
    ),
    Mutant(
        name="one-participant-known-for-all",
        file=_HELD,
        old="            some.pop((txn_id, participant), None)",
        new=(
            "            for place in [one for one in some if one[0] == txn_id]:\n"
            "                del some[place]"
        ),
        mistake="What takes part nowhere is not asked about once another place of it is known.",
    ),
    Mutant(
        name="dispatched-before-sync",
        file=_LOG,
        old="        self.end_offset = entry.end\n",
        new="        self.durable_end = self.end_offset = entry.end\n",
        mistake="Readers see what is applied and not yet durable (rule a).",
    ),
    Mutant(
        name="watermark-not-stored",
        file=_COMMANDS,
        old="                keys.META, keys.watermark(command.tcid), row.SerializeToString()",
        new="                keys.META, keys.watermark(command.tcid + 1), row.SerializeToString()",
        mistake="A watermark is stored as another coordinator's: a restart accepts what it covers.",
    ),
    Mutant(
        name="deduplication-off-after-restart",
        file=_RECOVERY,
        old="                partition.producers.restore(keys.last_u64(key), producer)",
        new="                partition.producers.restore(keys.last_u64(key[:-8]), producer)",
        mistake="A restart restores producers under wrong ids.",
    ),
)
