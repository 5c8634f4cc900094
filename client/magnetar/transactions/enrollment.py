"""Tells the coordinator of a transaction about its participants.

Participants of the same turn of the event loop travel in the same command. Sends and acks do not
wait for the answer, only the end does: the watermark finds and aborts a participant of which the
coordinator is never told. The coordinator may answer NewTxn before the participants that it names
are durable: a caller that waits for a send or an ack has them confirmed.
Source: PIP-31, Public APIs, the steps of TypedMessageBuilder#send and Consumer#acknowledge;
docs/design/0001-protocol.md, One transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from magnetar.link.runtime import Scheduled
from magnetar.transactions.begun import Begun
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import Participant, PartitionName, SubscriptionName
from magnetar_core.wire import transaction_pb2


class Enrollment:
    """Adds the participants of a transaction, each once."""

    _scheduled: Scheduled | None = None
    _sealed = False
    _has_failed = False
    # Commands that the coordinator has not answered.
    _unanswered = 0
    _waiter: asyncio.Future[None] | None = None

    def __init__(
        self,
        begun: Begun,
        taking_part: Sequence[Participant],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """The enrollment of a transaction that has just begun.

        Args:
            taking_part: those that the coordinator knew from the beginning.
        """
        self._begun = begun
        self._runtime = begun.coordinator.runtime
        self._on_failed = on_failed
        self._added = set(taking_part)
        # In the order in which they were added.
        self._new: list[Participant] = []
        # What the coordinator has not confirmed to know.
        self._unconfirmed = () if begun.is_durable else taking_part

    def add(self, name: Participant) -> None:
        """Add a partition to which messages will be sent, or a subscription."""
        if name not in self._added:
            self._added.add(name)
            self._new.append(name)
            self._flush_soon()

    def confirm_soon(self) -> None:
        """Have the coordinator confirm the participants that NewTxn named: adding repeats that."""
        named, self._unconfirmed = self._unconfirmed, ()
        if named:
            self._new += named
            self._flush_soon()

    @property
    def is_answered(self) -> bool:
        """Whether the coordinator has answered everything, and no participant is new."""
        return self._scheduled is None and not self._unanswered

    async def answered(self) -> None:
        """Wait until the coordinator knows all participants, or `on_failed` was called."""
        if self._sealed or self._has_failed:
            # Answers are no longer handled, and so callers that wait for them would never wake up.
            return
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._runtime.guarded(self._fail, self._flush)
        if self._unanswered and not self._has_failed:
            if self._waiter is None:
                self._waiter = self._runtime.loop.create_future()
            await asyncio.shield(self._waiter)

    def _fail(self, error: MagnetarError) -> None:
        """Tell that some may never be added: the enrollment stops waiting for them."""
        self._has_failed = True
        if not self._sealed:
            self._on_failed(error)
            self._wake()

    def seal(self) -> None:
        """Ignore further answers, since the transaction has ended."""
        if self._sealed:
            return
        self._sealed = True
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._wake()
        # It refers to the transaction, which refers to this.
        del self._on_failed

    def _flush_soon(self) -> None:
        if self._scheduled is None:
            self._scheduled = self._runtime.call_soon(self._fail, self._flush)

    def _flush(self) -> None:
        self._scheduled = None
        new, self._new = self._new, []
        txn_id, identity = self._begun.txn_id.to_wire(), self._begun.identity
        identity_wire = None if identity is None else identity.to_wire()
        partitions = [name.to_wire() for name in new if isinstance(name, PartitionName)]
        if partitions:
            add_partitions = transaction_pb2.CommandAddPartitionToTxn(
                txn_id=txn_id, partitions=partitions, identity=identity_wire
            )
            self._ask(add_partitions)
        subscriptions = [name.to_wire() for name in new if isinstance(name, SubscriptionName)]
        if subscriptions:
            add_subscriptions = transaction_pb2.CommandAddSubscriptionToTxn(
                txn_id=txn_id, subscriptions=subscriptions, identity=identity_wire
            )
            self._ask(add_subscriptions)

    def _ask(
        self,
        command: transaction_pb2.CommandAddPartitionToTxn
        | transaction_pb2.CommandAddSubscriptionToTxn,
    ) -> None:
        self._unanswered += 1
        self._begun.coordinator.request_soon(command, self._on_result)

    def _on_result(self, result: Message | MagnetarError) -> None:
        self._unanswered -= 1
        if self._sealed:
            return
        if isinstance(result, MagnetarError):
            self._on_failed(result)
        if not self._unanswered:
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
