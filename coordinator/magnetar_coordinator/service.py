"""The coordinator's commands: what arrives on a link or in a unary call, decided by the shard.

Source: PIP-31, Wire Protocol Changes, New Commands, and TC Request Processing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from magnetar_coordinator.broker_link import PROTOCOL_VERSION
from magnetar_coordinator.descriptions import describe, describe_outcome
from magnetar_coordinator.identities import check_fingerprint
from magnetar_coordinator.identity import Identity
from magnetar_coordinator.identity_commands import IdentityCommands
from magnetar_coordinator.listing import TxnListing
from magnetar_coordinator.records import WIRE_STATUS, TxnEnded, writer_counts
from magnetar_coordinator.shard import (
    End,
    OutcomeMissing,
    not_open,
    repeat_accept_loss,
    repeat_end,
)
from magnetar_coordinator.transaction import (
    Counts,
    Participant,
    Transaction,
    TxnAction,
    TxnStatus,
    WriterCounts,
)
from magnetar_coordinator.wire import put_identity, put_txn_id
from magnetar_core.commands import AnswerSizes, CommandSession, Handler, Reply
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import (
    ClusterMismatch,
    InvalidArgument,
    InvalidTxnState,
    LogUnavailable,
    MagnetarError,
    from_wire,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_core.repeats import Repeats
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2
from magnetar_core.wire import transaction_pb2 as pb

if TYPE_CHECKING:
    from magnetar_coordinator.coordinator import Coordinator

log = logging.getLogger(__name__)

# Answers that are made only while the client takes them: so much is reckoned for each, and nearly
# all are far smaller.
_LIST_BYTES = 4 << 20
ANSWER_SIZES: AnswerSizes = {
    name: lambda _: _LIST_BYTES for name in ("list_txns", "describe_txn", "list_transactional_ids")
}


class CoordinatorServer:
    """What a coordinator is to its transport.

    Attributes:
        handlers: by the command's field in the envelope; for streams and unary calls alike.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.answer_sizes: AnswerSizes = ANSWER_SIZES
        self.handlers: dict[str, Handler] = {
            "hello": self._hello,
            "new_txn": self._serving(self._new_txn),
            "add_partition_to_txn": self._serving(self._add_partitions),
            "add_subscription_to_txn": self._serving(self._add_subscriptions),
            "end_txn": self._serving(self._end_txn),
            "describe_txn": self._serving(self._describe_txn),
            "list_txns": self._serving(TxnListing(coordinator).list_txns),
            "accept_txn_loss": self._serving(self._accept_txn_loss),
            "abort_hanging_txn": self._serving(self._abort_hanging_txn),
        }
        self._identity_commands = IdentityCommands(coordinator)
        for name, handler in self._identity_commands.handlers.items():
            self.handlers[name] = self._serving(handler)
        # InitProducer keeps its tokens in the store: a copy must take over nothing, ever.
        repeats = Repeats()
        for name in ("new_txn", "remove_name"):
            self.handlers[name] = repeats.once(self.handlers[name])

    def accept(self, write: Callable[[service_pb2.Frame], None]) -> CommandSession:
        """A conversation begins."""
        return CommandSession(self.handlers, write, self.refuse, self.answer_sizes)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send a refusal once all that it depends on is durable."""
        self._coordinator.refuse(error, reply)

    def ended(
        self, txn_id: TxnID | None, status: TxnStatus, identity: Identity | None = None
    ) -> pb.CommandEndTxnResponse:
        """What is told of an end: with an identity, the pair for what comes next."""
        response = pb.CommandEndTxnResponse(status=WIRE_STATUS[status])
        if txn_id is not None:
            put_txn_id(response.txn_id, txn_id)
            identity = identity or self._coordinator.identities.of_txn(txn_id)
        if identity is not None:
            put_identity(response.identity, identity.transactional_id, identity.current)
        return response

    def _serving(self, handler: Handler) -> Handler:
        coordinator = self._coordinator

        def handle(request: Any, reply: Reply) -> None:
            if coordinator.is_serving:
                handler(request, reply)
            else:
                # At once: when writing has failed, nothing becomes durable any more.
                reply.fail(LogUnavailable("the coordinator is starting or stopping; ask again"))

        return handle

    def _hello(self, request: common.CommandHello, reply: Reply) -> None:
        ours, theirs = self._coordinator.config.cluster_hash, request.cluster_hash
        if ours and theirs and ours != theirs:
            raise ClusterMismatch(cluster_hash=ours)
        frame_bytes_max = FRAME_BYTES_MAX
        if reply.session is not None:
            reply.session.client_name = request.client_name
            frame_bytes_max = reply.session.frame_bytes_max
        reply.send(
            common.CommandHelloResponse(
                protocol_version=PROTOCOL_VERSION,
                server_name=self._coordinator.config.name,
                cluster_hash=ours,
                frame_bytes_max=frame_bytes_max,
            )
        )

    def _new_txn(self, request: pb.CommandNewTxn, reply: Reply) -> None:
        """PIP-31, CommandNewTxn."""
        coordinator = self._coordinator
        participants: tuple[Participant, ...] = ()
        if request.partitions or request.subscriptions:
            participants = (
                *_partitions(request.partitions),
                *_subscriptions(request.subscriptions),
            )
        if request.HasField("identity") or request.HasField("named_sequence"):
            self._identity_commands.new_txn(request, participants, reply)
            return
        coordinator.check_free_space()
        coordinator.session_quota.check(reply)
        config = coordinator.config
        timeout_ms = request.txn_timeout_ms or config.txn_timeout_ms_default
        decision = coordinator.shard.new_txn(
            timeout_ms,
            participants,
            run_time_ms=coordinator.run_time_ms(),
            time_ms=coordinator.time_ms(),
        )
        coordinator.carry_out(decision)
        coordinator.session_quota.begun(reply, decision.txn_id)
        response = pb.CommandNewTxnResponse(txn_timeout_ms=timeout_ms)
        put_txn_id(response.txn_id, decision.txn_id)
        coordinator.answer_opened(reply, response)

    def _add_partitions(self, request: pb.CommandAddPartitionToTxn, reply: Reply) -> None:
        """PIP-31, CommandAddPartitionToTxn."""
        txn_id = _txn_id(request)
        self._identity_commands.check_owner(txn_id, request)
        body = pb.CommandAddPartitionToTxnResponse()
        put_txn_id(body.txn_id, txn_id)
        self._add(txn_id, _partitions(request.partitions), body, reply)

    def _add_subscriptions(self, request: pb.CommandAddSubscriptionToTxn, reply: Reply) -> None:
        """PIP-31, CommandAddSubscriptionToTxn."""
        txn_id = _txn_id(request)
        self._identity_commands.check_owner(txn_id, request)
        body = pb.CommandAddSubscriptionToTxnResponse()
        put_txn_id(body.txn_id, txn_id)
        self._add(txn_id, _subscriptions(request.subscriptions), body, reply)

    def _add(
        self, txn_id: TxnID, participants: Iterable[Participant], body: Any, reply: Reply
    ) -> None:
        coordinator = self._coordinator
        try:
            decision = coordinator.shard.add_participants(
                txn_id, participants, time_ms=coordinator.time_ms()
            )
        except OutcomeMissing:

            def refuse(outcome: TxnEnded) -> Any:
                raise not_open(txn_id, outcome.status)

            coordinator.answer_from_outcome(txn_id, reply, refuse)
            return
        coordinator.carry_out(decision)
        coordinator.answer(reply, body)

    def _end_txn(self, request: pb.CommandEndTxn, reply: Reply) -> None:
        """PIP-31, CommandEndTxn."""
        coordinator = self._coordinator
        action = _action(request)
        if request.HasField("identity"):
            txn_id = self._identity_commands.judge_end(request, action, reply)
            if txn_id is None:
                return
        else:
            txn_id = _txn_id(request)
            _require_unowned(coordinator.shard.live.get(txn_id))
        end = _end(txn_id, action, request)
        try:
            decision = coordinator.shard.end(end, time_ms=coordinator.time_ms())
        except OutcomeMissing:

            def repeat(outcome: TxnEnded) -> Any:
                decision = repeat_end(end, outcome.status, outcome.selection_digest)
                return self.ended(end.txn_id, decision.status)

            coordinator.answer_from_outcome(end.txn_id, reply, repeat)
            return
        # Before it is carried out: without participants it ends on the spot.
        if request.wait_finished and end.txn_id in coordinator.shard.live:
            coordinator.answer_when_ended(end.txn_id, reply)
            coordinator.carry_out(decision)
        else:
            coordinator.carry_out(decision)
            coordinator.answer(reply, self.ended(end.txn_id, decision.status))

    def _describe_txn(self, request: pb.CommandDescribeTxn, reply: Reply) -> None:
        coordinator = self._coordinator
        txn_id = _txn_id(request)
        try:
            found = coordinator.shard.find(txn_id)
        except OutcomeMissing:
            coordinator.answer_from_outcome(txn_id, reply, self._described_outcome)
            return
        if isinstance(found, TxnEnded):
            coordinator.answer(reply, self._described_outcome(found))
            return
        named = coordinator.names.of_txn(txn_id)
        description = describe(found, named, run_time_ms=coordinator.run_time_ms())
        coordinator.answer(reply, pb.CommandDescribeTxnResponse(transaction=description))

    def _described_outcome(self, outcome: TxnEnded) -> pb.CommandDescribeTxnResponse:
        description = describe_outcome(outcome, run_time_ms=self._coordinator.run_time_ms())
        return pb.CommandDescribeTxnResponse(transaction=description)

    def _accept_txn_loss(self, request: pb.CommandAcceptTxnLoss, reply: Reply) -> None:
        coordinator = self._coordinator
        txn_id = _txn_id(request)
        body = pb.CommandAcceptTxnLossResponse(txn_id=request.txn_id)
        try:
            decision = coordinator.shard.accept_loss(txn_id, time_ms=coordinator.time_ms())
        except OutcomeMissing:

            def repeat(outcome: TxnEnded) -> Any:
                repeat_accept_loss(txn_id, outcome.status)
                return body

            coordinator.answer_from_outcome(txn_id, reply, repeat)
            return
        coordinator.carry_out(decision)
        coordinator.retry_when_durable(txn_id)
        coordinator.answer(reply, body)

    def _abort_hanging_txn(self, request: pb.CommandAbortHangingTxn, reply: Reply) -> None:
        """KIP-664, an administrative abort: this coordinator does not hold it open, or not yet.

        Rule f: the broker acts on the coordinator's word, and only once that is durable.
        """
        coordinator = self._coordinator
        txn_id = _txn_id(request)
        coordinator.pass_over(txn_id)
        coordinator.shard.require_fenced(txn_id)
        (partition,) = _partitions([request.partition])
        hanging = pb.HangingTxn(
            start_offset=request.start_offset, producer_epoch=request.producer_epoch
        )
        participant: Participant = partition
        body: Any
        if request.subscription:
            participant = SubscriptionName(*partition, request.subscription)
            body = pb.CommandEndTxnOnSubscription(
                subscription=participant.to_wire(), txn_action=common.ABORT, hanging=hanging
            )
        else:
            body = pb.CommandEndTxnOnPartition(
                partition=partition.to_wire(), txn_action=common.ABORT, hanging=hanging
            )
        put_txn_id(body.txn_id, txn_id)

        def on_answer(name: str, answer: Any) -> None:
            if name == "error":
                coordinator.refuse(from_wire(answer), reply)
            else:
                response = pb.CommandAbortHangingTxnResponse(txn_id=request.txn_id)
                coordinator.answer(reply, response)

        log.warning(
            "an administrator aborts %s on %s", txn_id, participant, extra={"txn_id": txn_id}
        )
        coordinator.abort_hanging(participant, body, on_answer)


def _txn_id(request: Any) -> TxnID:
    if not request.HasField("txn_id"):
        raise InvalidArgument("txn_id is missing")
    return TxnID.from_wire(request.txn_id)


def _partitions(wire: Iterable[common.Partition]) -> list[PartitionName]:
    names = [PartitionName.from_wire(one) for one in wire]
    for name in names:
        if not name.topic:
            raise InvalidArgument("a partition without a topic")
    return names


def _subscriptions(wire: Iterable[common.Subscription]) -> list[SubscriptionName]:
    names = [SubscriptionName.from_wire(one) for one in wire]
    for name in names:
        if not name.topic or not name.subscription:
            raise InvalidArgument("a subscription without a topic or a name")
    return names


def _require_unowned(transaction: Transaction | None) -> None:
    """Whoever ends a transactional producer's transaction has to know its pair."""
    if transaction is not None and transaction.owner is not None:
        raise InvalidTxnState(
            f"{transaction.txn_id} is of {transaction.owner.transactional_id!r}: end it with that"
            " identity, or force-terminate it",
            transactional_id=transaction.owner.transactional_id,
        )


def _action(request: pb.CommandEndTxn) -> TxnAction:
    try:
        return TxnAction(request.txn_action)
    except ValueError as error:
        raise InvalidArgument(f"unknown action {request.txn_action}") from error


def _end(txn_id: TxnID, action: TxnAction, request: pb.CommandEndTxn) -> End:
    counts = _counts(request) if request.counts_given else None
    selection = tuple(request.selected_writer_ids) if request.selection_given else None
    check_fingerprint(request.fingerprint)
    return End(txn_id, action, counts, selection, request.fingerprint)


def _counts(request: pb.CommandEndTxn) -> Counts:
    counts: dict[Participant, WriterCounts] = {}
    for partition in request.partition_counts:
        name = PartitionName.from_wire(partition.partition)
        counts[name] = writer_counts(partition.producers)
    for subscription in request.subscription_counts:
        cursor = SubscriptionName.from_wire(subscription.subscription)
        counts[cursor] = writer_counts(subscription.consumers)
    if len(counts) != len(request.partition_counts) + len(request.subscription_counts):
        raise InvalidArgument("a participant is counted twice")
    return counts
