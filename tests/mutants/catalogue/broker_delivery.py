"""Mistakes in the broker's dispatch and delivery, Key_Shared included."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DISPATCH = "broker/magnetar_broker/dispatch/dispatch.py"
_DELIVERY = "broker/magnetar_broker/subscriptions/delivery.py"
_KEYS = "broker/magnetar_broker/dispatch/key_shared.py"
_SLOTS = "broker/magnetar_broker/dispatch/key_slots.py"

MUTANTS = (
    Mutant(
        name="fresh-reads-hand-out-withheld",
        file=_DISPATCH,
        old="            wanted |= fresh & ~unavailable & ~self.withheld.mask(first, last)",
        new="            wanted |= fresh & ~unavailable",
        mistake="A fresh read hands out what an abort gave back before that is durable.",
    ),
    Mutant(
        name="fresh-reads-hand-out-pending",
        file=_DISPATCH,
        old=(
            "            unavailable = self.cursor.unavailable_mask(first, last)\n"
            "            wanted"
        ),
        new="            unavailable = self.cursor.deleted.mask(first, last)\n            wanted",
        mistake="After a restart, what is in PENDING_ACK is delivered.",
    ),
    Mutant(
        name="withheld-overtaken",
        file=_DISPATCH,
        old="        return None if withheld_end is not None and withheld_end < offset else offset",
        new="        return offset",
        mistake="In order, what lies behind an aborted ack goes out before that comes again.",
    ),
    Mutant(
        name="withheld-overtaken-in-batch",
        file=_DISPATCH,
        old="            alike &= (1 << max(0, withheld_end - first)) - 1",
        new="            alike &= (1 << max(1, withheld_end - first + 1)) - 1",
        mistake="Of a batch that is cut at something withheld, one message too many goes out.",
    ),
    Mutant(
        name="other-counts-overtake",
        file=_DISPATCH,
        old="        if others and self._is_in_order:",
        new="        if others and self.type is SubscriptionType.FAILOVER:",
        mistake="Of one batch, what comes again for another time overtakes on EXCLUSIVE.",
    ),
    Mutant(
        name="held-lost-with-consumer",
        file=_DISPATCH,
        old="        self._return(consumer, vanished=vanished)\n",
        new="        consumer.held.clear()\n",
        mistake="What a consumer held when it left is delivered to nobody.",
    ),
    Mutant(
        name="released-not-given-back",
        file=_DISPATCH,
        old="                self.replay.add(first, min(last, self.read_offset - 1))",
        new="                self.replay.add(first, min(last, self.read_offset))",
        mistake="Of what comes back, one offset that was not read yet counts as read.",
    ),
    Mutant(
        name="acknowledged-still-withheld",
        file=_DISPATCH,
        old="        self.withheld.discard(first, last)\n        for consumer in self.consumers:",
        new="        for consumer in self.consumers:",
        mistake="What was acked between an abort and its durability goes out again.",
    ),
    Mutant(
        name="failover-forgets-what-is-held",
        file=_DISPATCH,
        old="            self._return(self.active, vanished=False)",
        new="            self.active.held.clear()",
        mistake="When another consumer becomes active, it does not get what the last one held.",
    ),
    Mutant(
        name="nack-of-others",
        file=_DISPATCH,
        old="        consumer.held.difference_update(returned)\n        had =",
        new="        had =",
        mistake="What a consumer gave back still counts as held by it.",
    ),
    Mutant(
        name="permits-by-batches",
        file=_DISPATCH,
        old="        consumer.use_permits(wanted.bit_count(), byte_count)",
        new="        consumer.use_permits(1, byte_count)",
        mistake="A consumer's permits count batches, not messages.",
    ),
    Mutant(
        name="redeliveries-not-counted",
        file=_DISPATCH,
        old="        self.redeliveries.raise_after(had, redelivery_count)\n",
        new="",
        mistake="No nack counts: no dead letter ever moves.",
    ),
    Mutant(
        name="nack-counts-always",
        file=_DISPATCH,
        old="            offsets.difference_update(self._levels[redelivery_count])\n",
        new="",
        mistake="A nack of a message that came again meanwhile counts once more.",
    ),
    Mutant(
        name="queued-copies-count",
        file=_DISPATCH,
        old="        self.redeliveries.leave(held, consumer.consumer_id if vanished else None)\n",
        new="        self.redeliveries.raise_for(held)\n",
        mistake="What stays in the queue of a consumer that leaves counts as delivered.",
    ),
    Mutant(
        name="parts-to-different-consumers",
        file=_DISPATCH,
        old="        if continued is not None and is_next_part:",
        new="        if continued is not None and is_next_part and not byte_count:",
        mistake="On SHARED, the parts of a message go to several consumers.",
    ),
    Mutant(
        name="delivery-before-seek-durable",
        file=_DELIVERY,
        old="        if self.closed or self.waiting or self._moves_under_way:",
        new="        if self.closed or self.waiting:",
        mistake="Who attaches again gets messages before the seek is durable.",
    ),
    Mutant(
        name="stale-read-delivered",
        file=_DELIVERY,
        old=(
            "                    if generation != self._generation:\n"
            "                        continue"
        ),
        new=(
            "                    if generation > self._generation:\n"
            "                        continue"
        ),
        mistake="What was read before a seek is delivered after it.",
    ),
    Mutant(
        name="two-moves-one-durable",
        file=_DELIVERY,
        old="        self._moves_under_way -= 1\n",
        new="        self._moves_under_way = 0\n",
        mistake="The first of two seeks that is durable lets delivery go on for both.",
    ),
    Mutant(
        name="late-attach-accepted",
        file=_DELIVERY,
        old="        if 0 < attach_epoch <= self._attach_epochs.get(consumer_id, 0):",
        new="        if 0 < attach_epoch < self._attach_epochs.get(consumer_id, 0):",
        mistake="A late copy of the newest attempt to attach takes its consumer off its new link.",
    ),
    Mutant(
        name="close-by-stranger",
        file=_DELIVERY,
        old=(
            "        if attachment is not None and attachment.session is session:\n"
            "            self._detach(attachment, vanished=vanished)"
        ),
        new=(
            "        if attachment is not None:\n"
            "            self._detach(attachment, vanished=vanished)"
        ),
        mistake="The end of an old link detaches the consumer that has attached on a new one.",
    ),
    Mutant(
        name="slow-link-not-woken",
        file=_DELIVERY,
        old="        if writable:\n            self._delivery.wake()",
        new="        if not writable:\n            self._delivery.wake()",
        mistake="When a link has room again, nothing goes on by itself.",
    ),
    Mutant(
        name="wait-not-told",
        file=_DELIVERY,
        old="        self.waiting = waiting\n        for attachment",
        new=(
            "        self.waiting = waiting\n"
            "        if waiting:\n"
            "            return\n"
            "        for attachment"
        ),
        mistake="A group's consumer is not told that it has to wait.",
    ),
    # Key_Shared
    Mutant(
        name="two-holders-of-a-slot",
        file=_KEYS,
        old="            if not slot.unsettled or slot.holder == target:",
        new="            if not slot.unsettled or slot.holder in (target, NOBODY):",
        mistake="A slot with several hands on it goes to its target before they are done.",
    ),
    Mutant(
        name="last-holder-counts",
        file=_KEYS,
        old="                    slot.holder = NOBODY\n",
        new="                    slot.holder = holder\n",
        mistake="Of two holders of a slot the last one is taken for the only one.",
    ),
    Mutant(
        name="new-overtakes-returned",
        file=_KEYS,
        old="        return returned.within([(0, never.first())]) if never else returned",
        new="        return returned",
        mistake="Within a key, what came back overtakes what lies before it and is new.",
    ),
    Mutant(
        name="slot-does-not-wait-for-withheld",
        file=_KEYS,
        old="            if slot.withheld:\n                continue",
        new="            if slot.withheld and not slot.waiting:\n                continue",
        mistake="A slot goes on although something of it is about to come again.",
    ),
    Mutant(
        name="settled-before-durable",
        file=_KEYS,
        old="        self._move(delivered, DELIVERED, ACK_UNSYNCED)\n",
        new="        self._move(delivered, DELIVERED, OUTSIDE)\n",
        mistake="A key is free to move when its last ack is applied, not when it is durable.",
    ),
    Mutant(
        name="late-acks-hold-no-key",
        file=_KEYS,
        old="        others = OffsetSet(ranges)\n",
        new="        others = OffsetSet()\n",
        mistake="A late ack in a transaction does not keep its key where it is.",
    ),
    Mutant(
        name="late-acks-keep-the-holder",
        file=_KEYS,
        old="        self._move(late, DELIVERED, OUTSIDE)\n",
        new="        self._move(late, DELIVERED, ACK_PENDING)\n",
        mistake="Who got a message again has its key although an earlier consumer acknowledged it.",
    ),
    Mutant(
        name="claims-outlive-aborts",
        file=_KEYS,
        old="            acknowledged.difference_update(offsets)\n",
        new="            pass\n",
        mistake="Who acknowledged before an abort has the key when another acknowledges again.",
    ),
    Mutant(
        name="restored-pending-unplaced",
        file=_KEYS,
        old=(
            "        self._unplaced = cursor.pending.copy()\n"
            "        self._ackers: dict[int, OffsetSet] = {}"
        ),
        new="        self._unplaced = OffsetSet()\n        self._ackers: dict[int, OffsetSet] = {}",
        mistake="After a restart nobody asks which keys wait for transactions.",
    ),
    Mutant(
        name="inherited-withheld-unplaced",
        file=_KEYS,
        old="        self._unplaced.update(self.withheld)\n",
        new="",
        mistake="A subscription that becomes Key_Shared forgets the keys of what is withheld.",
    ),
    Mutant(
        name="pending-moves-key",
        file=_KEYS,
        old="        self._move(offsets, ACK_PENDING, WITHHELD)\n",
        new=(
            "        self._move(offsets, ACK_PENDING, OUTSIDE)\n"
            "        self.withheld.update(offsets)\n"
        ),
        mistake="What an abort brings back may be overtaken by what its key brings next.",
    ),
    Mutant(
        name="parts-of-unknown-key",
        file=_SLOTS,
        old="    *_, key_hash = HEADER.unpack_from(batch, HEADER.size)",
        new="    *_, key_hash = HEADER.unpack_from(batch)",
        mistake="The key of a large message is read from the part's header, where it is 0.",
    ),
    Mutant(
        name="run-ends-early",
        file=_SLOTS,
        old="            yield run_slot, run_first, offset - 1\n",
        new="            yield run_slot, run_first, max(run_first, offset - 2)\n",
        mistake="In a batch of many keys the last message of a run belongs to no slot.",
    ),
    Mutant(
        name="keys-move-at-once",
        file=_KEYS,
        old="            if not slot.unsettled or slot.holder == target:",
        new="            if not slot.unsettled or target is not None:",
        mistake="Whoever joins gets its keys, whatever others still have of them.",
    ),
    Mutant(
        name="half-a-transaction-from-a-scan",
        file="broker/magnetar_broker/log/transaction_messages.py",
        old="            del by_txn_id[behind]",
        new="            pass",
        mistake="A scan that ends within a transaction is taken for all of it.",
        unseen_because="who uses the rows notices that some are missing, and reads them again",
    ),
    Mutant(
        name="more-read-than-asked-for",
        file="broker/magnetar_broker/log/log_reader.py",
        old="        enough = offset + messages_max",
        new="        enough = offset + MESSAGES_MAX",
        mistake="A read of few messages reads two megabytes, and throws away most of them.",
    ),
    Mutant(
        name="surplus-delivered-from-memory",
        file="broker/magnetar_broker/log/transaction_messages.py",
        old="batches_between(in_memory, place, end, bytes_max, verify=False)",
        new="batches_between(in_memory, 0, end, bytes_max, verify=False)",
        mistake="A read from the middle of a transaction in memory begins at its front.",
    ),
    Mutant(
        name="recent-messages-with-a-gap",
        file="broker/magnetar_broker/transactions/recent_messages.py",
        old="        if is_first and writer.recent is None:",
        new="        if writer.recent is None:",
        mistake="After a restart, later messages of a transaction are taken for all of them.",
    ),
)
