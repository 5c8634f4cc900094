"""Mistakes in the broker's sends, transactions and order."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PARTITION = "broker/magnetar_broker/topics/partition.py"
_ORDER = "broker/magnetar_broker/transactions/order.py"
_INDEX = "broker/magnetar_broker/transactions/transaction_index.py"
_ROWS = "broker/magnetar_broker/transactions/index_rows.py"
_SENDS = "broker/magnetar_broker/commands/send_commands.py"
_PRODUCERS = "broker/magnetar_broker/transactions/producers.py"
_TOGETHER = "broker/magnetar_broker/coordinators/ends_together.py"
_COMMANDS = "broker/magnetar_broker/coordinators/transaction_commands.py"

MUTANTS = (
    Mutant(
        name="anybody-speaks-for-a-coordinator",
        file=_COMMANDS,
        old="        self._admit_store(command.tcid, command.incarnation, command.store_token)\n",
        new="",
        mistake="A watermark is believed, whoever sends it: a single one ends all transactions.",
    ),
    Mutant(
        name="what-waits-outlives-its-connection",
        file="broker/magnetar_broker/coordinators/unannounced.py",
        old="            if not session.closed:\n",
        new="            if True:\n",
        mistake="A command that waited for its TxnID is applied when its client is gone.",
    ),
    # Sends
    Mutant(
        name="ends-together-do-not-wait",
        file=_TOGETHER,
        old="        self._unanswered = len(partitions) + 1",
        new="        self._unanswered = 1",
        mistake="Subscriptions end a commit when the first partition has, and not the last one.",
    ),
    Mutant(
        name="ends-together-out-of-order",
        file=_TOGETHER,
        old="            if waits and end.outcome is Outcome.COMMITTED:",
        new="            if waits and end.outcome is Outcome.ABORTED:",
        mistake="What was consumed for messages that are lost counts as consumed.",
    ),
    Mutant(
        name="ends-together-hide-errors-of-subscriptions",
        file=_TOGETHER,
        old="            self.unfinished[name] = refusal_of(error)",
        new="            refusal_of(error)",
        mistake="A subscription that refuses an end counts as ended.",
    ),
    Mutant(
        name="transactional-send-unsynced",
        file=_SENDS,
        old="        is_late = not transactional and not follows\n",
        new="        is_late = not follows\n",
        mistake="With durability os, a decided commit may lack messages after a loss of power.",
    ),
    Mutant(
        name="following-send-unsynced",
        file=_SENDS,
        old="        is_late = not transactional and not follows\n",
        new="        is_late = not transactional\n",
        mistake="With durability os, a producer forgets what it follows before that is durable.",
    ),
    Mutant(
        name="gap-accepted",
        file=_PRODUCERS,
        old="    if sequence_id > next_expected:\n",
        new="    if sequence_id > next_expected + count:\n",
        mistake="A batch of the size of the gap is taken for the one that was missing.",
    ),
    Mutant(
        name="unknown-producer-starts-anywhere",
        file=_PRODUCERS,
        old="expected = producer.next_sequence_id if producer is not None else 0",
        new="expected = producer.next_sequence_id if producer is not None else sequence_id",
        mistake="An unknown producer may begin with any sequence (rule l).",
    ),
    Mutant(
        name="repeat-is-not-a-repeat",
        file=_PRODUCERS,
        old="    if sequence_id + count <= next_expected:\n        return True",
        new="    if sequence_id + count < next_expected:\n        return True",
        mistake="The newest batch sent again is refused, since the bound is off by one.",
    ),
    Mutant(
        name="repeats-forgotten-with-restart",
        file=_PARTITION,
        old="                next_sequence_id=producer.next_sequence_id,\n",
        new="                next_sequence_id=sequence_id,\n",
        mistake="The row keeps the newest batch's sequence, not the one that is expected next.",
    ),
    Mutant(
        name="active-producer-idle",
        file=_PRODUCERS,
        old="        producer.last_run_time_ms = run_time_ms\n",
        new="        producer.last_run_time_ms = producer.last_run_time_ms or run_time_ms\n",
        mistake="A producer's age counts from its first batch: an active one is forgotten as idle.",
    ),
    Mutant(
        name="disk-reserve-after-append",
        file=_PARTITION,
        old=(
            "        self._environment.disk_reserve.check()\n"
            "        now_ms = self._environment.clock.wall_ms()\n"
            "        append_time_ms ="
        ),
        new="        now_ms = self._environment.clock.wall_ms()\n        append_time_ms =",
        mistake="Plain sends may use the disk's reserve up, which is meant for ends.",
    ),
    Mutant(
        name="reply-to-send-before-durable",
        file=_SENDS,
        old="        self._environment.when_durable(leave)",
        new="        leave()",
        mistake="A send is answered when it is applied, before it is durable (rule a).",
    ),
    Mutant(
        name="plain-send-not-parked",
        file=_SENDS,
        old="partition.order.unsettled_of(follows)",
        new="[TxnID(*one) for one in follows if one in partition.order.passing]",
        mistake="A plain send overtakes the open transaction that it comes after (rule k).",
    ),
    Mutant(
        name="parts-outside-transaction",
        file=_SENDS,
        old="        elif header.part:\n",
        new="        elif header.part and command.sequence_id:\n",
        mistake="A producer's first plain batch may be a part of a message.",
    ),
    # Ends
    Mutant(
        name="first-writer-order-only",
        file=_ORDER,
        old="        for one in plan.writers:\n            for followed in",
        new="        for one in plan.writers[:1]:\n            for followed in",
        mistake="Rule k looks at the first writer of a transaction only.",
    ),
    Mutant(
        name="order-ignores-passing",
        file=_ORDER,
        old="        return [one for one in txn_ids if one in opened or one in passing]",
        new="        return [one for one in txn_ids if one in opened]",
        mistake="What an aborted transaction followed is not inherited by those who follow it.",
    ),
    Mutant(
        name="followers-ignore-passing",
        file=_ORDER,
        old=" and passing.keys().isdisjoint(named):",
        new=":",
        mistake="A send that names only transactions that pass on follows nobody.",
    ),
    Mutant(
        name="any-settled-settles-all",
        file=_SENDS,
        old="[one for one in follows if one not in others]",
        new="follows",
        mistake="A send that names several is told that all of them are settled.",
    ),
    Mutant(
        name="one-settled-settles-all",
        file=_SENDS,
        old="            if not unsettled:\n",
        new="            if len(unsettled) < len(follows):\n",
        mistake="A send of which one that it follows is settled is told that all are.",
    ),
    Mutant(
        name="abort-inherits-nothing",
        file=_ORDER,
        old=("        unsettled = tuple(self.unsettled(followed))\n        if"),
        new="        unsettled: tuple[TxnID, ...] = ()\n        if",
        mistake="An end releases all who wait, although what it followed is still open (rule k).",
    ),
    Mutant(
        name="passing-not-restored",
        file=_ORDER,
        old="            if ended.follows:\n                self._passing[txn_id] = {}",
        new="            if len(ended.follows) > 1:\n                self._passing[txn_id] = {}",
        mistake="After a restart only those are restored that follow several transactions.",
    ),
    Mutant(
        name="passing-not-stored",
        file=_ROWS,
        old="    name(row.follows_txn_ids, ended.follows)\n",
        new="",
        mistake="What an ended transaction passes on is kept in memory only.",
    ),
    Mutant(
        name="follows-not-stored",
        file=_ROWS,
        old="    name(row.follows_txn_ids, writer.follows)\n",
        new="",
        mistake="Whom a writer follows is forgotten by a restart.",
    ),
    Mutant(
        name="others-followed-not-stored",
        file=_ROWS,
        old="    name(row.follows_txn_ids, writer.follows)\n",
        new="    name(row.follows_txn_ids, writer.follows[:1])\n",
        mistake="Of several that a writer follows, a restart forgets all but the first.",
    ),
    Mutant(
        name="one-parked-call-lost",
        file=_ORDER,
        old="            self._ready += self._parked.pop(one, ())",
        new="            self._ready += self._parked.pop(one, ())[:2]",
        mistake="Of many who wait for one transaction, the third and later ones wait for ever.",
    ),
    Mutant(
        name="parked-order-reversed",
        file=_ORDER,
        old="                self._ready.popleft()()",
        new="                self._ready.pop()()",
        mistake="Who waited longest goes on last: plain sends swap their places.",
    ),
    Mutant(
        name="cycle-of-followers",
        file=_ORDER,
        old="        if self._wait_for(follows, txn_id):",
        new="        if set(follows) & set(self._followed_by(txn_id)):",
        mistake="Two transactions may follow each other, by way of a third one.",
    ),
    Mutant(
        name="ended-transaction-takes-sends",
        file=_INDEX,
        old="        if txn_id in self.ended or self._covers(txn_id):",
        new="        if txn_id in self.ended:",
        mistake="A TxnID that the watermark covers accepts sends again (rule c).",
    ),
    Mutant(
        name="covered-only",
        file=_INDEX,
        old="        if txn_id in self.ended or self._covers(txn_id):",
        new="        if self._covers(txn_id):",
        mistake="Until the watermark covers it, an ended transaction accepts late sends.",
    ),
    Mutant(
        name="superseded-incarnation-accepted",
        file=_INDEX,
        old="        if self._is_superseded(txn_id):",
        new="        if self._is_superseded(txn_id) and txn_id not in self.open:",
        mistake="A transaction of a replaced coordinator's store goes on growing (rule n).",
    ),
    Mutant(
        name="covered-end-writes-again",
        file=_INDEX,
        old="        if transaction is None and self._covers(end.txn_id):",
        new="        if transaction is None and not end.counts and self._covers(end.txn_id):",
        mistake="An end of what is covered is carried out again when it carries counts (rule c).",
    ),
    Mutant(
        name="surplus-kept",
        file=_INDEX,
        old="    return min(end.counts.get(writer.writer_id, 0), writer.next_index)",
        new="    return writer.next_index",
        mistake="A commit keeps also what the client had not counted (rule g).",
    ),
    Mutant(
        name="counted-discarded",
        file=_INDEX,
        old="    return min(end.counts.get(writer.writer_id, 0), writer.next_index)",
        new="    return writer.next_index - end.counts.get(writer.writer_id, 0)",
        mistake="A commit keeps the surplus, and discards what was counted.",
    ),
    Mutant(
        name="uncounted-writer-kept",
        file=_INDEX,
        old="    return min(end.counts.get(writer.writer_id, 0), writer.next_index)",
        new=(
            "    return min(end.counts.get(writer.writer_id, writer.next_index), writer.next_index)"
        ),
        mistake="A writer that the counts leave out counts whole.",
    ),
    Mutant(
        name="incomplete-commits",
        file=_INDEX,
        old="            if present < confirmed:",
        new="            if not present and confirmed:",
        mistake="A commit goes through when part of what was confirmed is missing (rule g).",
    ),
    Mutant(
        name="selection-ignored",
        file=_INDEX,
        old=(
            "    if end.selection is not None and writer.writer_id not in end.selection:\n"
            "        return 0\n"
            "    if end.counts"
        ),
        new="    if end.counts",
        mistake="What the writers outside of the selection wrote counts, too.",
    ),
    Mutant(
        name="opposite-end-succeeds",
        file=_INDEX,
        old="            if ended.outcome is not end.outcome or not same_selection:",
        new="            if not same_selection:",
        mistake="A repeated end succeeds whatever it asks for (rule e).",
    ),
    Mutant(
        name="empty-end-not-recorded",
        file=_INDEX,
        old="            self._on_closed(end.txn_id)\n        if end.is_dropped:",
        new=(
            "            self._on_closed(end.txn_id)\n"
            "        else:\n"
            "            return\n"
            "        if end.is_dropped:"
        ),
        mistake="An end of what never wrote here leaves no record: a late send is accepted.",
    ),
    Mutant(
        name="forgets-who-passes-on",
        file=_INDEX,
        old="if self._covers(one) and one not in but]",
        new="if self._covers(one)]",
        mistake="The index forgets a covered transaction that passes on what it followed.",
    ),
    Mutant(
        name="marker-of-nothing",
        file=_PARTITION,
        old="        marker = self._marker(end, plan) if plan.total else None",
        new="        marker = self._marker(end, plan) if plan.writers else None",
        mistake="A commit of which nothing counts writes a marker (rule h).",
    ),
    Mutant(
        name="surplus-not-deleted",
        file=_PARTITION,
        old="end.txn_id, one.writer, from_index=one.kept)",
        new="end.txn_id, one.writer, from_index=one.kept + 1)",
        mistake="The first surplus message stays in the sidecar txnlog.",
    ),
    Mutant(
        name="aborted-messages-stay",
        file=_PARTITION,
        old="end.txn_id, one.writer, from_index=one.kept)",
        new="end.txn_id, one.writer, from_index=one.kept or 1)",
        mistake="An abort leaves the first batch of each writer in the store.",
    ),
    Mutant(
        name="kept-writers-misplaced",
        file=_PARTITION,
        old="        kept = [one for one in plan.writers if one.kept]\n",
        new=(
            "        kept = sorted(\n"
            "            (one for one in plan.writers if one.kept),\n"
            "            key=lambda one: one.writer.writer_id,\n"
            "        )\n"
        ),
        mistake="A marker lists its writers by id, and not in the order of their first messages.",
    ),
    Mutant(
        name="end-does-not-run-the-parked",
        file=_PARTITION,
        old="        asked.done()\n        self.order.run()",
        new=(
            "        asked.done()\n"
            "        if plan.transaction is not None:\n"
            "            self.order.run()"
        ),
        mistake="Those who wait go on only after an end that had something to end here.",
    ),
    Mutant(
        name="open-transaction-deleted",
        file=_PARTITION,
        old="        if self.index.open:\n            raise ResourceInUse(",
        new=(
            "        if self.index.open and len(self.subscriptions._existing):\n"
            "            raise ResourceInUse("
        ),
        mistake="A topic without subscriptions is deleted under open transactions (rule j).",
    ),
    Mutant(
        name="described-by-the-last-end",
        file=_COMMANDS,
        old="                        txn_id not in found or end.outcome is Outcome.COMMITTED",
        new="                        txn_id not in found or end.outcome is not None",
        mistake="A coordinator hears of an abort where the transaction took no part (rule n).",
    ),
)
