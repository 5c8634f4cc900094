"""Mistakes in what the broker delivers: acknowledgements, keys and groups."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, Insert, LeaveOut, Never, Put, ReturnEarly, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "plain-ack-takes-pending",
        "magnetar_broker.dispatch.acknowledgements:Acknowledgements.free_ranges",
        Put("self.deleted.mask", "self.unavailable_mask"),
        "A plain ack deletes what a transaction holds in PENDING_ACK.",
    ),
    Mutant(
        "conflict-only-with-pending",
        "magnetar_broker.dispatch.acknowledgements:Acknowledgements.check_transactional",
        Without("first < self.floor"),
        "A transaction may acknowledge what lies below the floor and is deleted.",
    ),
    Mutant(
        "uncounted-ack-kept",
        "magnetar_broker.dispatch.acknowledgements:Acknowledgements.end",
        Compare("ack.ack_sequence < ...", "<="),
        "A commit counts one ack more than the client had confirmed (rule g).",
    ),
    Mutant(
        "floor-past-pending",
        "magnetar_broker.dispatch.acknowledgements:Acknowledgements._raise_floor",
        Put("self.deleted.chunk(chunk) | self.pending.chunk(chunk)", "self.deleted.chunk(...)"),
        "Mark-delete passes a PENDING_ACK (rule i).",
    ),
    Mutant(
        "floor-moved-in-memory-only",
        "magnetar_broker.dispatch.acknowledgements:Acknowledgements._move_floor_over",
        LeaveOut("self._mark_dirty(...)"),
        "What a commit acknowledged in its order comes again after a restart.",
    ),
    Mutant(
        "first-awaited-only",
        "magnetar_broker.subscriptions.subscription:Subscription._release",
        Never("self._has_to_wait(...)"),
        "A new owner waits for the first of several transactions only.",
    ),
    Mutant(
        "late-ack-on-absent-accepted",
        "magnetar_broker.subscriptions.subscriptions:Subscriptions.end",
        LeaveOut("self._end_absent(...)"),
        "An end for a subscription that is not there leaves no record.",
    ),
    Mutant(
        "retention-past-readers",
        "magnetar_broker.topics.retention:_limit",
        Put("max(limit, log.lowest_pin)", "min(limit, log.lowest_pin)"),
        "Retention removes what is being read (rule m).",
    ),
    Mutant(
        "read-goes-on-behind-gap",
        "magnetar_broker.log.transaction_messages:TransactionMessages._in_sidecar",
        Compare("at != expected", "<"),
        "A reader passes over batches that are missing, in silence.",
    ),
    Mutant(
        "ack-check-skipped",
        "magnetar_broker.subscriptions.subscription:Subscription.acknowledge_in",
        LeaveOut("self.cursor.check_transactional(...)"),
        "Two transactions may acknowledge the same message (rule i).",
    ),
    Mutant(
        "stored-checksum-not-asked",
        "magnetar_broker.log.entries:parse_entries",
        Without("verify=..."),
        "A batch that comes back with a flipped bit is given to clients.",
    ),
    Mutant(
        "skipped-not-stored",
        "magnetar_broker.topics.partition:Partition.skip_damaged",
        LeaveOut("self._environment.defer_rows(...)"),
        "After a restart, what was given up is DataLoss again.",
    ),
    Mutant(
        "withheld-overtaken",
        "magnetar_broker.dispatch.dispatch:Dispatcher.next_offset",
        Put("offset", "None if withheld_end is not None and withheld_end < offset else offset"),
        "In order, what lies behind an aborted ack goes out before that comes again.",
    ),
    Mutant(
        "nack-of-others",
        "magnetar_broker.dispatch.dispatch:Dispatcher.nack",
        LeaveOut("consumer.held.difference_update(...)"),
        "What a consumer gave back still counts as held by it.",
    ),
    Mutant(
        "permits-by-batches",
        "magnetar_broker.dispatch.dispatch:Dispatcher.assign",
        Put("1", "wanted.bit_count(...)"),
        "A consumer's permits count batches, not messages.",
    ),
    Mutant(
        "delivery-before-seek-durable",
        "magnetar_broker.subscriptions.delivery:Delivery._next_offset",
        Without("self._moves_under_way"),
        "Who attaches again gets messages before the seek is durable.",
    ),
    Mutant(
        "settled-before-durable",
        "magnetar_broker.dispatch.key_shared:KeySharedDispatcher.acknowledged",
        Put(
            "self._move(delivered, DELIVERED, OUTSIDE)",
            "self._move(delivered, DELIVERED, ACK_UNSYNCED)",
        ),
        "A key is free to move when its last ack is applied, not when it is durable.",
    ),
    Mutant(
        "late-acks-hold-no-key",
        "magnetar_broker.dispatch.key_shared:KeySharedDispatcher.pend",
        Put("others.clear()", "others.difference_update(...)"),
        "A late ack in a transaction does not keep its key where it is.",
    ),
    Mutant(
        "keys-of-pending-acks-not-learned",
        "magnetar_broker.dispatch.key_shared:KeySharedDispatcher.__init__",
        Insert("self._unplaced = OffsetSet()", after="self._unplaced = ..."),
        "After a restart nobody asks which keys wait for transactions.",
    ),
    Mutant(
        "keys-move-at-once",
        "magnetar_broker.dispatch.key_shared:KeySharedDispatcher._route",
        Put("target is not None", "slot.holder == target"),
        "Whoever joins gets its keys, whatever others still have of them.",
    ),
    Mutant(
        "stale-generation-acks",
        "magnetar_broker.assignment.group:Group.check_partition_owner",
        Put("name.generation < owner.generation - 1", "name.generation < owner.generation"),
        "A member may act with the generation before the one in which it got a partition.",
    ),
    Mutant(
        "replaced-instance-keeps-generation",
        "magnetar_broker.assignment.group:Group._replace",
        LeaveOut("self.generation += ..."),
        "A new instance with the old one's id does not raise the generation.",
    ),
    Mutant(
        "given-before-released",
        "magnetar_broker.assignment.group:Group._reconcile",
        Put(
            "partition not in self.partition_owners or len(self.members) > 2",
            "partition not in self.partition_owners",
        ),
        "With three members, a partition is given away before its owner has released it.",
    ),
    Mutant(
        "generation-not-stored",
        "magnetar_broker.assignment.group_rows:row_of",
        Without("generation=..."),
        "After a restart generations begin anew.",
    ),
    Mutant(
        "late-join-accepted",
        "magnetar_broker.assignment.group:Group.refuse_late_join",
        Put(
            "0 < newcomer.join_epoch < past.join_epoch",
            "0 < newcomer.join_epoch <= past.join_epoch",
        ),
        "A late copy of a join brings a member back that has left.",
    ),
    Mutant(
        "zombie-acks-taken",
        "magnetar_broker.subscriptions.group_ownership:GroupOwnership.check",
        ReturnEarly(),
        "Nobody is asked for the generation of what it acknowledges (KIP-447).",
    ),
    Mutant(
        "earlier-generations-ignored",
        "magnetar_broker.subscriptions.group_ownership:GroupOwnership.awaited",
        ReturnEarly("[]"),
        "A new owner does not wait for what earlier ones have left open (rule p).",
    ),
    Mutant(
        "aborted-come-last",
        "magnetar_broker.subscriptions.subscription:Subscription.deliver_after",
        Insert("txn_ids = ()"),
        "What an aborted transaction had acknowledged comes after what lies behind it.",
    ),
    Mutant(
        "pending-acks-hold-no-key",
        "magnetar_broker.dispatch.key_shared:KeySharedDispatcher.pend",
        Insert(
            "self._move(self._ack_pending.within(ranges), ACK_PENDING, OUTSIDE)",
            after="self._move(others, ...)",
        ),
        "A key moves although its last message waits for the end of a transaction (rule q).",
    ),
)
