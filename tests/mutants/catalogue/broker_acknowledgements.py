"""Mistakes in the broker's acknowledgements, subscriptions, retention and reading."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ACKS = "broker/magnetar_broker/dispatch/acknowledgements.py"
_SUBSCRIPTION = "broker/magnetar_broker/subscriptions/subscription.py"
_SUBSCRIPTIONS = "broker/magnetar_broker/subscriptions/subscriptions.py"
_COMMANDS = "broker/magnetar_broker/commands/subscription_commands.py"
_RETENTION = "broker/magnetar_broker/topics/retention.py"
_READER = "broker/magnetar_broker/log/log_reader.py"
_MESSAGES = "broker/magnetar_broker/log/transaction_messages.py"
_OFFSETS = "broker/magnetar_broker/log/offset_set.py"

MUTANTS = (
    Mutant(
        name="transactional-ack-unsynced",
        file=_COMMANDS,
        old="        if transactional:\n            self._environment.when_durable(leave)\n",
        new="        if transactional:\n            self._environment.when_written(leave)\n",
        mistake="With durability os, an ack of a transaction is lost with the machine.",
    ),
    Mutant(
        name="plain-ack-takes-pending",
        file=_ACKS,
        old=(
            "                free = ~self.unavailable_mask(part_first, part_last) & ((1 << "
            "width) - 1)"
        ),
        new="                free = ~self.deleted.mask(part_first, part_last) & ((1 << width) - 1)",
        mistake="A plain ack deletes what a transaction holds in PENDING_ACK.",
    ),
    Mutant(
        name="conflict-only-with-pending",
        file=_ACKS,
        old="            if first < self.floor or self.deleted.intersects(first, last):",
        new="            if self.deleted.intersects(first, last):",
        mistake="A transaction may acknowledge what lies below the floor and is deleted.",
    ),
    Mutant(
        name="pending-conflict-forgotten",
        file=_ACKS,
        old="                if held:\n",
        new="                if held and own is not None:\n",
        mistake="A transaction's first ack does not conflict with another one's.",
    ),
    Mutant(
        name="uncounted-ack-kept",
        file=_ACKS,
        old="            if ack.ack_sequence < kept.get(ack.ordinal, 0):",
        new="            if ack.ack_sequence <= kept.get(ack.ordinal, 0):",
        mistake="A commit counts one ack more than the client had confirmed (rule g).",
    ),
    Mutant(
        name="released-not-what-was-kept",
        file=_ACKS,
        old="        released.difference_update(deleted)\n",
        new="",
        mistake="What a commit has deleted comes again.",
    ),
    Mutant(
        name="floor-past-pending",
        file=_ACKS,
        old="            ones = self.deleted.chunk(chunk) >> bit",
        new="            ones = (self.deleted.chunk(chunk) | self.pending.chunk(chunk)) >> bit",
        mistake="Mark-delete passes a PENDING_ACK (rule i).",
    ),
    Mutant(
        name="new-floor-row-not-written",
        file=_ACKS,
        old=(
            "            self._stale_below(new_chunk, old_chunk)\n"
            "            self._mark_dirty(new_chunk)"
        ),
        new="            self._stale_below(new_chunk, old_chunk)",
        mistake="When the floor reaches a new chunk, no row says so: a restart delivers all again.",
    ),
    Mutant(
        name="stale-chunk-stays",
        file=_ACKS,
        old=(
            "            self.dirty_chunks.pop(chunk, None)\n"
            "            self.stale_chunks[chunk] = None"
        ),
        new="            self.dirty_chunks.pop(chunk, None)",
        mistake="The rows of chunks below the floor are never deleted, and hold it back.",
    ),
    Mutant(
        name="ack-behind-end-accepted",
        file=_SUBSCRIPTION,
        old="            if first > last or last >= self._log.durable_end:",
        new="            if first > last or first >= self._log.end_offset:",
        mistake="An ack may reach beyond the end of the log, to what is not there yet.",
    ),
    Mutant(
        name="ack-of-stranger-accepted",
        file=_SUBSCRIPTION,
        old=(
            "        self._check_owner(member)\n"
            "        self._check_ranges(ranges)\n"
            "        if cumulative:"
        ),
        new="        self._check_ranges(ranges)\n        if cumulative:",
        mistake="Anybody may acknowledge plainly on a group's partition.",
    ),
    Mutant(
        name="aborted-comes-at-once",
        file=_SUBSCRIPTION,
        old="        self._environment.when_durable(lambda: self._release(released))",
        new="        self._release(released)",
        mistake="What was acked goes out again between the abort and its durability.",
    ),
    Mutant(
        name="aborted-not-withheld",
        file=_SUBSCRIPTION,
        old="        self.dispatcher.withhold(released)\n",
        new="",
        mistake="Fresh reads hand out what an abort has given back and that is not durable yet.",
    ),
    Mutant(
        name="withheld-ignored-by-owner",
        file=_SUBSCRIPTION,
        old="        return bool(self.dispatcher.withheld) or bool(self.awaited())",
        new="        return bool(self.awaited())",
        mistake="A new owner ignores withheld acks, and gets what lies behind them first.",
    ),
    Mutant(
        name="first-awaited-only",
        file=_SUBSCRIPTION,
        old="            self.delivery.wait(self._has_to_wait())\n        self.delivery.wake()",
        new="            self.delivery.wait(False)\n        self.delivery.wake()",
        mistake="A new owner waits for the first of several transactions only.",
    ),
    Mutant(
        name="pending-ack-row-stays",
        file=_SUBSCRIPTION,
        old=(
            "                keys.pending_ack(self._prefix, end.txn_id, ack.ordinal, "
            "ack.ack_sequence),"
        ),
        new="                keys.pending_ack(self._prefix, end.txn_id, ack.ordinal, 0),",
        mistake="Of several acks of a transaction only the first one's row is deleted at its end.",
    ),
    Mutant(
        name="settled-at-once",
        file=_SUBSCRIPTION,
        old=(
            "                self._environment.when_written(lambda: self._settle(settling))\n"
            "\n"
            "    def acknowledge_in"
        ),
        new="                self._settle(settling)\n\n    def acknowledge_in",
        mistake="A key moves before the ack of its last message is durable.",
    ),
    Mutant(
        name="seek-with-pending-acks",
        file=_SUBSCRIPTION,
        old='        self._refuse_pending("seek")\n',
        new='        if self.ownership is not None:\n            self._refuse_pending("seek")\n',
        mistake="A seek is refused under pending acks in groups only (rule j).",
    ),
    Mutant(
        name="cumulative-from-here",
        file=_SUBSCRIPTION,
        old="            ranges = [(0, max(last for _, last in ranges))]",
        new="            ranges = [(0, min(first for first, _ in ranges))]",
        mistake="A cumulative ack of several messages reaches the lowest of them only.",
    ),
    Mutant(
        name="late-ack-on-absent-accepted",
        file=_SUBSCRIPTIONS,
        old="        self._end_absent(name, end)\n",
        new="",
        mistake="An end for a subscription that is not there leaves no record.",
    ),
    Mutant(
        name="new-subscription-forgets-ends",
        file=_SUBSCRIPTIONS,
        old="        absent = self._absent.pop(name, None) or self._new_absent(name)",
        new="        self._absent.pop(name, None)\n        absent = self._new_absent(name)",
        mistake="A subscription that is made again accepts late acks of ended transactions.",
    ),
    Mutant(
        name="owner-row-not-written",
        file=_SUBSCRIPTIONS,
        old=(
            "        claimed.claim(ownership)\n"
            "        self._put_record(name, claimed.subscription_id, absent=False)"
        ),
        new="        claimed.claim(ownership)",
        mistake="Who owns a partition is forgotten by a restart.",
    ),
    Mutant(
        name="shared-cumulative-ack",
        file=_COMMANDS,
        old="    if shared_type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):",
        new="    if shared_type is SubscriptionType.KEY_SHARED:",
        mistake="A plain cumulative ack on a SHARED subscription deletes what others hold.",
    ),
    Mutant(
        name="seek-to-latest-not-durable",
        file=_COMMANDS,
        old=(
            "            offset = partition.log.end_offset if latest else "
            "partition.log.first_offset"
        ),
        new="            offset = partition.log.durable_end if latest else 0",
        mistake="A seek to the beginning goes to what retention has removed.",
    ),
    Mutant(
        name="retention-past-subscriptions",
        file=_RETENTION,
        old="        limit = min(limit, partition.lowest_needed_offset)",
        new="        limit = max(limit, partition.lowest_needed_offset)",
        mistake="Retention removes what the slowest subscription has not consumed.",
    ),
    Mutant(
        name="retention-past-readers",
        file=_RETENTION,
        old="        limit = min(limit, log.lowest_pin)",
        new="        limit = max(limit, log.lowest_pin)",
        mistake="Retention removes what is being read (rule m).",
    ),
    Mutant(
        name="retention-entry-too-many",
        file=_RETENTION,
        old="        if entry.end > limit or not (too_old or excess > 0):",
        new="        if entry.entry_id >= limit or not (too_old or excess > 0):",
        mistake="Retention removes an entry of which only the beginning is consumed.",
    ),
    Mutant(
        name="log-ends-within-entry",
        file=_READER,
        old="            keys.in_partition(self._topic_id, self._number, offset + 1),",
        new="            keys.in_partition(self._topic_id, self._number, offset),",
        mistake="A read from the middle of an entry looks for its beginning one too low.",
    ),
    Mutant(
        name="second-producer-misplaced",
        file=_MESSAGES,
        old="                        first_index=base + start,",
        new="                        first_index=start,",
        mistake="In a transaction of two producers, the second one's messages get the first's ids.",
    ),
    Mutant(
        name="surplus-in-batch-shown",
        file=_MESSAGES,
        old="                        visible_count=min(count, writer.count - start),",
        new="                        visible_count=count,",
        mistake="Messages of a batch beyond what counts are delivered.",
    ),
    Mutant(
        name="read-goes-on-behind-gap",
        file=_MESSAGES,
        old="                if at != expected:",
        new="                if at < expected:",
        mistake="A reader passes over batches that are missing, in silence.",
    ),
    Mutant(
        name="discard-one-chunk",
        file=_OFFSETS,
        old=(
            "        for chunk, mask in self._touched(first, last):\n"
            "            self._keep(chunk, self._chunks.get(chunk, 0) & ~mask)"
        ),
        new=(
            "        for chunk, mask in list(self._touched(first, last))[:1]:\n"
            "            self._keep(chunk, self._chunks.get(chunk, 0) & ~mask)"
        ),
        mistake="Of a range over several chunks, the first one's offsets are discarded only.",
    ),
    Mutant(
        name="ack-check-skipped",
        file=_SUBSCRIPTION,
        old="        self.cursor.check_transactional(txn_id, ranges)\n",
        new="",
        mistake="Two transactions may acknowledge the same message (rule i).",
    ),
)
