"""Commands about transactional ids and names: who may act, what is taken over, what is parked.

Source: KIP-939, RPC Changes; docs/design/0002-two-phase-commit.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from magnetar_coordinator import identity as rules
from magnetar_coordinator import named_sequences as name_rules
from magnetar_coordinator.identity import EndVerdict, Identity, IdentityState, InitCall, Pair
from magnetar_coordinator.named_sequences import NamedSequence
from magnetar_coordinator.records import WIRE_STATE
from magnetar_coordinator.shard import End
from magnetar_coordinator.transaction import Owner, Participant, Transaction, TxnAction, TxnStatus
from magnetar_coordinator.wire import put_named_sequence, put_txn_id
from magnetar_core.commands import Handler, Reply
from magnetar_core.errors import (
    ConcurrentTransactions,
    InvalidArgument,
    InvalidTxnState,
    MagnetarError,
    TransactionalIdAuthorizationFailed,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

if TYPE_CHECKING:
    from magnetar_coordinator.coordinator import Coordinator

_LIST_LIMIT_DEFAULT = 1_000


class IdentityCommands:
    """Those of one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.handlers: Mapping[str, Handler] = {
            "init_producer": self._init_producer,
            "describe_transactional_id": self._describe,
            "list_transactional_ids": self._list,
            "remove_name": self._remove_name,
            "describe_name": self._describe_name,
        }

    # Taking over.

    def _init_producer(self, request: pb.CommandInitProducer, reply: Reply) -> None:
        """KIP-939, InitProducerId."""
        config = self._coordinator.config
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
        coordinator = self._coordinator
        identities, run_time_ms = coordinator.identities, coordinator.run_time_ms()
        timeout_ms = (
            rules.NONE
            if request.enable_2pc
            else request.txn_timeout_ms or coordinator.config.txn_timeout_ms_default
        )
        identity = identities.find(request.transactional_id)
        call = _init_call(request)
        if identity is None:
            coordinator.check_free_space()
            identity = identities.create(
                request.transactional_id, call, timeout_ms=timeout_ms, run_time_ms=run_time_ms
            )
        elif rules.is_repeated_init(identity, call):
            pass
        elif identity.state is IdentityState.ONGOING and request.keep_prepared:
            identity = identities.keep(
                identity, call, timeout_ms=timeout_ms, run_time_ms=run_time_ms
            )
        elif identity.state is IdentityState.ONGOING:
            assert identity.txn_id is not None
            end = End(identity.txn_id, TxnAction.ABORT)
            coordinator.carry_out(coordinator.shard.end(end, time_ms=coordinator.time_ms()))
            self._take_over(request, reply, deadline_s)
            return
        elif identity.state in rules.COMPLETED:
            self._park(identity, reply, deadline_s, partial(self._take_over, request))
            return
        else:
            identity = identities.take_over(
                identity, call, timeout_ms=timeout_ms, run_time_ms=run_time_ms
            )
        coordinator.answer(reply, _taken_over(identity))

    # Transactions.

    def new_txn(
        self, request: pb.CommandNewTxn, participants: tuple[Participant, ...], reply: Reply
    ) -> None:
        """CommandNewTxn of a transactional producer, or of a named sequence."""
        if request.HasField("identity") and request.HasField("named_sequence"):
            raise InvalidArgument("a transaction has an identity or a named sequence, not both")
        if request.HasField("identity"):
            self._begin(request, participants, reply, self._deadline_s())
        else:
            self._begin_named(request, participants, reply)

    def _begin(
        self,
        request: pb.CommandNewTxn,
        participants: tuple[Participant, ...],
        reply: Reply,
        deadline_s: float,
    ) -> None:
        coordinator = self._coordinator
        identity = coordinator.identities.get(request.identity.transactional_id)
        pair = _pair(request.identity)
        try:
            rules.check_begin(identity, pair)
        except ConcurrentTransactions:
            self._park(identity, reply, deadline_s, partial(self._begin, request, participants))
            return
        if identity.state is IdentityState.ONGOING:
            # The answer was lost: it has begun.
            assert identity.txn_id is not None
            transaction = coordinator.shard.live[identity.txn_id]
            self._add(transaction, participants)
        else:
            transaction = self._open(
                participants,
                reply,
                timeout_ms=0 if identity.two_phase_commit else identity.timeout_ms,
                owner=Owner(identity.transactional_id, pair),
                expires=not identity.two_phase_commit,
            )
            coordinator.identities.begin(
                identity, transaction.txn_id, run_time_ms=coordinator.run_time_ms()
            )
        self._answer_opened(transaction, reply)

    def _begin_named(
        self, request: pb.CommandNewTxn, participants: tuple[Participant, ...], reply: Reply
    ) -> None:
        coordinator = self._coordinator
        wire = request.named_sequence
        asked = NamedSequence(wire.name, wire.sequence, wire.run_token, wire.fingerprint)
        coordinator.names.check_new(asked)
        name = coordinator.names.get(asked.name)
        verdict = name_rules.judge(name, asked)
        if verdict is name_rules.Verdict.JOIN:
            assert name.open_txn_id is not None
            transaction = coordinator.shard.live[name.open_txn_id]
            self._add(transaction, participants)
            coordinator.names.joined(name, asked)
            self._answer_opened(transaction, reply)
            return
        if verdict is name_rules.Verdict.ABORT_AND_BEGIN:
            assert name.open_txn_id is not None
            end = End(name.open_txn_id, TxnAction.ABORT)
            coordinator.carry_out(coordinator.shard.end(end, time_ms=coordinator.time_ms()))
        transaction = self._open(participants, reply, timeout_ms=request.txn_timeout_ms)
        coordinator.names.begun(coordinator.names.get(asked.name), asked, transaction.txn_id)
        self._answer_opened(transaction, reply)

    def _open(
        self,
        participants: tuple[Participant, ...],
        reply: Reply,
        *,
        timeout_ms: int,
        owner: Owner | None = None,
        expires: bool = True,
    ) -> Transaction:
        coordinator = self._coordinator
        coordinator.check_free_space()
        coordinator.session_quota.check(reply)
        decision = coordinator.shard.new_txn(
            timeout_ms,
            participants,
            run_time_ms=coordinator.run_time_ms(),
            time_ms=coordinator.time_ms(),
            owner=owner,
            expires=expires,
        )
        coordinator.carry_out(decision)
        coordinator.session_quota.begun(reply, decision.txn_id)
        return coordinator.shard.live[decision.txn_id]

    def _add(self, transaction: Transaction, participants: tuple[Participant, ...]) -> None:
        """One record for partitions, and one for subscriptions."""
        coordinator = self._coordinator
        partitions = [one for one in participants if isinstance(one, PartitionName)]
        subscriptions = [one for one in participants if isinstance(one, SubscriptionName)]
        for kind in (partitions, subscriptions):
            if kind:
                coordinator.carry_out(
                    coordinator.shard.add_participants(
                        transaction.txn_id, kind, time_ms=coordinator.time_ms()
                    )
                )

    def _answer_opened(self, transaction: Transaction, reply: Reply) -> None:
        response = pb.CommandNewTxnResponse(txn_timeout_ms=transaction.timeout_ms)
        put_txn_id(response.txn_id, transaction.txn_id)
        self._coordinator.answer_opened(reply, response)

    def check_owner(self, txn_id: TxnID, request: Any) -> None:
        """Whether who adds participants may, for an owned transaction.

        Raises:
            ProducerFenced: another instance has taken over.
            InvalidTxnState: it is another transaction than the ongoing one.
            InvalidArgument: an owned transaction, and no identity is given.
        """
        coordinator = self._coordinator
        if request.HasField("identity"):
            identity = coordinator.identities.get(request.identity.transactional_id)
            rules.require_current(identity, _pair(request.identity))
            if identity.txn_id != txn_id:
                raise InvalidTxnState(
                    f"{txn_id} is not the transaction of {identity.transactional_id!r}"
                )
            if identity.is_kept:
                raise InvalidTxnState(f"{txn_id} is prepared: it takes nothing more")
            return
        transaction = coordinator.shard.live.get(txn_id)
        if transaction is not None and transaction.owner is not None:
            raise InvalidArgument(
                f"{txn_id} is of {transaction.owner.transactional_id!r}: name the identity"
            )

    def judge_end(self, request: pb.CommandEndTxn, action: TxnAction, reply: Reply) -> TxnID | None:
        """Whose end it is, and what to do about it.

        Returns:
            The transaction to end, or whose end to repeat; None: it is answered.
        Raises:
            ProducerFenced, InvalidTxnState, ConcurrentTransactions: as identity.judge_end.
        """
        coordinator = self._coordinator
        identity = coordinator.identities.get(request.identity.transactional_id)
        verdict = rules.judge_end(identity, _pair(request.identity), action)
        if verdict is EndVerdict.RAISE:
            raised = coordinator.identities.raise_epoch(
                identity, run_time_ms=coordinator.run_time_ms()
            )
            self._answer_raised(raised, reply)
            return None
        txn_id = identity.txn_id
        if txn_id is None or (
            verdict is EndVerdict.REPEAT and txn_id not in coordinator.shard.live
        ):
            self._answer_raised(identity, reply)
            return None
        if request.HasField("txn_id") and TxnID.from_wire(request.txn_id) != txn_id:
            raise InvalidTxnState(
                f"{TxnID.from_wire(request.txn_id)} is not the transaction of"
                f" {identity.transactional_id!r}, which is {txn_id}",
                txn_id=txn_id,
            )
        return txn_id

    def _answer_raised(self, identity: Identity, reply: Reply) -> None:
        """An end of what is complete, or of nothing."""
        action = rules.ACTION_OF_STATE[identity.state]
        ended = TxnStatus.COMMITTED if action is TxnAction.COMMIT else TxnStatus.ABORTED
        txn_id = identity.txn_id
        self._coordinator.answer(reply, self._coordinator.server.ended(txn_id, ended, identity))

    # Administration.

    def _describe(self, request: pb.CommandDescribeTransactionalId, reply: Reply) -> None:
        identity = self._coordinator.identities.get(request.transactional_id)
        body = pb.CommandDescribeTransactionalIdResponse(description=describe_identity(identity))
        self._coordinator.answer(reply, body)

    def _list(self, request: pb.CommandListTransactionalIds, reply: Reply) -> None:
        limit = request.limit or _LIST_LIMIT_DEFAULT
        body = pb.CommandListTransactionalIdsResponse()
        for identity in self._coordinator.identities.matching(request.pattern):
            if len(body.descriptions) == limit:
                body.truncated = True
                break
            body.descriptions.append(describe_identity(identity))
        self._coordinator.answer(reply, body)

    def _remove_name(self, request: pb.CommandRemoveName, reply: Reply) -> None:
        self._coordinator.names.remove(request.name)
        self._coordinator.answer(reply, pb.CommandRemoveNameResponse())

    def _describe_name(self, request: pb.CommandDescribeName, reply: Reply) -> None:
        name = self._coordinator.names.get(request.name)
        body = pb.CommandDescribeNameResponse()
        if name.committed is not None:
            body.has_committed, body.committed_sequence = True, name.committed
            body.committed_fingerprint = name.fingerprint
        if name.open is not None and name.open_txn_id is not None:
            put_named_sequence(body.open, name.open)
            put_txn_id(body.open_txn_id, name.open_txn_id)
        self._coordinator.answer(reply, body)

    # Waiting.

    def _deadline_s(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.time() + self._coordinator.config.takeover_wait_ms / 1_000

    def _park(
        self,
        identity: Identity,
        reply: Reply,
        deadline_s: float,
        again: Callable[[Reply, float], None],
    ) -> None:
        """Try again when the identity's last transaction has ended, if that is soon (rule k)."""
        coordinator = self._coordinator
        assert identity.txn_id is not None
        waiting = True

        def refuse() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                coordinator.refuse(
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
                coordinator.refuse(error, reply)

        timer = asyncio.get_running_loop().call_at(deadline_s, refuse)
        coordinator.when_ended(identity.txn_id, retry)


def describe_identity(identity: Identity) -> pb.TransactionalIdDescription:
    """KIP-939's five fields, and what belongs to them."""
    description = pb.TransactionalIdDescription(
        transactional_id=identity.transactional_id,
        state=WIRE_STATE[identity.state],
        producer_id=identity.producer.producer_id,
        producer_epoch=identity.producer.epoch,
        prev_producer_id=identity.prev.producer_id,
        next_producer_id=identity.next.producer_id,
        next_producer_epoch=identity.next.epoch,
        txn_timeout_ms=identity.timeout_ms,
        two_phase_commit=identity.two_phase_commit,
    )
    if identity.txn_id is not None:
        put_txn_id(description.txn_id, identity.txn_id)
    return description


def _taken_over(identity: Identity) -> pb.CommandInitProducerResponse:
    producer_id, epoch = identity.current
    ongoing = identity.producer if identity.is_kept else rules.NO_PAIR
    response = pb.CommandInitProducerResponse(
        producer_id=producer_id,
        producer_epoch=epoch,
        ongoing_producer_id=ongoing.producer_id,
        ongoing_producer_epoch=ongoing.epoch,
    )
    if identity.is_kept and identity.txn_id is not None:
        put_txn_id(response.ongoing_txn_id, identity.txn_id)
    return response


def _init_call(request: pb.CommandInitProducer) -> InitCall:
    """Raises: InvalidArgument: half a pair."""
    if request.HasField("producer_id") is not request.HasField("producer_epoch"):
        raise InvalidArgument("producer_id and producer_epoch belong together")
    if not request.HasField("producer_id"):
        return InitCall(request.call_token)
    return InitCall(request.call_token, Pair(request.producer_id, request.producer_epoch))


def _pair(wire: common.ProducerIdentity) -> Pair:
    return Pair(wire.producer_id, wire.producer_epoch)
