"""Mistakes in the coordinator's transactions, ends, expiry and watermark."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COORDINATOR = "coordinator/magnetar_coordinator/coordinator.py"
_SHARD = "coordinator/magnetar_coordinator/transactions/shard.py"
_TRANSACTION = "coordinator/magnetar_coordinator/metadata/transaction.py"
_FINISHER = "coordinator/magnetar_coordinator/ending/finisher.py"
_ENDS = "coordinator/magnetar_coordinator/ending/end_command_sender.py"
_PEER = "coordinator/magnetar_coordinator/ending/broker_peer.py"
_RUNTIME = "coordinator/magnetar_coordinator/runtime.py"
_UPKEEP = "coordinator/magnetar_coordinator/upkeep.py"
_TABLE = "coordinator/magnetar_coordinator/transactions/transaction_table.py"
_DECISION = "coordinator/magnetar_coordinator/transactions/decision.py"
_EXPIRY = "coordinator/magnetar_coordinator/transactions/expiry.py"
_WATERMARK = "coordinator/magnetar_coordinator/transactions/watermark.py"
_STORE = "coordinator/magnetar_coordinator/metadata_store.py"
_HELD = "coordinator/magnetar_coordinator/transactions/orphans.py"
_DIRECTORY = "coordinator/magnetar_coordinator/ending/directory.py"
_BROKERS = "coordinator/magnetar_coordinator/ending/brokers.py"
_COMMANDS = "coordinator/magnetar_coordinator/commands/transaction_commands.py"
_LOST = "coordinator/magnetar_coordinator/metadata/lost_transactions.py"
_PAST_ENDS = "coordinator/magnetar_coordinator/ending/past_ends.py"

MUTANTS = (
    Mutant(
        name="decision-told-before-durable",
        file=_RUNTIME,
        old="        self.when_durable(partial(reply.send, body))",
        new="        reply.send(body)",
        mistake="The coordinator answers when it has decided, before that is durable (rule a).",
    ),
    Mutant(
        name="markers-before-decision-durable",
        file=_RUNTIME,
        old="self.when_durable(partial(self.finisher.finish, transaction, self.on_finished))",
        new="self.finisher.finish(transaction, self.on_finished)",
        mistake="Participants hear of a decision that a crash may undo.",
    ),
    Mutant(
        name="txn-id-told-before-durable",
        file=_RUNTIME,
        old="        self.when_durable(partial(self._tell, reply, body))",
        new="        self._tell(reply, body)",
        mistake="A TxnID is told before it is stored, and issued again after a crash.",
    ),
    Mutant(
        name="aborting-not-resumed",
        file=_UPKEEP,
        old="        ending = frozenset({TxnStatus.COMMITTING, TxnStatus.ABORTING})",
        new="        ending = frozenset({TxnStatus.COMMITTING})",
        mistake="After a restart, aborts that were under way are not carried on.",
    ),
    Mutant(
        name="waiting-not-answered",
        file=_RUNTIME,
        old="        waiting.append(reply)\n",
        new="        waiting[:] = [reply]\n",
        mistake="Of two who wait for the end of a transaction, the last one is answered only.",
    ),
    Mutant(
        name="run-time-from-zero",
        file=_COORDINATOR,
        old="                run_time_ms = max(run_time_ms, transaction.start_run_time_ms)",
        new="                run_time_ms = transaction.start_run_time_ms",
        mistake="A restart sets run time back to that of the last open transaction.",
    ),
    Mutant(
        name="expelled-commit-aborted",
        file=_UPKEEP,
        old=(
            "            if transaction is None or transaction.status is not TxnStatus.OPEN:\n"
            "                continue\n"
            "            if transaction.expires and"
        ),
        new=(
            "            if transaction is None or transaction.status is not TxnStatus.OPEN:\n"
            "                continue\n"
            "            if True and"
        ),
        mistake="A prepared transaction is aborted because a member left its group.",
    ),
    Mutant(
        name="orphan-of-the-future",
        file=_HELD,
        old="        return OrphanVerdict.END if shard.is_issued(txn_id) else OrphanVerdict.WAIT",
        new="        return OrphanVerdict.END",
        mistake="What was never issued is aborted at brokers, and poisons its later owner.",
    ),
    Mutant(
        name="orphan-before-durable",
        file=_HELD,
        old=(
            "    return OrphanVerdict.WAIT if transaction.status is TxnStatus.OPEN else "
            "OrphanVerdict.END"
        ),
        new="    return OrphanVerdict.END",
        mistake="An open transaction is aborted where its participant is not added yet.",
    ),
    Mutant(
        name="outcome-not-durable-in-watermark",
        file=_RUNTIME,
        old=(
            "        self.when_durable(\n"
            "            partial(self._on_outcome_durable, txn_id, decision.status,"
            " decision.stamp)\n"
            "        )"
        ),
        new="        self._on_outcome_durable(txn_id, decision.status, decision.stamp)",
        mistake="The watermark passes transactions whose outcome is not durable.",
    ),
    Mutant(
        name="counts-forgotten",
        file=_TABLE,
        old="            transaction.counts = record.counts\n",
        new="",
        mistake="What the client had confirmed is not passed on to participants.",
    ),
    Mutant(
        name="selection-of-abort",
        file=_SHARD,
        old="        elif counts is not None:\n            _check_counts(found, counts)",
        new=(
            "        elif counts is not None and selection is not None:\n"
            "            _check_counts(found, counts)"
        ),
        mistake="Counts at what is no participant are accepted: what was confirmed there is lost.",
    ),
    Mutant(
        name="repeat-with-other-action",
        file=_DECISION,
        old="    if ACTION_OF[status] is not end.action:",
        new="    if ACTION_OF[status] is not end.action and end.action is TxnAction.COMMIT:",
        mistake="An abort of what is committed is answered with success.",
    ),
    Mutant(
        name="participants-added-late",
        file=_SHARD,
        old=(
            "        if isinstance(transaction, TxnEnded) or transaction.status is not "
            "TxnStatus.OPEN:"
        ),
        new="        if isinstance(transaction, TxnEnded):",
        mistake="A transaction that is being ended takes more participants.",
    ),
    Mutant(
        name="second-participant-dropped",
        file=_TABLE,
        old="            transaction.participants.update(dict.fromkeys(record.participants))",
        new="            transaction.participants.setdefault(record.participants[0])",
        mistake="Of several participants that are added together the first one is noted only.",
    ),
    Mutant(
        name="expiry-of-committing",
        file=_TABLE,
        old=(
            "            if transaction.expires:\n"
            "                self.expiry.remove(record.txn_id)\n"
            "            transaction.status"
        ),
        new=(
            "            if transaction.expires and record.new is TxnStatus.ABORTING:\n"
            "                self.expiry.remove(record.txn_id)\n"
            "            transaction.status"
        ),
        mistake="A transaction whose commit is decided stays in the queue of what expires.",
    ),
    Mutant(
        name="issued-off-by-one",
        file=_TABLE,
        old="            return txn_id.counter < self.next_counter",
        new="            return txn_id.counter <= self.next_counter",
        mistake="The next TxnID counts as issued, and as ended, before it is.",
    ),
    Mutant(
        name="recent-outcome-lost",
        file=_TABLE,
        old="        self._recent_durable.append(txn_id)\n",
        new="        self._recent.pop(txn_id, None)\n",
        mistake="An outcome leaves memory at once, and each repeat reads the store.",
        unseen_because=(
            "The store holds the outcome before memory loses it, and answers the same: a repeat"
            " takes a read more."
        ),
    ),
    Mutant(
        name="deadline-from-zero",
        file=_TRANSACTION,
        old="        return self.start_run_time_ms + self.timeout_ms",
        new="        return self.timeout_ms",
        mistake="Transactions expire by the age of the coordinator, not by their own.",
    ),
    Mutant(
        name="never-expires-is-at-once",
        file=_TRANSACTION,
        old="        return self.timeout_ms > 0",
        new="        return self.timeout_ms >= 0",
        mistake="A transaction of two-phase commit expires at once.",
    ),
    Mutant(
        name="expired-late-ones-first",
        file=_EXPIRY,
        old=(
            "            if self._deadlines.get(entry[1]) == entry[0]:\n"
            "                found.append(entry)"
        ),
        new=(
            "            if entry[1] in self._deadlines and not found:\n"
            "                found.append(entry)"
        ),
        mistake="Of several transactions that are due, one expires a check; the others are lost.",
    ),
    Mutant(
        name="half-of-heap-rebuilt",
        file=_EXPIRY,
        old=(
            "            self._heap = [(deadline, txn_id) for txn_id, deadline in "
            "self._deadlines.items()]"
        ),
        new="            self._heap = self._heap[: len(self._deadlines)]",
        mistake="When the heap is rebuilt, deadlines go missing.",
    ),
    Mutant(
        name="watermark-passes-oldest",
        file=_WATERMARK,
        old=(
            "                low_watermark = counter\n"
            "                break\n"
            "            if ranges and"
        ),
        new=(
            "                low_watermark = counter + 1\n"
            "                break\n"
            "            if ranges and"
        ),
        mistake="The watermark covers the oldest transaction that is still open.",
    ),
    Mutant(
        name="watermark-lists-too-little",
        file=_WATERMARK,
        old="            if ranges and ranges[-1][1] == counter - 1:",
        new="            if ranges and ranges[-1][1] >= counter - 2:",
        mistake="Two live ranges with one ended TxnID between them become one.",
        unseen_because=(
            "To list what has ended as live is always safe: brokers remember its end for longer,"
            " and answer the same."
        ),
    ),
    Mutant(
        name="subscriptions-hear-first",
        file=_FINISHER,
        old="if transaction.status is TxnStatus.COMMITTING and len(commands) > 1:",
        new="if transaction.status is TxnStatus.COMMITTING and len(commands) > 99:",
        mistake="Subscriptions hear of a commit while its messages are not in place yet.",
    ),
    Mutant(
        name="later-participants-forgotten",
        file=_FINISHER,
        old="        if finishing.later:\n            later, finishing.later = finishing.later, []",
        new=(
            "        if finishing.later:\n"
            "            later, finishing.later = finishing.later[:1], []"
        ),
        mistake="Of several subscriptions the first one hears of a commit only.",
    ),
    Mutant(
        name="ends-not-sent-on-new-link",
        file=_ENDS,
        old="            end.attempts = 0\n            self._send(end)\n",
        new="            end.attempts = 0\n",
        mistake="When a broken link comes back, ends wait for their deadline.",
    ),
    Mutant(
        name="error-is-an-answer",
        file=_ENDS,
        old="            if body.code in GONE_CODES and len",
        new="            if body.code not in _REFUSAL_CODES and len",
        mistake="Any passing error of a participant counts as its answer.",
    ),
    Mutant(
        name="unfinished-participants-count-as-ended",
        file=_ENDS,
        old="            if one is None:\n",
        new='            if one is None or one.HasField("error"):\n',
        mistake="Of several participants, those with an error count as ended.",
    ),
    Mutant(
        name="fewer-participants-under-the-same-number",
        file=_ENDS,
        old="        end.request_id = self._link.next_request_id()\n",
        new="",
        mistake="A late answer about several participants counts for those that are left.",
    ),
    Mutant(
        name="watermark-not-repeated",
        file=_PEER,
        old=("        if watermark is not None:\n            self.watermarks.tell(watermark)\n"),
        new="",
        mistake="A broker that restarts does not hear the watermark until it moves.",
    ),
    Mutant(
        name="counter-not-stored",
        file=_STORE,
        old="            self._commits.batch.put(META, META_COUNTER, u64(self.counter_bound))",
        new="            self._commits.batch.put(META, META_COUNTER, u64(next_counter))",
        mistake=(
            "The counter that is stored is the one issued now, and not the bound: it is "
            "issued again."
        ),
    ),
    Mutant(
        name="records-outlive-outcome",
        file=_STORE,
        old="            for sequence in range(record_count):",
        new="            for sequence in range(record_count - 1):",
        mistake="A transaction's last record stays in the log when its outcome takes its place.",
    ),
    Mutant(
        name="producer-number-again",
        file=_STORE,
        old="        self._commits.batch.put(META, META_PRODUCER_ID, u64(number + 1))",
        new="        self._commits.batch.put(META, META_PRODUCER_ID, u64(number))",
        mistake="After a restart a producer id is given out again.",
    ),
    Mutant(
        name="past-ends-not-carried-out",
        file=_COORDINATOR,
        old="        for txn_id, end in ends.items():",
        new="        for txn_id, end in list(ends.items())[1:]:",
        mistake="After a loss, a commit that a broker tells of is not gone on with (rule n).",
    ),
    Mutant(
        name="past-commit-aborted",
        file=_SHARD,
        old="        self._check_past_commit(end)\n",
        new="",
        mistake="What was committed before a loss, with a selection, may be aborted (rule n).",
    ),
    Mutant(
        name="ends-to-the-first-broker",
        file=_DIRECTORY,
        old="        return self._addresses[shard if shard < len(self._addresses) else 0]",
        new="        return self._addresses[0]",
        mistake="Each end goes to the first broker, as with a single one.",
    ),
    Mutant(
        name="moved-is-ended",
        file=_ENDS,
        old="GONE_CODES = frozenset({common.GONE,",
        new="GONE_CODES = frozenset({common.PARTITION_MOVED, common.GONE,",
        mistake="A broker that does not keep a partition is believed that nothing is open there.",
    ),
    Mutant(
        name="past-ends-of-the-first-broker",
        file=_COORDINATOR,
        old="for address in self.config.broker_addresses]",
        new="for address in self.config.broker_addresses[:1]]",
        mistake="After a loss, the first broker alone is asked how transactions ended (rule n).",
    ),
    Mutant(
        name="past-abort-before-commit",
        file=_PAST_ENDS,
        old="                    found.setdefault(txn_id, PastEnd(TxnAction.ABORT))",
        new="                    found[txn_id] = PastEnd(TxnAction.ABORT)",
        mistake="Of two brokers the last one is believed, also when the first one has committed.",
    ),
    Mutant(
        name="participants-without-a-place",
        file=_DIRECTORY,
        old="        if len(self._addresses) == 1:",
        new="        if self._addresses:",
        mistake="Names without a topic id are taken, and nobody knows which broker is meant.",
    ),
    Mutant(
        name="early-txn-id-beyond-the-bound",
        file=_BROKERS,
        old="            announce = partial(self._announce, next_counter, counter_bound, answers)",
        new=(
            "            announce = partial(self._announce, next_counter, counter_bound, [])\n"
            "            for answer in answers:\n"
            "                answer()"
        ),
        mistake="A client hears of a TxnID that would be issued again after a crash (invariant 8).",
    ),
    Mutant(
        name="early-answer-for-everybody",
        file=_COMMANDS,
        old="        hurried = not request.answer_before_durable",
        new="        hurried = False",
        mistake="Clients take participants for durable that a crash may take.",
    ),
    Mutant(
        name="lost-transactions-unnoticed",
        file=_STORE,
        old="        if lost != before:",
        new="        if lost is before:",
        mistake="After two starts, nobody knows any more that a lost transaction is aborted.",
    ),
    Mutant(
        name="lost-transactions-from-the-front",
        file=_LOST,
        old="    return [*earlier, (next_unopened, counter_bound)][-RANGES_MAX:]",
        new="    return [*earlier, (0, counter_bound)][-RANGES_MAX:]",
        mistake="What was committed and forgotten is said to be aborted (invariant 7).",
    ),
)
