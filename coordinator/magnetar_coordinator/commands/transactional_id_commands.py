"""Commands about transactional ids and named sequences: takeovers, beginnings, ends, waiting.

Source: KIP-939, RPC Changes; docs/design/0002-two-phase-commit.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from magnetar_coordinator.commands.parsing import (
    action_of,
    end_of,
    init_call_of,
    named_sequence_of,
    pair_of,
)
from magnetar_coordinator.metadata import named_sequences as name_rules
from magnetar_coordinator.metadata import transactional_id as rules
from magnetar_coordinator.metadata.named_sequences import NamedSequence
from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnAction, TxnOwner
from magnetar_coordinator.metadata.transactional_id import (
    EndVerdict,
    TransactionalIdMetadata,
    TransactionalIdState,
)
from magnetar_coordinator.runtime import Runtime
from magnetar_coordinator.transactions import responses
from magnetar_coordinator.transactions.causes import taken_over
from magnetar_coordinator.transactions.decision import EndTxnRequest, may_be_prepared
from magnetar_core.errors import (
    ConcurrentTransactions,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    SequenceCommitted,
    TransactionalIdAuthorizationFailed,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.list_limits import rows_of
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.transport.columns.end_txns import EndTxn
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.transport.frames import detached
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb


class TransactionalIdCommands:
    """Handlers of commands about transactional ids and named sequences."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "init_producer": self._init_producer,
                "describe_transactional_id": self._describe,
                "list_transactional_ids": self._list,
                "remove_name": self._remove_name,
                "describe_name": self._describe_name,
            }
        )

    # Taking over.

    def _init_producer(self, request: pb.CommandInitProducer, reply: Reply) -> None:
        """Handle InitProducer (KIP-939, InitProducerId).

        Raises:
            InvalidTxnState: the ongoing transaction is in two-phase commit, and the call neither
                keeps it nor is in two-phase commit itself; or the call names another transaction.
                No effect.
            TransactionalIdNotFound: the call names a transaction, and the id is not known.
            TransactionalIdAuthorizationFailed: two-phase commit is off. No effect.
        """
        config = self._runtime.config
        if request.enable_2pc and not config.two_phase_commit_enabled:
            raise TransactionalIdAuthorizationFailed(
                "two-phase commit is off: set two_phase_commit_enabled at the coordinator"
            )
        if not request.enable_2pc and request.txn_timeout_ms > config.txn_timeout_ms_max:
            raise InvalidArgument(
                f"a timeout of {request.txn_timeout_ms} ms exceeds the maximum of"
                f" {config.txn_timeout_ms_max}",
                txn_timeout_ms_max=config.txn_timeout_ms_max,
            )
        self._take_over(request, reply, self._deadline_s())

    def _take_over(self, request: pb.CommandInitProducer, reply: Reply, deadline_s: float) -> None:
        runtime = self._runtime
        transactional_ids, run_time_ms = runtime.transactional_ids, runtime.run_time_ms()
        timeout_ms = (
            rules.NONE
            if request.enable_2pc
            else request.txn_timeout_ms or runtime.config.txn_timeout_ms_default
        )
        identity = transactional_ids.find(request.transactional_id)
        call = init_call_of(request)
        is_copy = identity is not None and rules.is_repeated_init(identity, call)
        if request.HasField("open_txn_id") and not is_copy:
            identity = transactional_ids.get(request.transactional_id)
            rules.require_open(identity, TxnID.from_wire(request.open_txn_id))
        if identity is None:
            runtime.disk_reserve.check()
            identity = transactional_ids.create(
                request.transactional_id, call, timeout_ms=timeout_ms, run_time_ms=run_time_ms
            )
        elif is_copy:
            pass
        elif identity.state is TransactionalIdState.ONGOING and request.keep_prepared:
            identity = transactional_ids.keep(
                identity, call, timeout_ms=timeout_ms, run_time_ms=run_time_ms
            )
        elif identity.state is TransactionalIdState.ONGOING:
            assert identity.txn_id is not None
            ongoing = runtime.shard.live[identity.txn_id]
            if ongoing.may_be_prepared and not request.enable_2pc:
                raise may_be_prepared(ongoing.txn_id, identity.transactional_id)
            end = EndTxnRequest(ongoing.txn_id, TxnAction.ABORT)
            decision = runtime.shard.end(end, time_ms=runtime.time_ms())
            runtime.carry_out(decision, taken_over(reply))
            self._take_over(request, reply, deadline_s)
            return
        elif identity.state in rules.COMPLETED:
            self._park(identity, reply, deadline_s, partial(self._take_over, request))
            return
        else:
            identity = transactional_ids.take_over(
                identity, call, timeout_ms=timeout_ms, run_time_ms=run_time_ms
            )
        runtime.answer(reply, responses.taken_over(identity))

    # Transactions.

    def new_txn(self, request: NewTxn, participants: Sequence[Participant], reply: Reply) -> None:
        """Handle CommandNewTxn of a transactional producer, or of a named sequence."""
        identity, named_sequence = request.identity, request.named_sequence
        if identity is not None and named_sequence is not None:
            raise InvalidArgument("a transaction has an identity or a named sequence, not both")
        if identity is not None:
            # It may wait, and would keep its whole frame alive.
            shown = detached(identity)
            kept = request._replace(identity=shown)
            self._begin(kept, shown, participants, reply, self._deadline_s())
        elif named_sequence is not None:
            self._begin_named(request, named_sequence_of(named_sequence), participants, reply)

    def _begin(
        self,
        request: NewTxn,
        shown: common.ProducerIdentity,
        participants: Sequence[Participant],
        reply: Reply,
        deadline_s: float,
    ) -> None:
        runtime = self._runtime
        identity = runtime.transactional_ids.get(shown.transactional_id)
        pair = pair_of(shown)
        try:
            rules.check_begin(identity, pair)
        except ConcurrentTransactions:
            again = partial(self._begin, request, shown, participants)
            self._park(identity, reply, deadline_s, again)
            return
        _check_follows(identity, request)
        if identity.state is TransactionalIdState.ONGOING:
            # The answer was lost: the transaction has begun already.
            assert identity.txn_id is not None
            transaction = runtime.shard.live[identity.txn_id]
            self._add(transaction, participants, request.ledger_ids)
        else:
            transaction = runtime.open(
                participants,
                reply,
                timeout_ms=0 if identity.two_phase_commit else identity.timeout_ms,
                txn_owner=TxnOwner(identity.transactional_id, pair),
                expires=not identity.two_phase_commit,
                ledger_ids=request.ledger_ids,
            )
            runtime.transactional_ids.begin(
                identity, transaction.txn_id, run_time_ms=runtime.run_time_ms()
            )
        self._answer_opened(transaction, reply)

    def _begin_named(
        self,
        request: NewTxn,
        asked: NamedSequence,
        participants: Sequence[Participant],
        reply: Reply,
    ) -> None:
        runtime = self._runtime
        runtime.named_sequences.check_new(asked)
        name = runtime.named_sequences.get(asked.name)
        try:
            verdict = name_rules.judge(name, asked)
        except SequenceCommitted as error:
            # A client that learns of it may commit what follows from it, at another coordinator.
            error.details = {**error.details, "stamp": str(runtime.shard.clock.last)}
            raise
        if verdict is name_rules.SequenceVerdict.JOIN:
            assert name.open_txn_id is not None
            transaction = runtime.shard.live[name.open_txn_id]
            self._add(transaction, participants)
            runtime.named_sequences.joined(name, asked)
            self._answer_opened(transaction, reply)
            return
        if verdict is name_rules.SequenceVerdict.ABORT_AND_BEGIN:
            assert name.open_txn_id is not None
            end = EndTxnRequest(name.open_txn_id, TxnAction.ABORT)
            decision = runtime.shard.end(end, time_ms=runtime.time_ms())
            runtime.carry_out(decision, taken_over(reply))
        transaction = runtime.open(participants, reply, timeout_ms=request.txn_timeout_ms)
        runtime.named_sequences.begun(
            runtime.named_sequences.get(asked.name), asked, transaction.txn_id
        )
        self._answer_opened(transaction, reply)

    def _add(
        self,
        transaction: Transaction,
        participants: Sequence[Participant],
        ledger_ids: Sequence[int] = (),
    ) -> None:
        """Add participants, with a record for partitions and a record for subscriptions."""
        runtime = self._runtime
        partitions = [
            participant for participant in participants if isinstance(participant, PartitionName)
        ]
        subscriptions = [
            participant for participant in participants if isinstance(participant, SubscriptionName)
        ]
        # Partitions come first.
        of_partitions, of_subscriptions = (
            ledger_ids[: len(partitions)],
            ledger_ids[len(partitions) :],
        )
        for kind, ids in ((partitions, of_partitions), (subscriptions, of_subscriptions)):
            if kind:
                runtime.carry_out(
                    runtime.shard.add_participants(
                        transaction.txn_id, kind, time_ms=runtime.time_ms(), ledger_ids=ids
                    )
                )

    def _answer_opened(self, transaction: Transaction, reply: Reply) -> None:
        opened = Opened(transaction.txn_id, transaction.timeout_ms)
        self._runtime.answer_opened(reply, opened)

    def check_txn_owner(self, txn_id: TxnID, request: Any) -> None:
        """Check that a client may add participants to a transaction that a transactional id owns.

        Raises:
            ProducerFenced: another instance has taken over.
            InvalidTxnState: another transaction is ongoing.
            InvalidArgument: a transactional id owns the transaction, and the client names none.
        """
        runtime = self._runtime
        if request.HasField("identity"):
            identity = runtime.transactional_ids.get(request.identity.transactional_id)
            rules.require_current(identity, pair_of(request.identity))
            if identity.txn_id != txn_id:
                raise InvalidTxnState(
                    f"{txn_id} is not the transaction of {identity.transactional_id!r}"
                )
            if identity.is_kept:
                raise InvalidTxnState(f"{txn_id} is prepared: it takes nothing more")
            return
        transaction = runtime.shard.live.get(txn_id)
        if transaction is not None and transaction.txn_owner is not None:
            raise InvalidArgument(
                f"{txn_id} is of {transaction.txn_owner.transactional_id!r}: name the identity"
            )

    def end_txn(self, request: EndTxn, shown: common.ProducerIdentity, reply: Reply) -> None:
        """CommandEndTxn of a transactional producer.

        Raises:
            ProducerFenced, InvalidTxnState, ConcurrentTransactions: as identity.judge_end.
        """
        runtime = self._runtime
        identity = runtime.transactional_ids.get(shown.transactional_id)
        verdict = rules.judge_end(
            identity, pair_of(shown), action_of(request), keep_epoch=request.keep_epoch
        )
        if verdict is EndVerdict.RAISE:
            raised = runtime.transactional_ids.raise_epoch(
                identity, run_time_ms=runtime.run_time_ms()
            )
            runtime.answer(reply, responses.ended_before(raised, runtime.shard.clock.last))
            return
        txn_id = identity.txn_id
        if txn_id is None or (verdict is EndVerdict.REPEAT and txn_id not in runtime.shard.live):
            runtime.answer(reply, responses.ended_before(identity, runtime.shard.clock.last))
            return
        if request.txn_id is not None and request.txn_id != txn_id:
            raise InvalidTxnState(
                f"{request.txn_id} is not the transaction of"
                f" {identity.transactional_id!r}, which is {txn_id}",
                txn_id=txn_id,
            )
        runtime.end(
            end_of(request, txn_id),
            reply,
            until_ended=request.wait_finished,
            by_hand=request.by_hand,
        )

    # Administration.

    def _describe(self, request: pb.CommandDescribeTransactionalId, reply: Reply) -> None:
        identity = self._runtime.transactional_ids.get(request.transactional_id)
        body = pb.CommandDescribeTransactionalIdResponse(
            description=responses.described_identity(identity)
        )
        self._runtime.answer(reply, body)

    def _list(self, request: pb.CommandListTransactionalIds, reply: Reply) -> None:
        limit = rows_of(request.limit)
        body = pb.CommandListTransactionalIdsResponse()
        for identity in self._runtime.transactional_ids.matching(request.pattern):
            if len(body.descriptions) == limit:
                body.truncated = True
                break
            body.descriptions.append(responses.described_identity(identity))
        self._runtime.answer(reply, body)

    def _remove_name(self, request: pb.CommandRemoveName, reply: Reply) -> None:
        self._runtime.named_sequences.remove(request.name)
        self._runtime.answer(reply, pb.CommandRemoveNameResponse())

    def _describe_name(self, request: pb.CommandDescribeName, reply: Reply) -> None:
        name = self._runtime.named_sequences.get(request.name)
        self._runtime.answer(reply, responses.described_name(name))

    # Waiting.

    def _deadline_s(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.time() + self._runtime.config.constants.takeover_wait_ms / 1_000

    def _park(
        self,
        identity: TransactionalIdMetadata,
        reply: Reply,
        deadline_s: float,
        again: Callable[[Reply, float], None],
    ) -> None:
        """Try again when the id's last transaction has ended, if that is soon (rule k)."""
        runtime = self._runtime
        assert identity.txn_id is not None
        waiting = True

        def refuse() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                runtime.refuse(
                    ConcurrentTransactions(
                        f"the last transaction of {identity.transactional_id!r} is still ending"
                    ),
                    reply,
                )

        def retry() -> None:
            nonlocal waiting
            if not waiting:
                return
            waiting = False
            timer.cancel()
            try:
                again(reply, deadline_s)
            except MagnetarError as error:
                runtime.refuse(error, reply)

        timer = asyncio.get_running_loop().call_at(deadline_s, refuse)
        runtime.when_ended(identity.txn_id, retry)


def _check_follows(identity: TransactionalIdMetadata, request: NewTxn) -> None:
    """Check that a transaction may begin behind the one that its producer knows as the latest.

    Raises:
        InvalidTxnState: another one is the latest. No effect.
    """
    if request.follows_given and identity.txn_id != request.follows:
        raise InvalidTxnState(
            f"the latest transaction of {identity.transactional_id!r} is {identity.txn_id}, and not"
            f" {request.follows}",
            transactional_id=identity.transactional_id,
        )
