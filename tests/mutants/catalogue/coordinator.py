"""Mistakes in the coordinator."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, LeaveOut, Put, ReturnEarly, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "late-name-removal-removes",
        "magnetar_coordinator.commands.service:CoordinatorServer.__init__",
        Without("'remove_name'"),
        "A copy of a removal makes a name forget what was committed since.",
    ),
    Mutant(
        "decision-told-before-durable",
        "magnetar_coordinator.runtime:Runtime.answer",
        Put("self._send_all([(reply, body, told)])", "self.parking.gather(...)"),
        "The coordinator answers when it has decided, before that is durable (rule a).",
    ),
    Mutant(
        "half-applied-goes-on",
        "magnetar_coordinator.runtime:Runtime.carry_out",
        LeaveOut("self.fail(error)"),
        "After a command that failed half-way, memory is not what the rows say, and it goes on.",
    ),
    Mutant(
        "memory-without-rows",
        "magnetar_coordinator.runtime:Runtime.carry_out",
        Put("self.shard.apply(record)", "self.fail(error)"),
        "A command that fails changes memory all the same, and no disk ever hears of that.",
    ),
    Mutant(
        "run-of-answers-before-durable",
        "magnetar_coordinator.parking:Parking.together",
        Put("run.leave()", "self._commits.when_durable(...)"),
        "What a run parks leaves when its last command is handled (rule a).",
    ),
    Mutant(
        "markers-before-decision-durable",
        "magnetar_coordinator.runtime:Runtime.carry_out",
        Put("self._finish([transaction])", "self.parking.gather(...)"),
        "Participants hear of a decision that a crash may undo.",
    ),
    Mutant(
        "txn-id-told-before-durable",
        "magnetar_coordinator.runtime:Runtime.answer_opened",
        Put("self._tell([(reply, body)])", "self.parking.gather(...)"),
        "A TxnID is told before it is stored, and issued again after a crash.",
    ),
    Mutant(
        "aborting-not-resumed",
        "magnetar_coordinator.upkeep:Upkeep.resume",
        Without("TxnStatus.ABORTING"),
        "After a restart, aborts that were under way are not carried on.",
    ),
    Mutant(
        "run-time-from-zero",
        "magnetar_coordinator.coordinator:Coordinator._recover",
        Put("transaction.start_run_time_ms", "max(...)"),
        "A restart sets run time back to that of the last open transaction.",
    ),
    Mutant(
        "counts-forgotten",
        "magnetar_coordinator.transactions.transaction_table:TransactionTable._apply_change",
        LeaveOut("transaction.counts = ..."),
        "What the client had confirmed is not passed on to participants.",
    ),
    Mutant(
        "expiry-of-committing",
        "magnetar_coordinator.transactions.transaction_table:TransactionTable._apply_change",
        Put("transaction.expires and record.new is TxnStatus.ABORTING", "transaction.expires"),
        "A transaction whose commit is decided stays in the queue of what expires.",
    ),
    Mutant(
        "never-expires-is-at-once",
        "magnetar_coordinator.metadata.transaction:Transaction.expires",
        Compare("self.timeout_ms > 0", ">="),
        "A transaction of two-phase commit expires at once.",
    ),
    Mutant(
        "subscriptions-hear-first",
        "magnetar_coordinator.ending.finisher:Finisher.finish",
        Put("99", "1"),
        "Subscriptions hear of a commit while its messages are not in place yet.",
    ),
    Mutant(
        "ends-not-sent-on-new-link",
        "magnetar_coordinator.ending.end_command_sender:EndCommandSender.link_is_up",
        LeaveOut("self._send(...)"),
        "When a broken link comes back, ends wait for their deadline.",
    ),
    Mutant(
        "counter-not-stored",
        "magnetar_coordinator.metadata_store:TransactionMetadataStore.reserve",
        LeaveOut("self._commits.batch.put(META, META_COUNTER, ...)"),
        "A coordinator does not store its counter: it begins again after a restart (invariant 8).",
    ),
    Mutant(
        "past-commit-aborted",
        "magnetar_coordinator.transactions.shard:Shard.end",
        LeaveOut("self._check_past_commit(...)"),
        "What was committed before a loss, with a selection, may be aborted (rule n).",
    ),
    Mutant(
        "lost-transactions-from-the-front",
        "magnetar_coordinator.metadata.lost_transactions:after_start",
        Put("(0, counter_bound)", "(next_unopened, counter_bound)"),
        "What was committed and forgotten is said to be aborted (invariant 7).",
    ),
    Mutant(
        "abort-forgets-sequence",
        "magnetar_coordinator.metadata.named_sequences:fixed",
        Put("NamedSequenceState(name.name)", "replace(...)"),
        "An abort forgets the name's committed sequence.",
    ),
    Mutant(
        "anybody-adds-to-owned",
        "magnetar_coordinator.commands.transactional_id_commands:TransactionalIdCommands.check_txn_owner",
        LeaveOut("rules.require_current(...)"),
        "A fenced instance may add participants to its successor's transaction.",
    ),
    Mutant(
        "earlier-ends-not-noted",
        "magnetar_coordinator.ending.finisher:Finisher.ended",
        LeaveOut("earlier.append(...)"),
        "A history shows all participants as if they had ended with the last one.",
    ),
    Mutant(
        "large-ones-kept-as-small",
        "magnetar_coordinator.transactions.ended_details:EndedDetails.add",
        Put("False", "len(transaction.participants) > FEW_PARTICIPANTS"),
        "Ten thousand large transactions that have ended fill the memory.",
    ),
    Mutant(
        "kept-transaction-grows",
        "magnetar_coordinator.commands.transactional_id_commands:TransactionalIdCommands.check_txn_owner",
        Put("identity.is_kept and (not identity.two_phase_commit)", "identity.is_kept"),
        "What is prepared takes new participants.",
    ),
    Mutant(
        "takeover-keeps-pair",
        "magnetar_coordinator.metadata.transactional_id:take_over",
        Put("identity.current", "epochs.raised(...)"),
        "A takeover does not raise the epoch: the zombie goes on writing.",
    ),
    Mutant(
        "keep-uses-current-pair",
        "magnetar_coordinator.metadata.transactional_id:keep",
        Put("identity.producer", "epochs.raised(...)"),
        "Who keeps a prepared transaction gets the pair that its predecessor has.",
    ),
    Mutant(
        "commit-keeps-epoch",
        "magnetar_coordinator.metadata.transactional_id:fix",
        Put("latest", "epochs.raised(...)"),
        "An end does not raise the epoch: a late end counts for the next transaction.",
    ),
    Mutant(
        "stamp-at-its-bound",
        "magnetar_core.cuts.hybrid_clock:bound_above",
        Compare("stamp < bound", "<="),
        "The bound itself is given as a stamp, and once more after a restart.",
    ),
    Mutant(
        "closing-told-before-durable",
        "magnetar_coordinator.commands.cut_commands:CutCommands._answer",
        Put("reply.send(response)", "runtime.answer(...)"),
        "A closing is told, and a crash opens the past again.",
    ),
    Mutant(
        "committed-name-not-stored",
        "magnetar_coordinator.metadata_store:TransactionMetadataStore.put_name",
        ReturnEarly(when="name.open is None"),
        "A commit notes its sequence in memory only.",
    ),
    Mutant(
        "identity-not-stored",
        "magnetar_coordinator.metadata_store:TransactionMetadataStore.put_identity",
        ReturnEarly(when="identity.state.name == 'ONGOING'"),
        "A crash forgets who has begun a transaction.",
    ),
    Mutant(
        "copies-take-over",
        "magnetar_coordinator.metadata.transactional_id:is_repeated_init",
        ReturnEarly("False"),
        "A late copy of InitProducer takes the id over from the instance that sent it (rule o).",
    ),
    Mutant(
        "a-termination-ends-the-next",
        "magnetar_coordinator.metadata.transactional_id:require_open",
        ReturnEarly(),
        "A forced termination ends the transaction that the program has begun since.",
    ),
    Mutant(
        "cut-awaits-nothing",
        "magnetar_coordinator.transactions.transaction_table:TransactionTable.unfinished_up_to",
        ReturnEarly("[]"),
        "Cuts do not wait for commits that are decided and not finished.",
    ),
    Mutant(
        "stamps-without-a-bound",
        "magnetar_coordinator.metadata_store:TransactionMetadataStore.reserve_stamps",
        ReturnEarly(),
        "No bound of the stamps is stored: a restart gives earlier ones again.",
    ),
)
