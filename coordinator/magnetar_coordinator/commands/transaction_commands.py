"""Commands of clients about transactions: begin, add participants, end.

Source: PIP-31, TC Request Processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar_coordinator.commands.parsing import (
    check_names,
    end_of,
    partitions_of,
    subscriptions_of,
    txn_id_of,
)
from magnetar_coordinator.commands.transactional_id_commands import TransactionalIdCommands
from magnetar_coordinator.metadata.transaction import Participant
from magnetar_coordinator.runtime import Runtime
from magnetar_coordinator.transactions import responses
from magnetar_coordinator.transactions.transaction_principal import (
    check_principal,
    may_end_any,
    may_use_id,
)
from magnetar_core.errors import AuthorizationFailed
from magnetar_core.history.events import ParticipantsConfirmed
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.transport.columns.end_txns import EndTxn
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.wire import transaction_pb2 as pb


class TransactionCommands:
    """Handlers of the commands that open transactions, add participants and end them."""

    def __init__(
        self, runtime: Runtime, transactional_id_commands: TransactionalIdCommands
    ) -> None:
        self._runtime = runtime
        self._transactional_id_commands = transactional_id_commands
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "new_txn": self._new_txn,
                "add_partition_to_txn": self._add_partitions,
                "add_subscription_to_txn": self._add_subscriptions,
                "end_txn": self._end_txn,
            }
        )

    def _new_txn(self, request: NewTxn, reply: Reply) -> None:
        """Handle CommandNewTxn (PIP-31)."""
        self._runtime.hear(request.seen_stamp)
        participants = request.participants
        check_names(participants)
        self._runtime.brokers.placement.require_placed(participants)
        if request.identity is not None or request.named_sequence is not None:
            self._transactional_id_commands.new_txn(request, participants, reply)
            return
        runtime = self._runtime
        timeout_ms = request.txn_timeout_ms or runtime.config.txn_timeout_ms_default
        hurried = not request.answer_before_durable
        transaction = runtime.open(participants, reply, timeout_ms=timeout_ms, hurried=hurried)
        answer = runtime.answer_opened if hurried else runtime.answer_issued
        answer(reply, Opened(transaction.txn_id, timeout_ms))

    def _add_partitions(self, request: pb.CommandAddPartitionToTxn, reply: Reply) -> None:
        """Handle CommandAddPartitionToTxn (PIP-31)."""
        txn_id = txn_id_of(request)
        self._transactional_id_commands.check_txn_owner(txn_id, request)
        self._check_principal(txn_id, reply, ending=False)
        self._runtime.hear(request.seen_stamp)
        self._add(
            txn_id,
            partitions_of(request.partitions),
            request.ledger_ids,
            reply,
            responses.partitions_added(txn_id),
        )

    def _add_subscriptions(self, request: pb.CommandAddSubscriptionToTxn, reply: Reply) -> None:
        """Handle CommandAddSubscriptionToTxn (PIP-31)."""
        txn_id = txn_id_of(request)
        self._transactional_id_commands.check_txn_owner(txn_id, request)
        self._check_principal(txn_id, reply, ending=False)
        self._runtime.hear(request.seen_stamp)
        names = subscriptions_of(request.subscriptions)
        body = responses.subscriptions_added(txn_id)
        self._add(txn_id, names, request.ledger_ids, reply, body)

    def _add(
        self,
        txn_id: TxnID,
        participants: Sequence[Participant],
        ledger_ids: Sequence[int],
        reply: Reply,
        body: Any,
    ) -> None:
        runtime = self._runtime
        runtime.brokers.placement.require_placed(participants)
        runtime.carry_out(
            runtime.shard.add_participants(
                txn_id, participants, time_ms=runtime.time_ms(), ledger_ids=ledger_ids
            )
        )
        told: ParticipantsConfirmed | None = None
        if runtime.history is not None:
            told = ParticipantsConfirmed(txn_id, tuple(participants))
        runtime.answer(reply, body, told)

    def _end_txn(self, request: EndTxn, reply: Reply) -> None:
        """Handle CommandEndTxn (PIP-31)."""
        if request.identity is not None:
            self._check_principal_of_id(request.identity.transactional_id, reply)
            self._transactional_id_commands.end_txn(request, request.identity, reply)
        else:
            end = end_of(request)
            self._check_principal(end.txn_id, reply, ending=True)
            self._runtime.end(
                end, reply, until_ended=request.wait_finished, by_hand=request.by_hand
            )

    def _check_principal(self, txn_id: TxnID, reply: Reply, *, ending: bool) -> None:
        """Check that a client may add to a transaction, or end it.

        Raises:
            AuthorizationFailed: it is another principal's. No effect.
            TxnNotFound, OutcomeMissing: as Shard.find.
        """
        if reply.rights is None:
            return
        found = self._runtime.shard.find(txn_id)
        sequence = self._runtime.named_sequences.of_txn(txn_id)
        named = None if sequence is None else sequence.name
        check_principal(found, named, reply, ending=ending)

    def _check_principal_of_id(self, transactional_id: str, reply: Reply) -> None:
        """Check that a client may end the transaction of a transactional id.

        The principal that began it may, also when the right to the id was withdrawn meanwhile.

        Raises:
            AuthorizationFailed: another principal began it. No effect.
        """
        rights = reply.rights
        if rights is None or may_use_id(rights, transactional_id) or may_end_any(rights):
            return
        txn_id = self._runtime.transactional_ids.get(transactional_id).txn_id
        if txn_id is None:
            raise AuthorizationFailed(f"{reply.principal} may not use {transactional_id!r}")
        check_principal(self._runtime.shard.find(txn_id), None, reply, ending=True)
