"""Mistakes in the client."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Always, Compare, LeaveOut, Put, ReturnEarly, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "key-moves-in-a-transaction",
        "magnetar.messaging.sending.producer_work:ProducerWork._grow",
        LeaveOut("self._counts_before.setdefault(...)"),
        "Messages of a key in one transaction lie in two partitions.",
    ),
    Mutant(
        "new-partitions-not-asked",
        "magnetar.link.whole_topics:ask_partitions",
        LeaveOut("_require_all(...)"),
        "A cut lacks a partition to which a transaction has written that it has.",
    ),
    Mutant(
        "new-partition-was-in-the-earlier-cut",
        "magnetar_core.cuts.cuts:range_between",
        Put("after", "PartitionCut(...)"),
        "What a topic's new partition has is in no difference of cuts.",
    ),
    Mutant(
        "subscription-on-known-partitions-only",
        "magnetar.admin.subscriptions:SubscriptionAdmin.create",
        LeaveOut("await route.reach(...)"),
        "A subscription that was created is missing in partitions that came just before.",
    ),
    Mutant(
        "silent-brokers-look-empty",
        "magnetar.admin.transaction_history:history_of.part_of",
        LeaveOut("refusal = found"),
        "A broker that does not answer looks as if it had nothing of the transaction.",
    ),
    Mutant(
        "later-cut-begins-at-the-end",
        "magnetar_core.cuts.cuts:range_between",
        Put("before.end_offset", "before.begun_offset"),
        "What the earlier cut has left out below its end is in no later one.",
    ),
    Mutant(
        "delivered-stamps-not-seen",
        "magnetar.messaging.receiving.partition_receiver:PartitionReceiver._on_deliver",
        LeaveOut("self._runtime.saw(...)"),
        "What consumers get is no cause of what they commit.",
    ),
    Mutant(
        "commit-before-plain-sends",
        "magnetar.transactions.participants:Participants.flush",
        Put("plain.send_collected()", "await plain.drain()"),
        "A commit does not wait for the plain sends that were made before it.",
    ),
    Mutant(
        "writers-not-drained",
        "magnetar.transactions.participants:Participants.drain",
        LeaveOut("for writer in reversed(self.writers): ..."),
        "A commit does not wait for the sends and acks of its transaction.",
    ),
    Mutant(
        "transaction-follows-nobody",
        "magnetar.messaging.sending.transaction_sender:TransactionSender.begin",
        Put("NOBODY", "self.plain.following.now()"),
        "The next transaction of a producer does not name the one that it follows.",
    ),
    Mutant(
        "resent-after-gap",
        "magnetar.messaging.sending.plain_sender:PlainSender.refused",
        Without("tail[0].attempts <= 1"),
        "Batches that may have arrived are sent again under a new producer id after a gap.",
    ),
    Mutant(
        "timeout-is-no-effect",
        "magnetar.link.unanswered:Stream.expire",
        Put("item.attempts > 1", "item.attempts"),
        "A send whose only attempt was not answered in time is said to have had no effect.",
    ),
    Mutant(
        "repeats-out-of-order",
        "magnetar.link.unanswered:Unanswered._on_link",
        Put("reversed(self._unanswered.values())", "list(self._unanswered.values())"),
        "After a broken link the last command of a shard goes again first.",
        tests=("tests/client/link/test_unanswered.py",),
    ),
    Mutant(
        "repeat-skips-one",
        "magnetar.link.unanswered:Stream._lose_from",
        Put("min(self._written, at + 1)", "min(self._written, at)"),
        "After a broken link the first command that was not answered is taken for written.",
    ),
    Mutant(
        "gap-behind-a-refusal-fails",
        "magnetar.link.unanswered:Stream._on_error",
        Put("False", "isinstance(error, SequenceGap) and at > 0"),
        "What lies behind a command that was refused for now fails with the gap.",
    ),
    Mutant(
        "join-without-waiting",
        "magnetar.transactions.transaction_work:TransactionWork.joined",
        LeaveOut("self._participants.enrolled(...)"),
        "A send is told to count before the coordinator knows its partition.",
    ),
    Mutant(
        "refused-commit-is-unknown",
        "magnetar.transactions.transaction_work:TransactionWork._ask_commit",
        Put("TransactionStatus.COMMITTED", "TransactionStatus.ABORTED"),
        "A commit that is refused is taken for one that has happened.",
    ),
    Mutant(
        "unknown-commit-leads-nobody",
        "magnetar.transactions.transaction_work:TransactionWork._ask_commit",
        LeaveOut("self._participants.lead_plain_sends(...)"),
        "Behind a commit whose outcome is unknown plain sends follow nobody (rule k).",
    ),
    Mutant(
        "abort-without-drain",
        "magnetar.transactions.transaction_work:TransactionWork._abort",
        Put("self._participants.enrolled", "self._participants.drain"),
        "An abort does not wait for what is under way.",
    ),
    Mutant(
        "forgotten-txn-forgiven",
        "magnetar.transactions.transaction_block:TransactionBlock._refuse",
        LeaveOut("self._transaction.doom(...)"),
        "Who catches the error of a forgotten txn commits without that message.",
    ),
    Mutant(
        "inputs-not-redelivered",
        "magnetar.transactions.transactional_producer:TransactionalProducer.init_transactions",
        LeaveOut("consumer.redeliver(...)"),
        "After a batch failed, its inputs do not come again.",
    ),
    Mutant(
        "dead-letter-one-early",
        "magnetar.messaging.consuming.dead_letters:DeadLetters.concerns",
        Compare("columns.redelivery_count > ...", ">="),
        "A message moves with its last redelivery, instead of after it.",
    ),
    Mutant(
        "parts-with-a-gap",
        "magnetar.messaging.receiving.assembly:Assembly.add",
        Without("not follows"),
        "Parts of a message are joined although one between them is missing.",
    ),
    Mutant(
        "copies-handed-out",
        "magnetar.messaging.acknowledging.unacked_tracker:UnackedTracker.arrive",
        Without("*self._acked.values()"),
        "A copy of what an undecided transaction acknowledged is handed out.",
    ),
    Mutant(
        "release-not-told",
        "magnetar.groups.member_state:MemberState.released",
        LeaveOut("self._beat_due_ms = ..."),
        "That a partition is released is told with the next heartbeat only.",
    ),
    Mutant(
        "each-broker-gets-another-call",
        "magnetar.link.any_broker:AnyBroker.ask",
        LeaveOut("bear_token(...)"),
        "A call that two brokers get bears no token: it may take effect twice.",
    ),
    Mutant(
        "doubt-forgotten-at-the-next-link",
        "magnetar.link.repeated_request:RepeatedRequest.fail",
        Put("not error", "is_doubted and _kind(self._body) not in HARMLESS_BODIES"),
        "A request that may have arrived is said to have had no effect.",
    ),
    Mutant(
        "former-owner-kept",
        "magnetar.link.servers:Servers._move",
        Put("self._connections.pop((former.address, service), None)", "self._drop(...)"),
        "The link to a former owner that sleeps stays: what is under way there waits.",
    ),
    Mutant(
        "moved-back-by-a-late-view",
        "magnetar.link.servers:Servers.told",
        Put("address", "not is_earlier(address, found.address) or found.connection.is_unreachable"),
        "A member that hears late sends the client back to a former owner.",
    ),
    Mutant(
        "complete-always-commits",
        "magnetar.transactions.transactional_producer:TransactionalProducer.complete",
        Always("prepared == self._prepared"),
        "complete() does not compare what is prepared with what the database holds.",
    ),
    Mutant(
        "client-stays",
        "magnetar.link.servers:Servers._move",
        ReturnEarly(),
        "A client stays with the owner that it found first.",
    ),
    Mutant(
        "cut-is-not-read",
        "magnetar.messaging.receiving.reader:RangeReader.__init__",
        Put("None", "cut"),
        "Readers take all that lies below the ends of a cut.",
    ),
    Mutant(
        "answers-in-columns-twice",
        "magnetar.link.session:LinkSession._replied_to",
        Put(
            "[one for one in request_ids if one in waiting and waiting[one][1] == name]",
            "{one for one in request_ids if one in waiting and waiting[one][1] == name}",
        ),
        "A message that answers a request twice counts, and another request stays open.",
    ),
    Mutant(
        "answers-to-another-number",
        "magnetar.link.session:LinkSession._replied_together",
        Put("False", "not together or len(together) != answers.asked_count"),
        "An answer to more or fewer commands than were sent is believed.",
    ),
)
