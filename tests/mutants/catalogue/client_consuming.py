"""Mistakes in the SDK's consumers, groups and dead letters."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RECEIVER = "client/magnetar/messaging/partition_receiver.py"
_NACKS = "client/magnetar/messaging/nack_requests.py"
_HOLDINGS = "client/magnetar/messaging/unacked_tracker.py"
_ACKS = "client/magnetar/messaging/acks.py"
_QUEUE = "client/magnetar/messaging/receive_queue.py"
_DEAD = "client/magnetar/messaging/dead_letters.py"
_ASSEMBLY = "client/magnetar/messaging/assembly.py"
_MEMBER = "client/magnetar/groups/member_state.py"
_MEMBERSHIPS = "client/magnetar/groups/memberships.py"
_PROCESSING = "client/magnetar/groups/processing.py"

MUTANTS = (
    Mutant(
        name="failed-move-not-given-back",
        file=_DEAD,
        old="                give_back()\n",
        new="",
        mistake="A dead letter whose move failed is delivered to nobody any more.",
    ),
    Mutant(
        name="dead-letter-acked-apart",
        file=_DEAD,
        old="                    await acknowledge(txn)\n",
        new="                await acknowledge(txn)\n",
        mistake="A dead letter is acknowledged when its move is committed already.",
    ),
    Mutant(
        name="dead-letter-one-early",
        file=_DEAD,
        old="        return columns.redelivery_count > self._policy.redeliveries_max",
        new="        return columns.redelivery_count >= self._policy.redeliveries_max",
        mistake="A message moves with its last redelivery, instead of after it.",
    ),
    Mutant(
        name="parts-of-two-messages",
        file=_ASSEMBLY,
        old="        if part is Part.FIRST or not follows:",
        new="        if not follows:",
        mistake="Parts of two large messages are joined when the first one's last part is missing.",
    ),
    Mutant(
        name="parts-with-a-gap",
        file=_ASSEMBLY,
        old="        if part is Part.FIRST or not follows:",
        new="        if part is Part.FIRST:",
        mistake="Parts of a message are joined although one between them is missing.",
    ),
    Mutant(
        name="cut-parts-not-acked",
        file=_ASSEMBLY,
        old="            return None, [*cut, batch]",
        new="            return None, cut",
        mistake="A part that belongs to no message comes again and again.",
    ),
    # UnackedTracker
    Mutant(
        name="copies-handed-out",
        file=_HOLDINGS,
        old="        for known in (self.held, *self._acked.values()):",
        new="        for known in (self.held,):",
        mistake="A copy of what an undecided transaction acknowledged is handed out.",
    ),
    Mutant(
        name="copies-of-held",
        file=_HOLDINGS,
        old="        for known in (self.held, *self._acked.values()):",
        new="        for known in self._acked.values():",
        mistake="After a reconnect, what the application still holds is handed out again.",
    ),
    Mutant(
        name="dropped-never-asked-for",
        file=_HOLDINGS,
        old="            wanted.add_all(self.dropped.within(first, last))",
        new="            wanted.remove_all(self.dropped.within(first, last))",
        mistake="What was thrown away as a copy is not asked for again after an abort.",
    ),
    Mutant(
        name="unconfirmed-acks-lost",
        file=_HOLDINGS,
        old="        wanted = IntervalSet(acked)\n        wanted.remove_all(confirmed)",
        new="        wanted = IntervalSet()",
        mistake=(
            "What the broker never heard to be acknowledged does not come again after an abort."
        ),
    ),
    Mutant(
        name="commit-forgets-nothing",
        file=_HOLDINGS,
        old=(
            "            self.dropped.remove_all(acked)\n            self.given.remove_all(acked)\n"
        ),
        new="            self.dropped.remove_all(acked)\n",
        mistake="What a commit has settled still counts as given: a cumulative ack takes it again.",
    ),
    Mutant(
        name="nack-of-acking",
        file=_HOLDINGS,
        old="        for known in (self.acking, self.nacking):\n            for first",
        new="        for known in (self.nacking,):\n            for first",
        mistake="What is being acknowledged may be given back at the same time.",
    ),
    Mutant(
        name="nack-due-of-acked",
        file=_HOLDINGS,
        old="        self.acking.add_all(ranges)\n        self.nacking.remove_all(ranges)",
        new="        self.acking.add_all(ranges)",
        mistake="What was acknowledged while it waited to be given back comes again.",
    ),
    Mutant(
        name="reset-keeps-held",
        file=_HOLDINGS,
        old="        self.queued.clear()\n        self.held.clear()\n        self.given.clear()",
        new="        self.queued.clear()\n        self.given.clear()",
        mistake="After a seek, what was held before counts as a copy.",
    ),
    # Messages that are received and acknowledged one by one
    Mutant(
        name="acks-of-a-run-lost",
        file=_RECEIVER,
        old="        if acked is not None:\n            self.ack_nowait([acked])\n",
        new="",
        mistake="Of messages that are acknowledged one by one, the first alone is.",
    ),
    Mutant(
        name="short-ack-of-a-queued-copy",
        file=_QUEUE,
        old="        if not queued:\n            return last + 1",
        new="        if True:\n            return last + 1",
        mistake="Who acknowledges an old copy gets the new one, which is in the queue.",
    ),
    Mutant(
        name="loan-outlives-the-attachment",
        file=_QUEUE,
        old='or never."""\n        self.take_back()\n',
        new='or never."""\n        self._lent = NOTHING_LENT\n',
        mistake="After a reconnect, what was lent is received twice.",
    ),
    Mutant(
        name="lent-messages-renew-permits-late",
        file=_QUEUE,
        old="count = min(LENT_MAX, last - first, self._permits.left - 1)",
        new="count = min(LENT_MAX, last - first)",
        mistake="The broker hears of room when the application looks, not when there is room.",
    ),
    Mutant(
        name="arrival-unseen-by-a-run",
        file=_HOLDINGS,
        old='Copies are dropped."""\n        self._catch_up()\n',
        new='Copies are dropped."""\n',
        mistake="Acks go on as a run though copies of what they acknowledge have come meanwhile.",
    ),
    # Acks and receivers
    Mutant(
        name="second-thousand-not-acked",
        file=_ACKS,
        old="                ranges = ranges[RANGES_PER_COMMAND_MAX:]",
        new="                ranges = []",
        mistake="Of many acks at once, those beyond the first command are lost.",
    ),
    Mutant(
        name="acks-in-between-lost",
        file=_ACKS,
        old=(
            "            while self._has_gathered():\n                await self._send_gathered()"
        ),
        new=("            if self._has_gathered():\n                await self._send_gathered()"),
        mistake="Acks that gather while a command is under way wait for the next one.",
    ),
    Mutant(
        name="lower-cumulative-ack-wins",
        file=_ACKS,
        old="        self._up_to = max(offset, self._up_to or 0)",
        new="        self._up_to = offset",
        mistake="Of two cumulative acks that are gathered, the later one counts, if lower, too.",
    ),
    Mutant(
        name="attach-epoch-stays",
        file=_RECEIVER,
        old="        self._attach_epoch += 1\n",
        new="        self._attach_epoch = 1\n",
        mistake="A late copy of an earlier attempt to attach cannot be told from the newest.",
    ),
    Mutant(
        name="old-link-delivers",
        file=_RECEIVER,
        old="        if session is not self._attached:\n            return\n        if isinst",
        new="        if self._attached is None:\n            return\n        if isinst",
        mistake="What an old link still brings is taken for messages of the new attachment.",
        unseen_because=(
            "A session says nothing after its end, a connection has one at a time, and who moves to"
            " another broker has left the first one's connection."
        ),
    ),
    Mutant(
        name="void-attachment-delivers",
        file=_RECEIVER,
        old="        if self._detached.is_set():\n",
        new="        if False:\n",
        mistake=(
            "An attachment that another one is to follow brings what lies behind what an abort has"
            " given back."
        ),
    ),
    Mutant(
        name="reset-not-noted",
        file=_RECEIVER,
        old=(
            "            self.resets += 1\n            self.unacked.reset()\n        self.ledger_id"
        ),
        new="            self.unacked.reset()\n        self.ledger_id",
        mistake="Messages of a restored log's former life may be acknowledged in the new one.",
        unseen_because=(
            "Only a seek looks at the count, to start over where nobody has: doing so once more"
            " brings again what the seek made void, and what is of the former log has its ledger's"
            " number, which acks are checked against."
        ),
    ),
    Mutant(
        name="after-forgotten",
        file=_RECEIVER,
        old="[txn_id.to_wire() for txn_id in self._acks_in_transactions.after]",
        new="[]",
        mistake="Who attaches again gets what lies behind its undecided acks before these.",
    ),
    Mutant(
        name="refused-nack-lost",
        file=_NACKS,
        old="                if result.retriable:\n",
        new="                if not result.retriable:\n",
        mistake="A nack that is refused for a moment is not tried again.",
    ),
    # Groups
    Mutant(
        name="released-with-open-transaction",
        file=_MEMBER,
        old="                if not in_transactions and (held.done or not is_held):",
        new="                if held.done or not is_held:",
        mistake="A partition is given up while a transaction has acknowledged in it.",
    ),
    Mutant(
        name="released-while-held",
        file=_MEMBER,
        old="                if not in_transactions and (held.done or not is_held):",
        new="                if not in_transactions:",
        mistake="A partition is given up while the application works on its messages.",
    ),
    Mutant(
        name="member-at-first-broker-only",
        file=_MEMBERSHIPS,
        old="            if broker.name in self._memberships or self._failure is not None",
        new="            if self._memberships or self._failure is not None",
        mistake="A consumer joins a single broker: nobody reads what the others keep.",
    ),
    Mutant(
        name="fenced-at-one-stays-at-others",
        file=_MEMBERSHIPS,
        old="            if one is not membership:\n                one.end()",
        new="            if one is None:\n                one.end()",
        mistake="Whoever is replaced at one broker keeps its partitions at the others.",
    ),
    Mutant(
        name="away-broker-holds-up-members",
        file=_MEMBERSHIPS,
        old="all(one.member.generation or one.hindrance for one",
        new="all(one.member.generation for one",
        mistake="A broker that is known to be away is waited for again and again.",
    ),
    Mutant(
        name="new-topic-ends-member",
        file=_MEMBERSHIPS,
        old="        if isinstance(error, TopicNotFound):",
        new="        if isinstance(error, TopicNotFound) and self._has_started:",
        mistake="A broker that has not heard of a new topic ends a consumer that others took.",
    ),
    Mutant(
        name="two-ownerships-one",
        file=_MEMBER,
        old="            if since is not None and since != held.since:",
        new="            if since is not None and since < held.since:",
        mistake="A partition that was lost and got again is taken for one that was kept.",
    ),
    Mutant(
        name="release-not-told",
        file=_MEMBER,
        old=(
            "            self._drop(partition, HoldingEvent.RELEASED)\n"
            "            self._beat_due_ms = now_ms\n"
            "\n"
            "    def lost"
        ),
        new="            self._drop(partition, HoldingEvent.RELEASED)\n\n    def lost",
        mistake="That a partition is released is told with the next heartbeat only.",
    ),
    Mutant(
        name="idle-application-stays",
        file=_MEMBER,
        old="        self._move(PhaseEvent.OVERDUE)\n        return self._drop_all()",
        new="        return self._drop_all()",
        mistake="An application that does not come back keeps its place in the group.",
    ),
    Mutant(
        name="stays-away-that-came-back",
        file="client/magnetar/groups/member_phase.py",
        old="    (Phase.LEAVING, PhaseEvent.CAME_BACK): Phase.JOINING,",
        new="    (Phase.LEAVING, PhaseEvent.CAME_BACK): Phase.LEAVING,",
        mistake="An application that comes back while its member leaves is not heard.",
    ),
    Mutant(
        name="kept-partition-stays-revoked",
        file="client/magnetar/groups/holding.py",
        old="    (Holding.REVOKED, HoldingEvent.KEPT): Holding.HELD,",
        new="    (Holding.REVOKED, HoldingEvent.KEPT): Holding.REVOKED,",
        mistake="A partition that is kept after all is released all the same.",
    ),
    Mutant(
        name="commit-tried-once",
        file=_PROCESSING,
        old=(
            "                if not error.kind.may_pass:\n"
            "                    raise\n"
            '                log.info("asking again'
        ),
        new=(
            "                if not error.retriable:\n"
            "                    raise\n"
            '                log.info("asking again'
        ),
        mistake="A batch whose outcome is unknown is processed again, and may count twice.",
    ),
    Mutant(
        name="poison-not-acked",
        file=_PROCESSING,
        old="        self._consumer.ack_nowait(messages, txn=producer.transaction)",
        new=(
            "        if sent_count:\n"
            "            self._consumer.ack_nowait(messages, txn=producer.transaction)"
        ),
        mistake="A batch without outputs is not acknowledged, and comes again.",
    ),
)
