"""Commands of coordinators: ends of transactions at participants, and low watermarks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from magnetar_broker import keys
from magnetar_broker.coordinators.coordinator_sessions import CoordinatorSessions
from magnetar_broker.coordinators.ends_together import EndsTogether
from magnetar_broker.coordinators.incarnations import superseded
from magnetar_broker.coordinators.orphan_resolver import OrphanResolver
from magnetar_broker.coordinators.store_tokens import digest_of
from magnetar_broker.coordinators.unannounced import Unannounced
from magnetar_broker.environment import Environment
from magnetar_broker.replies import Answers, Replies
from magnetar_broker.topics.topics import Topics
from magnetar_broker.transactions import watermark_rows
from magnetar_broker.transactions.transaction_index import End, EndedTransaction, Outcome
from magnetar_broker.transactions.waiting_ends import AskedEnd
from magnetar_broker.transactions.watermark import Watermark
from magnetar_core.cuts.hybrid_clock import check_told
from magnetar_core.errors import InvalidArgument, MagnetarError
from magnetar_core.ids import (
    INCARNATION_MAX,
    TCID_MAX,
    PartitionName,
    SubscriptionName,
    TxnID,
)
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.transport.columns.ends import EndedOnParticipants, EndOnParticipants, counted
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as txn_wire

# How many transactions a question names; each is looked up at every participant.
ENDS_ASKED_MAX = 10_000
# How many of them are looked up at once, and how many look-ups run in a turn: about a millisecond,
# in which no other client is served.
ENDS_IN_A_TURN = 500
LOOKED_UP_IN_A_TURN = 5_000
# How many participants a command ends, in a turn; a coordinator names 64.
ENDED_TOGETHER_MAX = 1_000

# Checks that the store of a TCID took an incarnation, by its token.
AdmitStore = Callable[[int, int, str], None]

_EndOfOne = txn_wire.CommandEndTxnOnPartition | txn_wire.CommandEndTxnOnSubscription


class TransactionCommands:
    """Handlers of coordinators' commands. Source: PIP-31, Broker Request Processing."""

    def __init__(
        self,
        environment: Environment,
        topics: Topics,
        coordinators: CoordinatorSessions,
        admit_store: AdmitStore,
        orphan_resolver: OrphanResolver,
        unannounced: Unannounced,
        replies: Replies,
    ) -> None:
        self._environment = environment
        self._coordinators = coordinators
        self._admit_store = admit_store
        self._topics = topics
        self._orphan_resolver = orphan_resolver
        self._unannounced = unannounced
        self._replies = replies
        ends = environment.metrics.txn_ends
        self._ends = {outcome: ends.labels(outcome.value) for outcome in Outcome}
        # As its row says, since this life began.
        self._stored: dict[int, Watermark] = {}
        self.handlers: Mapping[str, Handler] = {
            "end_txn_on_participants": replies.together(self._end_txn_on_participants),
            **each_of(
                {
                    "end_txn_on_partition": self._end_txn_on_partition,
                    "end_txn_on_subscription": self._end_txn_on_subscription,
                    "low_watermark": self._low_watermark,
                    "txns_issued": self._txns_issued,
                    "describe_ends": self._describe_ends,
                }
            ),
        }

    def _end_txn_on_partition(
        self, command: txn_wire.CommandEndTxnOnPartition, reply: Reply
    ) -> None:
        """Handle CommandEndTxnOnPartition. Source: PIP-31, Broker Request Processing."""
        partition = self._topics.named(command.partition)
        end = self._end_of(command, reply)

        def done() -> None:
            def leave() -> None:
                self._ends[end.outcome].inc()
                response = txn_wire.CommandEndTxnOnPartitionResponse()
                response.txn_id.most_bits, response.txn_id.least_bits = end.txn_id
                reply.send(response)

            self._environment.when_durable(leave)

        def failed(error: Exception) -> None:
            self._replies.fail(error, reply)

        if partition.end(AskedEnd(end, reply.session, reply.request_id, done, failed)):
            done()

    def _end_txn_on_subscription(
        self, command: txn_wire.CommandEndTxnOnSubscription, reply: Reply
    ) -> None:
        """Handle CommandEndTxnOnSubscription.

        Source: PIP-31, Broker - Acknowledgements, New Acknowledgement State.
        """
        name = command.subscription
        end = self._end_of(command, reply)
        self._topics.named(name).subscriptions.end(name.subscription, end)
        response = txn_wire.CommandEndTxnOnSubscriptionResponse()
        response.txn_id.most_bits, response.txn_id.least_bits = end.txn_id
        self._replies.answer(reply, response)

    def _end_txn_on_participants(
        self, command: EndOnParticipants, reply: Reply, answers: Answers
    ) -> None:
        """Handle CommandEndTxnOnParticipants."""
        txn_id, action, participants, are_counted, stamp, incarnation, is_lost, selected = command
        count = len(participants)
        if count > ENDED_TOGETHER_MAX:
            raise InvalidArgument(f"a command ends {ENDED_TOGETHER_MAX} participants, not {count}")
        outcome = Outcome.COMMITTED if action == common.COMMIT else Outcome.ABORTED
        selection = None if selected is None else frozenset(selected)
        self._check_end(txn_id, stamp, incarnation, reply)
        fields = txn_id, outcome, None, selection, is_lost, None, False, stamp, 0
        end = tuple.__new__(End, fields)
        ends = EndsTogether(self._topics, end, map(counted, participants), are_counted=are_counted)
        ends.begin(reply.session, reply.request_id)
        if ends.is_answered:
            self._answer_ends(txn_id, outcome, ends, reply, answers)
        else:
            ends.on_answered = partial(self._answer_late, txn_id, outcome, ends, reply)

    def _answer_ends(
        self, txn_id: TxnID, outcome: Outcome, ends: EndsTogether, reply: Reply, answers: Answers
    ) -> None:
        leaving = answers.durable
        unfinished: Sequence[txn_wire.UnfinishedParticipant] = ()
        if ends.unfinished:
            unfinished = [_unfinished(name, error) for name, error in ends.unfinished.items()]
            for error in ends.unfinished.values():
                if error is not None:
                    leaving.counts[self._replies.refusals_of(error)] += 1
        leaving.counts[self._ends[outcome]] += ends.ended_partitions
        leaving.add(reply, tuple.__new__(EndedOnParticipants, (txn_id, unfinished)))

    def _answer_late(
        self, txn_id: TxnID, outcome: Outcome, ends: EndsTogether, reply: Reply
    ) -> None:
        """Answer a command that has waited for another transaction: its run was parked then."""
        answers = Answers(self._environment)
        self._answer_ends(txn_id, outcome, ends, reply, answers)
        answers.park()

    def _end_of(self, command: _EndOfOne, reply: Reply) -> End:
        end = _end_in(command)
        self._check_end(end.txn_id, end.stamp, command.incarnation, reply)
        return end

    def _check_end(self, txn_id: TxnID, stamp: int, incarnation: int, reply: Reply) -> None:
        """Check the parts of an end that are stored for ever.

        Args:
            incarnation: of the coordinator that sends it; 0: none does.
        Raises:
            InvalidTxnState: its coordinator has a newer store, which may have decided otherwise.
            TxnNotFound: no coordinator has issued the TxnID. A stored end would refuse its later
                owner.
            LogUnavailable: its coordinator has not announced the TxnID yet.
            InvalidArgument: the stamp was invented. Coordinators would refuse the commits of all
                clients that have seen it.
        """
        self._environment.issued.check(txn_id)
        if incarnation and incarnation < self._environment.watermarks.of(txn_id.tcid).incarnation:
            raise superseded(txn_id.tcid, incarnation)
        if stamp and not self._coordinators.is_of(txn_id.tcid, reply.session):
            environment = self._environment
            ahead_ms_max = environment.config.stamp_ahead_ms_max
            check_told(stamp, environment.clock.wall_ms(), ahead_ms_max=ahead_ms_max)

    def _low_watermark(self, command: txn_wire.CommandLowWatermark, reply: Reply) -> None:
        """Handle CommandLowWatermark.

        Rule c: the watermark is stored in the batch that deletes the rows that it covers.
        """
        known = self._admit(command)
        self._coordinators.note(command.tcid, reply.session)
        self._environment.issued.hear(command.tcid)
        live = [(one.first, one.last) for one in command.live]
        advanced = known.advanced(
            command.incarnation,
            command.low_watermark,
            live,
            next_counter=command.next_counter,
            counter_bound=command.counter_bound,
            store_digest=digest_of(command.store_token),
        )
        self._take(command.tcid, advanced)
        if advanced.coverage != known.coverage:
            for partition in self._topics.partitions():
                partition.forget_covered()
        self._orphan_resolver.heard(command.known)
        answer = self._orphan_resolver.answer(command.tcid)
        self._store(command.tcid, advanced)
        self._replies.answer(reply, answer)
        self._unannounced.announced(command.tcid, advanced)
        self._environment.issued.announced()

    def _admit(
        self, command: txn_wire.CommandLowWatermark | txn_wire.CommandDescribeEnds
    ) -> Watermark:
        """Check that a command comes from the newest store of a coordinator.

        Returns:
            The coordinator's watermark as it is known here.
        Raises:
            InvalidArgument: there cannot be such a coordinator.
            InvalidTxnState: it is another store's, or a former one's.
            LogUnavailable: only the first broker may know the store.
        """
        tcid, incarnation = command.tcid, command.incarnation
        if tcid > TCID_MAX or incarnation > INCARNATION_MAX:
            raise InvalidArgument(f"there is no coordinator {tcid} of incarnation {incarnation}")
        known = self._environment.watermarks.of(tcid)
        if incarnation < known.incarnation:
            raise superseded(tcid, incarnation)
        self._admit_store(tcid, incarnation, command.store_token)
        return known

    def _take(self, tcid: int, watermark: Watermark) -> None:
        """Set a watermark. With a new incarnation, former stores end nothing more (rule n)."""
        watermarks, batch = self._environment.watermarks, self._environment.commits.batch
        known = watermarks.of(tcid).incarnation
        if known == watermark.incarnation:
            watermarks.set(tcid, watermark)
            return
        for partition in self._topics.partitions():
            partition.refuse_waiting_ends(tcid, superseded(tcid, known))
        before = watermarks.former(tcid)
        watermarks.set(tcid, watermark)
        after = watermarks.former(tcid)
        for incarnation, former in after.items():
            if incarnation not in before:
                key = keys.former_watermark(tcid, incarnation)
                batch.put(keys.META, key, watermark_rows.encode(former))
        for incarnation in before.keys() - after.keys():
            batch.delete(keys.META, keys.former_watermark(tcid, incarnation))

    def _store(self, tcid: int, watermark: Watermark) -> None:
        """Store a watermark if it has changed."""
        if self._stored.get(tcid) == watermark:
            return
        self._stored[tcid] = watermark
        # Covered transactions that a recovery has to read as well.
        orphans = self._orphan_resolver.covered(tcid) | _passing_of(self._topics, tcid, watermark)
        self._environment.commits.batch.put(
            keys.META, keys.watermark(tcid), watermark_rows.encode(watermark, orphans)
        )

    def _txns_issued(self, command: txn_wire.CommandTxnsIssued, reply: Reply) -> None:
        """Handle CommandTxnsIssued. Nothing is stored: the next low watermark repeats it."""
        watermarks = self._environment.watermarks
        known = watermarks.find(command.tcid)
        if (
            known is not None
            and known.incarnation == command.incarnation
            and self._coordinators.is_of(command.tcid, reply.session)
        ):
            advanced = known.issuing(command.next_counter)
            watermarks.set(command.tcid, advanced)
            self._environment.issued.hear(command.tcid)
            self._unannounced.announced(command.tcid, advanced)
            self._environment.issued.announced()

    def _describe_ends(self, command: txn_wire.CommandDescribeEnds, reply: Reply) -> None:
        """Handle CommandDescribeEnds: a coordinator sends it after a loss, before it ends anything.

        From now on its former stores end nothing here, or the answer would not be the last word.
        Source: docs/protocol/rules.md, rule n.
        """
        if len(command.txn_ids) > ENDS_ASKED_MAX:
            raise InvalidArgument(f"{ENDS_ASKED_MAX} transactions are described at once, at most")
        known = self._admit(command)
        digest = digest_of(command.store_token)
        advanced = known.advanced(command.incarnation, 0, (), store_digest=digest)
        if advanced != known:
            self._take(command.tcid, advanced)
            self._store(command.tcid, advanced)
        self._replies.answer_later(reply, self._described_ends(command))

    async def _described_ends(
        self, command: txn_wire.CommandDescribeEnds
    ) -> txn_wire.CommandDescribeEndsResponse:
        """Look many transactions up at many participants, while other tasks have their turns."""
        response = txn_wire.CommandDescribeEndsResponse()
        indexes = [
            index
            for partition in self._topics.partitions()
            for index in (partition.index, *(one.index for one in partition.subscriptions))
        ]
        looked_up = 0
        described: set[TxnID] = set()
        for start in range(0, len(command.txn_ids), ENDS_IN_A_TURN):
            asked = command.txn_ids[start : start + ENDS_IN_A_TURN]
            wanted = [TxnID.from_wire(one) for one in asked]
            found: dict[TxnID, EndedTransaction] = {}
            for index in indexes:
                if looked_up >= LOOKED_UP_IN_A_TURN:
                    looked_up = 0
                    await asyncio.sleep(0)
                looked_up += len(wanted)
                for txn_id in wanted:
                    end = index.ended.get(txn_id)
                    # What took no part is told to abort: a commit counts wherever else it was
                    # aborted.
                    if end is not None and (
                        txn_id not in found or end.outcome is Outcome.COMMITTED
                    ):
                        found[txn_id] = end
            covers = self._environment.watermarks.covers
            for txn_id in wanted:
                if txn_id in described:
                    continue
                ended = found.get(txn_id)
                committed = ended is not None and ended.outcome is Outcome.COMMITTED
                if not committed and covers(txn_id):
                    described.add(txn_id)
                    response.forgotten.append(txn_id.to_wire())
                    continue
                if ended is None:
                    continue
                described.add(txn_id)
                response.ends.add(
                    txn_id=txn_id.to_wire(),
                    txn_action=common.COMMIT if committed else common.ABORT,
                    selection_digest=ended.selection_digest if committed else b"",
                    stamp=ended.stamp,
                )
            await asyncio.sleep(0)
        return response


def _end_in(command: _EndOfOne) -> End:
    """Return the end that a command for one participant asks for."""
    is_commit = command.txn_action == common.COMMIT
    hanging: tuple[int, int] | None = None
    if command.HasField("hanging"):
        hanging = command.hanging.start_offset, command.hanging.producer_epoch
    return End(
        TxnID.from_wire(command.txn_id),
        Outcome.COMMITTED if is_commit else Outcome.ABORTED,
        {one.writer_id: one.count for one in command.counts} if command.counts_given else None,
        frozenset(command.selected_writer_ids) if command.selection_given else None,
        command.loss_accepted,
        hanging,
        stamp=command.stamp,
        ledger_id=command.ledger_id,
    )


def _unfinished(
    name: PartitionName | SubscriptionName, error: MagnetarError | None
) -> txn_wire.UnfinishedParticipant:
    return txn_wire.UnfinishedParticipant(
        partition=common.Partition(topic=name[0], partition=name[1], topic_id=name[2]),
        subscription=name.subscription if isinstance(name, SubscriptionName) else "",
        error=None if error is None else error.to_wire(),
    )


def _passing_of(topics: Topics, tcid: int, watermark: Watermark) -> set[int]:
    """Return counters of ended, covered transactions that pass on what they followed (rule k)."""
    return {
        txn_id.counter
        for partition in topics.partitions()
        for txn_id in partition.order.passing
        if txn_id.tcid == tcid and watermark.covers(txn_id)
    }
