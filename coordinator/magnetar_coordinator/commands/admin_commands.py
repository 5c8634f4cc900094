"""Commands of administrators about transactions: describe, accept a loss, abort when hanging.

Source: KIP-664; docs/design/0001-protocol.md, Orphaned participants.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar_coordinator.commands.descriptions import describe, describe_ended
from magnetar_coordinator.commands.parsing import partitions_of, txn_id_of
from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_coordinator.metadata.transaction import Participant
from magnetar_coordinator.metadata.wire import put_txn_id
from magnetar_coordinator.runtime import Runtime
from magnetar_core.errors import from_wire
from magnetar_core.ids import SubscriptionName, TxnID
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)


class AdminCommands:
    """Handlers of the commands that administrators send to a coordinator."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "describe_txn": self._describe_txn,
                "accept_txn_loss": self._accept_txn_loss,
                "abort_hanging_txn": self._abort_hanging_txn,
            }
        )

    def _describe_txn(self, request: pb.CommandDescribeTxn, reply: Reply) -> None:
        runtime = self._runtime
        txn_id = txn_id_of(request)
        found = runtime.shard.find(txn_id)
        if isinstance(found, TxnEnded):
            description = describe_ended(runtime, found)
        else:
            description = describe(runtime, found)
        runtime.answer(reply, pb.CommandDescribeTxnResponse(transaction=description))

    def _accept_txn_loss(self, request: pb.CommandAcceptTxnLoss, reply: Reply) -> None:
        runtime = self._runtime
        txn_id = txn_id_of(request)
        runtime.carry_out(runtime.shard.accept_loss(txn_id, time_ms=runtime.time_ms()))
        runtime.when_durable(self._tell_loss, txn_id)
        runtime.answer(reply, pb.CommandAcceptTxnLossResponse(txn_id=request.txn_id))

    def _tell_loss(self, txn_id: TxnID) -> None:
        """Tell participants of a durable acceptance of loss, if they have not all ended."""
        transaction = self._runtime.shard.live.get(txn_id)
        if transaction is not None:
            transaction.is_loss_durable = True
            self._runtime.finisher.retry(txn_id)

    def _abort_hanging_txn(self, request: pb.CommandAbortHangingTxn, reply: Reply) -> None:
        """Abort a transaction that a broker holds open and this coordinator does not (KIP-664).

        Rule f: the broker acts on the coordinator's word, and only when that word is durable.
        """
        runtime = self._runtime
        txn_id = txn_id_of(request)
        runtime.brokers.pass_over(txn_id)
        runtime.shard.require_fenced(txn_id)
        (partition,) = partitions_of([request.partition])
        runtime.brokers.placement.require_placed([partition])
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
        body.incarnation = runtime.shard.incarnation

        def on_answer(name: str, answer: Any) -> None:
            if name == "error":
                runtime.refuse(from_wire(answer), reply)
            else:
                response = pb.CommandAbortHangingTxnResponse(txn_id=request.txn_id)
                runtime.answer(reply, response)

        log.warning(
            "an administrator aborts %s on %s", txn_id, participant, extra={"txn_id": txn_id}
        )
        # The broker is asked only when it is durable that the transaction is not open here.
        ask = partial(runtime.brokers.abort_hanging, participant, body, on_answer)
        runtime.when_durable(ask)
