"""Mistakes in stamps of commits, and in consistent cuts."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CLOCK = "core/magnetar_core/cuts/hybrid_clock.py"
_CUTS = "core/magnetar_core/cuts/cuts.py"
_STORE = "coordinator/magnetar_coordinator/metadata_store.py"
_SHARD = "coordinator/magnetar_coordinator/transactions/shard.py"
_TABLE = "coordinator/magnetar_coordinator/transactions/transaction_table.py"
_RUNTIME = "coordinator/magnetar_coordinator/runtime.py"
_CLOSING = "coordinator/magnetar_coordinator/commands/cut_commands.py"
_PARTITION = "broker/magnetar_broker/topics/partition.py"
_LOG = "broker/magnetar_broker/log/partition_log.py"
_ENTRIES = "broker/magnetar_broker/log/entries.py"
_INDEX_ROWS = "broker/magnetar_broker/transactions/index_rows.py"
_TAKING = "client/magnetar/cuts/taking.py"
_READER = "client/magnetar/messaging/reader.py"
_ENDS = "client/magnetar/transactions/end_requests.py"
_TRANSACTION = "client/magnetar/transactions/transaction_work.py"
_RECEIVER = "client/magnetar/messaging/partition_receiver.py"
_BLOCKING = "client/magnetar/blocking/client.py"

MUTANTS = (
    Mutant(
        name="stamp-at-its-bound",
        file=_CLOCK,
        old="    return bound if stamp < bound else stamp + BOUND_AHEAD",
        new="    return bound if stamp <= bound else stamp + BOUND_AHEAD",
        mistake="The bound itself is given as a stamp, and once more after a restart.",
    ),
    Mutant(
        name="clock-follows-the-wall",
        file=_CLOCK,
        old="        return max(self.last + 1, stamp_at(time_ms))",
        new="        return stamp_at(time_ms)",
        mistake="Stamps are times: two commits of a millisecond are one, and clocks go back.",
    ),
    Mutant(
        name="stamps-of-strangers-believed",
        file=_CLOCK,
        old="(min(ahead_ms_max, AHEAD_MS_MAX) << COUNTER_BITS)",
        new="(min(ahead_ms_max, AHEAD_MS_MAX) << 2 * COUNTER_BITS)",
        mistake="One message sets the clock of a coordinator ahead by centuries.",
    ),
    Mutant(
        name="later-cut-begins-at-the-end",
        file=_CUTS,
        old="        before.begun_offset,",
        new="        before.end_offset,",
        mistake="What the earlier cut has left out below its end is in no later one.",
    ),
    Mutant(
        name="stamp-bound-not-stored",
        file=_STORE,
        old="        self.reserve_stamps(record.stamp)\n",
        new="",
        mistake="After a restart with a wall clock that was set back, stamps are given again.",
    ),
    Mutant(
        name="decided-again-with-another-stamp",
        file=_SHARD,
        old="        return self.clock.next(time_ms) if past is None else past",
        new="        return self.clock.next(time_ms)",
        mistake="After a loss, the markers of a commit differ, and a cut between them tears it.",
    ),
    Mutant(
        name="what-a-client-has-seen-is-not-kept",
        file=_RUNTIME,
        old="            self.metadata.reserve_stamps(clock.last)\n",
        new="",
        mistake="A restart forgets what clients have seen, and stamps an effect below its cause.",
    ),
    Mutant(
        name="closing-wakes-nobody",
        file=_RUNTIME,
        old="        if txn_id in self._waiting or txn_id in self._ending or self.cut_closings:",
        new="        if txn_id in self._waiting or txn_id in self._ending:",
        mistake="A cut waits for the next group of others, though all commits are finished.",
    ),
    Mutant(
        name="past-is-not-closed",
        file=_CLOSING,
        old="        runtime.hear(request.stamp)\n",
        new="",
        mistake="Commits after a closing get stamps below it.",
    ),
    Mutant(
        name="closing-told-before-durable",
        file=_CLOSING,
        old="        runtime.answer(reply, response)",
        new="        reply.send(response)",
        mistake="A closing is told, and a crash opens the past again.",
    ),
    Mutant(
        name="past-commits-are-not-awaited",
        file=_TABLE,
        old=(
            "        stamps += [(past, txn_id) for txn_id, past in self.past_stamps.items()"
            " if past <= stamp]\n"
        ),
        new="",
        mistake="A commit of which a loss has taken the selection is torn in cuts.",
    ),
    Mutant(
        name="highest-stamp-not-stored",
        file=_PARTITION,
        old="            highest_stamp=self.log.highest_stamp,\n",
        new="",
        mistake="Brokers forget stamps, and a coordinator that lost its disk hides commits.",
    ),
    Mutant(
        name="highest-stamp-is-the-last",
        file=_LOG,
        old="            self.highest_stamp = max(self.highest_stamp, entry.stamp)",
        new="            self.highest_stamp = entry.stamp",
        mistake="Markers of several coordinators come in another order than their stamps.",
    ),
    Mutant(
        name="stamp-lost-in-the-log",
        file=_ENTRIES,
        old="                stamp=marker.stamp,\n",
        new="",
        mistake="Markers that are read from the store belong to every cut.",
    ),
    Mutant(
        name="stamp-lost-in-the-index",
        file=_INDEX_ROWS,
        old="            row.stamp,\n",
        new="",
        mistake="A restarted broker cannot tell a coordinator with which stamp it had committed.",
    ),
    Mutant(
        name="cut-ends-where-it-began",
        file=_TAKING,
        old="        ends = await self._offsets()",
        new="        ends = begun",
        mistake="The ends are looked at once: markers that come while the past closes are missing.",
    ),
    Mutant(
        name="cut-does-not-wait",
        file=_TAKING,
        old="            if not answer.unfinished:",
        new="            if answer.unfinished or not answer.unfinished:",
        mistake="A cut is taken although commits of its past are not finished.",
    ),
    Mutant(
        name="cut-trusts-clocks-alone",
        file=_TAKING,
        old="            *(one.highest_stamp for _, some in begun.values() for one in some),\n",
        new="",
        mistake="Below the ends lie stamps of a coordinator's former life, above the cut's own.",
    ),
    Mutant(
        name="cut-overlooks-a-lost-store",
        file=_TAKING,
        old="        if _incarnations(clocks) != _incarnations(again):",
        new="        if clocks.keys() != again.keys():",
        mistake="A coordinator that was closed has lost that, and nobody notices.",
    ),
    Mutant(
        name="cut-overlooks-a-restored-partition",
        file=_TAKING,
        old="            if topic_id != end_id or _ledgers(before) != _ledgers(after):",
        new="            if topic_id != end_id:",
        mistake="Markers that were finished have gone with a broker's disk meanwhile.",
    ),
    Mutant(
        name="cut-overlooks-a-coordinator-that-joins",
        file=_TAKING,
        old="        if not self._runtime.has_latest_members:",
        new="        if not self._runtime.members_version:",
        mistake="A broker that knows an earlier list names the coordinators: one is not asked.",
    ),
    Mutant(
        name="cut-read-beyond-the-end",
        file=_READER,
        old="        if reply.end_offset < cut.end:",
        new="        if reply.end_offset < cut.start:",
        mistake="A cut of another cluster, or one that lost messages, is read as far as it goes.",
    ),
    Mutant(
        name="blocking-reads-forget-the-cut",
        file=_BLOCKING,
        old=" end, follow_period_s=follow_period_s, at=at, since=since\n",
        new=" end, follow_period_s=follow_period_s\n",
        mistake="Programs without asyncio read the whole partition, and see torn transactions.",
    ),
    Mutant(
        name="cut-read-in-another-ledger",
        file=_READER,
        old="        if reply.ledger_id != cut.ledger_id:",
        new="        if reply.ledger_id < cut.ledger_id:",
        mistake="Offsets of a restored partition mean other messages than those of the cut.",
    ),
    Mutant(
        name="seen-told-at-the-beginning-only",
        file=_ENDS,
        old="        command.seen_stamp = self._runtime.seen_stamp\n",
        new="",
        mistake="What is read while a transaction is open counts as later than it.",
    ),
    Mutant(
        name="prepared-without-telling",
        file=_TRANSACTION,
        old="            await self._tell_seen()\n",
        new="",
        mistake="Whoever completes a prepared transaction has not seen what it was made of.",
    ),
    Mutant(
        name="delivered-stamps-not-seen",
        file=_RECEIVER,
        old="                self._runtime.saw(batch.stamp)",
        new="                pass",
        mistake="What consumers get is no cause of what they commit.",
    ),
)
