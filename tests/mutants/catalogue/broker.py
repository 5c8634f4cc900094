"""Mistakes in the broker's sends, transactions, order and recovery."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, Insert, LeaveOut, Never, Put, ReturnEarly, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "anybody-speaks-for-a-coordinator",
        "magnetar_broker.coordinators.transaction_commands:TransactionCommands._admit",
        LeaveOut("self._admit_store(...)"),
        "A watermark is believed, whoever sends it: a single one ends all transactions.",
    ),
    Mutant(
        "ends-together-out-of-order",
        "magnetar_broker.coordinators.ends_together:EndsTogether._partition_answered",
        Put("Outcome.ABORTED", "Outcome.COMMITTED"),
        "What was consumed for messages that are lost counts as consumed.",
    ),
    Mutant(
        "transactional-send-unsynced",
        "magnetar_broker.commands.send_commands:SendCommands._send",
        Put("not follows", "txn_id is None and (not follows)"),
        "With durability os, a decided commit may lack messages after a loss of power.",
    ),
    Mutant(
        "part-counted-as-whole",
        "magnetar_broker.commands.participant_descriptions:ParticipantDescriptions._count",
        Put("False", "bool(more)"),
        "A history shows the first messages of a large transaction as all of them.",
    ),
    Mutant(
        "gap-accepted",
        "magnetar_broker.transactions.producers:check_sequence",
        Put("sequence_id > next_expected + count", "sequence_id > next_expected"),
        "A batch of the size of the gap is taken for the one that was missing.",
    ),
    Mutant(
        "unknown-producer-starts-anywhere",
        "magnetar_broker.transactions.producers:Producers.check",
        Put("sequence_id", "0"),
        "An unknown producer may begin with any sequence (rule l).",
    ),
    Mutant(
        "repeats-forgotten-with-restart",
        "magnetar_broker.topics.partition:Partition.write_deferred_rows",
        Put("sequence_id", "producer.next_sequence_id"),
        "The row keeps the newest batch's sequence, not the one that is expected next.",
    ),
    Mutant(
        "reply-to-send-before-durable",
        "magnetar_broker.replies:Answers.park",
        Put("self.durable.leave()", "self._environment.when_durable(...)"),
        "A send or an ack is answered when it is applied, before it is durable (rule a).",
    ),
    Mutant(
        "run-parked-at-its-weakest",
        "magnetar_broker.replies:Answers.park",
        Put(
            "self._environment.when_written(self.durable.leave)",
            "self._environment.when_durable(...)",
        ),
        "All answers of a run leave with those that need the least, before they are durable.",
    ),
    Mutant(
        "run-ends-with-its-first-error",
        "magnetar_broker.replies:Replies.together.handle_run",
        Insert("break", after="run.failed(...)"),
        "What stands in a frame behind a command that is refused is never answered.",
    ),
    Mutant(
        "first-writer-order-only",
        "magnetar_broker.transactions.order:Order.awaited",
        Put("tuple(writers)[:1]", "writers"),
        "Rule k looks at the first writer of a transaction only.",
    ),
    Mutant(
        "order-ignores-passing",
        "magnetar_broker.transactions.order:Order.unsettled",
        Without("one in passing"),
        "What an aborted transaction followed is not inherited by those who follow it.",
    ),
    Mutant(
        "passing-not-stored",
        "magnetar_broker.transactions.index_rows:put_ended",
        Insert("follows = ()", after="outcome, digest, follows, stamp = ended"),
        "What an ended transaction passes on is kept in memory only.",
    ),
    Mutant(
        "follows-not-stored",
        "magnetar_broker.transactions.index_rows:put_written",
        Put("()", "writer.follows"),
        "Whom a writer follows is forgotten by a restart.",
    ),
    Mutant(
        "cycle-of-followers",
        "magnetar_broker.transactions.order:Order.to_follow",
        Put("set(follows) & set(self._followed_by(txn_id))", "self._wait_for(...)"),
        "Two transactions may follow each other, by way of a third one.",
    ),
    Mutant(
        "ended-transaction-takes-sends",
        "magnetar_broker.transactions.transaction_index:TransactionIndex.check_write",
        Put("False", "self._covers(...)"),
        "A TxnID that the watermark covers accepts sends again (rule c).",
    ),
    Mutant(
        "superseded-incarnation-accepted",
        "magnetar_broker.transactions.transaction_index:TransactionIndex.check_write",
        Put("self._is_superseded(txn_id) and txn_id not in self.open", "self._is_superseded(...)"),
        "A transaction of a replaced coordinator's store goes on growing (rule n).",
    ),
    Mutant(
        "surplus-sends-kept",
        "magnetar_broker.transactions.transaction_index:_kept",
        Put("writer.next_index", "min(...)"),
        "A commit keeps also what the client had not counted (rule g).",
    ),
    Mutant(
        "counted-discarded",
        "magnetar_broker.transactions.transaction_index:_kept",
        Put("writer.next_index - end.counts.get(writer.writer_id, 0)", "min(...)"),
        "A commit keeps the surplus, and discards what was counted.",
    ),
    Mutant(
        "incomplete-commits",
        "magnetar_broker.transactions.transaction_index:_check_complete",
        Put("not present and confirmed", "present < confirmed"),
        "A commit goes through when part of what was confirmed is missing (rule g).",
    ),
    Mutant(
        "opposite-end-succeeds",
        "magnetar_broker.transactions.transaction_index:TransactionIndex._plan_without_writes",
        Without("ended.outcome is not end.outcome"),
        "A repeated end succeeds whatever it asks for (rule e).",
    ),
    Mutant(
        "marker-of-nothing",
        "magnetar_broker.topics.partition:Partition._marker",
        Never("not messages"),
        "A commit of which nothing counts writes a marker (rule h).",
    ),
    Mutant(
        "surplus-not-deleted",
        "magnetar_broker.topics.partition:Partition.end",
        Put(
            "self._delete_batches(rows, end.txn_id, writer, from_index=count + 1)",
            "self._delete_batches(...)",
        ),
        "The first surplus message stays in the sidecar txnlog.",
    ),
    Mutant(
        "watermark-covers-live",
        "magnetar_broker.transactions.watermark:Watermark.covers",
        Compare("self.live[at][1] < counter", "<="),
        "The last TxnID of a live range counts as ended.",
    ),
    Mutant(
        "old-watermark-taken",
        "magnetar_broker.transactions.watermark:Watermark.advanced",
        Put(
            "low_watermark < self.low_watermark and (not live)",
            "low_watermark < self.low_watermark",
        ),
        "A late copy of an older watermark uncovers what had ended.",
    ),
    Mutant(
        "end-answered-before-durable",
        "magnetar_broker.coordinators.transaction_commands:TransactionCommands._end_txn_on_partition.done",
        Put("leave()", "self._environment.when_durable(...)"),
        "A coordinator hears that a transaction has ended before that is durable.",
    ),
    Mutant(
        "watermark-not-stored",
        "magnetar_broker.coordinators.transaction_commands:TransactionCommands._store",
        LeaveOut("self._environment.commits.batch.put(keys.META, keys.watermark(...), ...)"),
        "A watermark is kept in memory only: a restart accepts what it covers (rule c).",
    ),
    Mutant(
        "deduplication-off-after-restart",
        "magnetar_broker.recovery:Recovery._read_producers",
        Put("keys.last_u64(key[:-8])", "keys.last_u64(...)"),
        "A restart restores producers under wrong ids.",
    ),
    Mutant(
        "dispatched-before-sync",
        "magnetar_broker.log.partition_log:PartitionLog.append",
        Insert("self.durable_end = self.end_offset", after="self.end_offset = ..."),
        "Readers see what is applied, and is not durable yet (rule a).",
    ),
    Mutant(
        "nothing-passed-on",
        "magnetar_broker.transactions.order:Order.ended",
        Put("()", "self._unsettled_of_writers(...)"),
        "An ended transaction lets its followers go, although what it followed is open (rule k).",
    ),
    Mutant(
        "held-never-asked",
        "magnetar_broker.transactions.orphan_candidates:OrphanCandidates.to_ask",
        ReturnEarly("[]"),
        "A broker waits for the watermark to cover what nobody else will end (rule f).",
    ),
    Mutant(
        "made-up-taken",
        "magnetar_broker.transactions.issued:Issued.check",
        ReturnEarly(),
        "A broker does not ask whether a TxnID was issued (rule f).",
    ),
    Mutant(
        "settled-ends-forgotten",
        "magnetar_broker.transactions.index_rows:restore",
        LeaveOut("index.ended[txn_id] = ..."),
        "Who opens a shard reads what is open in it, and not what has ended.",
    ),
    Mutant(
        "marker-forgets-its-stamp",
        "magnetar_broker.log.entries:MarkerEntry.to_bytes",
        Put("0", "self.stamp"),
        "Only memory knows the stamp of a marker.",
    ),
)
