"""Begins transactions: at once, or when a lazy transaction needs its TxnID."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from magnetar.errors import ClientClosed, ClientFailed
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.runtime import Runtime
from magnetar.transactions.participants import Participants
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID


class Begun(NamedTuple):
    """The coordinator's answer to NewTxn."""

    txn_id: TxnID
    # 0: it never expires.
    timeout_ms: int
    coordinator: ConnectionBase
    identity: ProducerIdentity | None = None
    # Whether the coordinator has stored the transaction and the participants that it was given.
    is_durable: bool = True
    # The proof that brokers may ask of sends and acks in it; empty: this cluster asks for none.
    txn_proof: bytes = b""
    # What the coordinator was told with it.
    seen_stamp: int = 0


# Asks for a transaction that already has these participants.
Begin = Callable[[Collection[PartitionName], Collection[SubscriptionName]], Awaitable[Begun]]


class Beginning:
    """The beginning of a transaction.

    Attributes:
        begun: the coordinator's answer; None before.
    """

    def __init__(
        self,
        runtime: Runtime,
        begin_with: Begin,
        participants: Participants,
        *,
        on_begun: Callable[[Begun], None],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """The beginning of a transaction that no coordinator knows yet.

        Args:
            on_begun: called before the participants' commands may leave.
            on_failed: a lazy one could not begin, or the coordinator does not take a participant.
        """
        self.begun: Begun | None = None
        self._runtime = runtime
        self._begin_with = begin_with
        self._participants = participants
        self._on_begun = on_begun
        self._on_failed = on_failed
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        """The transaction's name in messages for people."""
        return "a lazy transaction" if self.begun is None else str(self.begun.txn_id)

    @property
    def was_asked_for(self) -> bool:
        """Whether a coordinator knows the transaction, or may know it soon."""
        return self.begun is not None or self._task is not None

    async def now(self) -> None:
        """Ask a coordinator for the transaction now.

        Raises:
            MagnetarError: the coordinator refused it.
        """
        self._note(await self._begin_with((), ()), (), ())

    def soon(self) -> None:
        """Begin a lazy transaction at the end of the event loop's turn, with its participants."""
        if self.begun is None and self._task is None:
            self._task = self._runtime.spawn(
                self._begin_lazily(), "begin a transaction", self._on_failed
            )

    async def ensure(self) -> None:
        """Begin the transaction if needed; wait until it has begun, or failed.

        Raises:
            ClientClosed: the client was closed meanwhile.
        """
        if self.begun is None:
            self.soon()
            await self.settled()

    async def settled(self) -> None:
        """Wait until a lazy transaction that has to begin has begun, or failed.

        Raises:
            ClientClosed: the client was closed meanwhile.
        """
        if self._task is not None:
            try:
                await self._runtime.result_of(self._task)
            except ClientFailed:
                pass  # It has called on_failed.

    async def _begin_lazily(self) -> None:
        partitions, subscriptions = self._participants.partitions, self._participants.subscriptions
        try:
            begun = await self._begin_with(partitions, subscriptions)
        except ClientClosed:
            raise
        except MagnetarError as error:
            self._on_failed(error)
        else:
            self._note(begun, partitions, subscriptions)

    def _note(
        self,
        begun: Begun,
        partitions: Collection[PartitionName],
        subscriptions: Collection[SubscriptionName],
    ) -> None:
        self.begun = begun
        self._on_begun(begun)
        self._participants.begin(
            begun.txn_id,
            begun.coordinator,
            self._on_failed,
            identity=begun.identity,
            # Only a coordinator that allows two-phase commit lets a transaction live for ever.
            two_phase_commit=not begun.timeout_ms,
            partitions=partitions,
            subscriptions=subscriptions,
            is_durable=begun.is_durable,
            txn_proof=begun.txn_proof,
        )
