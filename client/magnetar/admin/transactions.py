"""What an administrator asks for about transactions: list, describe, end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.enums import TransactionAction, TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar.link.connection import Connection
from magnetar.link.session import ResponseT
from magnetar_core.errors import (
    MagnetarError,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.requests import Request
from magnetar_core.wire import transaction_pb2

# About single transactions, that are on their way at the same time.
QUESTIONS_MAX = 256


class TransactionAdministration:
    """Transactions, as the administrative half of a client sees them."""

    _cluster: Cluster

    async def list_transactions(
        self,
        statuses: Iterable[TransactionStatus] = (),
        *,
        age_ms_min: int = 0,
        transactional_id_pattern: str = "",
        producer_ids: Iterable[int] = (),
        tcid: int | None = None,
        limit: int = 1_000,
        on_unanswered: Callable[[int, MagnetarError], None] | None = None,
    ) -> list[TransactionDescription]:
        """Transactions of all coordinators, those of each from the oldest to the newest.

        Of those that have ended, the latest ones that its coordinator has not forgotten.

        Args:
            statuses: only these; without any, OPEN, COMMITTING and ABORTING.
            age_ms_min: only what was opened, or has ended, so long ago.
            transactional_id_pattern: with a shell's wildcards, as `app-*`; empty: all.
            producer_ids: of these only, as transactional ids have them; none: all.
            tcid: of this coordinator only.
            limit: at most so many of each coordinator.
            on_unanswered: told of each coordinator that does not answer, and why; what the others
                have is returned. Without it the first of these errors is raised.
        Raises:
            LogUnavailable, OutcomeUnknown: a coordinator does not answer in time.
        Source: KIP-664, ListTransactions.
        """
        command = transaction_pb2.CommandListTxns(
            statuses=[int(status) for status in statuses],  # type: ignore[misc]
            age_ms_min=age_ms_min,
            transactional_id_pattern=transactional_id_pattern,
            producer_ids=producer_ids,
            limit=limit,
        )
        found: list[TransactionDescription] = []
        for reply in await self._ask_coordinators(command, tcid, on_unanswered):
            listed = [TransactionDescription.from_wire(one) for one in reply.transactions]
            found += sorted(listed, key=lambda one: (one.ended_at_ms == 0, one.txn_id))
        return found

    async def _ask_coordinators(
        self,
        command: Request[ResponseT],
        tcid: int | None,
        on_unanswered: Callable[[int, MagnetarError], None] | None,
    ) -> list[ResponseT]:
        """The same of all coordinators at once, or of one."""

        async def ask(tcid: int, coordinator: Connection) -> ResponseT | None:
            try:
                return await coordinator.request(command)
            except MagnetarError as error:
                if on_unanswered is None or not error.kind.may_pass:
                    raise
                on_unanswered(tcid, error)
                return None

        coordinators = await self._cluster.coordinators_by_tcid(tcid)
        replies = await asyncio.gather(*(ask(*one) for one in coordinators.items()))
        return [one for one in replies if one is not None]

    async def describe_transaction(self, txn_id: TxnID) -> TransactionDescription:
        """Raises: TxnNotFound, TxnForgotten."""
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTxn(txn_id=txn_id.to_wire())
        )
        return TransactionDescription.from_wire(reply.transaction)

    async def transaction_statuses(
        self, txn_ids: Sequence[TxnID]
    ) -> list[TransactionStatus | None]:
        """What coordinators say of many transactions, in order; None where they do not know."""
        questions = asyncio.Semaphore(QUESTIONS_MAX)

        async def status(txn_id: TxnID) -> TransactionStatus | None:
            async with questions:
                try:
                    return (await self.describe_transaction(txn_id)).status
                except (TxnNotFound, TxnForgotten):
                    return None

        return await asyncio.gather(*(status(one) for one in txn_ids))

    async def end_transaction(
        self, txn_id: TxnID, action: TransactionAction, *, wait_finished: bool = True
    ) -> TransactionStatus:
        """End somebody's transaction by hand, with whatever it holds.

        Raises:
            InvalidTxnState: it ended the other way. No effect.
            TxnNotFound, TxnForgotten: as they say.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandEndTxn(
                txn_id=txn_id.to_wire(),
                txn_action=int(action),  # type: ignore[arg-type]
                wait_finished=wait_finished,
            ),
            patient=wait_finished,
        )
        return TransactionStatus(reply.status)

    async def accept_transaction_loss(self, txn_id: TxnID) -> None:
        """Let a commit go on without what a participant has lost (TxnIncomplete)."""
        coordinator = await self._cluster.coordinator_of(txn_id)
        await coordinator.request(transaction_pb2.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))
