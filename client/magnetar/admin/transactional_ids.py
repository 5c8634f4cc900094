"""Administration of transactional ids: list, describe, complete, terminate."""

from __future__ import annotations

import logging
from typing import Final, TypeAlias

from magnetar.admin.producer_descriptions import TransactionalIdDescription
from magnetar.arguments import checked
from magnetar.enums import TransactionAction, TransactionalState, TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar.link.connection_base import ConnectionBase
from magnetar.transactions.prepared_outcome import outcome_of_prepared
from magnetar.transactions.producer_identity import PreparedTxnState, ProducerIdentity
from magnetar_core.errors import ConcurrentTransactions, InvalidArgument, ProducerFenced
from magnetar_core.ids import TxnID
from magnetar_core.transport.columns.end_txns import Ended, EndTxn
from magnetar_core.wire import transaction_pb2

log = logging.getLogger("magnetar")

# How often complete() begins again when others take the id over at the same time.
COMPLETIONS_MAX: Final = 3

# `list` is a method of the class below.
TransactionalIds: TypeAlias = list[TransactionalIdDescription]


class TransactionalIdAdmin:
    """Administers transactional ids: `client.admin.transactional_ids`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @checked
    async def list(self, pattern: str = "", *, limit: int = 1_000) -> TransactionalIds:
        """List the transactional ids of all coordinators.

        Args:
            pattern: a pattern with wildcards as in a shell, for example `app-*`; empty: all.
            limit: how many ids each coordinator returns at most, up to 10,000.
        """
        command = transaction_pb2.CommandListTransactionalIds(pattern=pattern, limit=limit)
        found: TransactionalIds = []
        for coordinator in await self._cluster.coordinators():
            reply = await coordinator.request(command)
            found += [
                TransactionalIdDescription.from_wire(description)
                for description in reply.descriptions
            ]
        return found

    @checked
    async def describe(self, transactional_id: str) -> TransactionalIdDescription:
        """Describe a transactional id: its producer id, its epoch, its latest transaction.

        Raises:
            TransactionalIdNotFound: no producer has used this id.
        Source: KIP-664, DescribeTransactions.
        """
        coordinator = await self._cluster.coordinator_for(transactional_id)
        return await self._describe(coordinator, transactional_id)

    @checked
    async def complete(self, transactional_id: str, prepared: PreparedTxnState) -> bool:
        """Commit the prepared transaction that a database has committed; never abort anything.

        For a transaction whose instance never comes back. If an instance is still alive, it is
        fenced. `TransactionalProducer.complete` is different: it aborts what the state does not
        name.

        Args:
            transactional_id: the transactional id.
            prepared: the state in the database's table, `PreparedTxnState.parse(text)`.
        Returns:
            True: this call has committed it. False: it was committed before.
        Raises:
            DataLoss: it was aborted: the database and the topics disagree. No effect.
            InvalidArgument: the state is empty, or not of a transaction of this transactional id.
                No effect.
            InvalidTxnState: it is open, and not in two-phase commit. No effect.
            TxnForgotten: its coordinator no longer knows it: the outcome is unknown. No effect.
            TxnNotFound: no coordinator of this cluster has issued its TxnID. No effect.
            ConcurrentTransactions: other instances take the id over at the same time. It stays as
                it is; ask again.
        Source: docs/design/0002-two-phase-commit.md, Administration.
        """
        if prepared.txn_id is None:
            raise InvalidArgument(
                "an empty state names no transaction: the database has committed none, and there is"
                " none to complete"
            )
        for _ in range(COMPLETIONS_MAX):
            status = await outcome_of_prepared(self._cluster, transactional_id, prepared)
            if status is not TransactionStatus.OPEN:
                return False
            try:
                if await self._commit(transactional_id, prepared.txn_id):
                    return True
            except ProducerFenced as error:
                log.info("%s: another instance was faster: %s", prepared, error)
        raise ConcurrentTransactions(
            f"other instances take {transactional_id!r} over at the same time, and"
            f" {prepared.txn_id} is still open: stop them, or ask again"
        )

    async def _commit(self, transactional_id: str, txn_id: TxnID) -> bool:
        """Take the id over with its open transaction, and commit it.

        The takeover names the pair of the instance that has the transaction. So it has no effect
        when another transaction has begun since, and cannot get hold of that one.

        Returns:
            Whether it was committed; otherwise it has ended since, and nothing was done.
        Raises:
            ProducerFenced: another instance has taken over, or has begun the next transaction.
        Source: KIP-939, InitProducerId with ProducerId, ProducerEpoch and KeepPreparedTxn.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        described = await self._describe(coordinator, transactional_id)
        if (described.state, described.txn_id) != (TransactionalState.ONGOING, txn_id):
            return False
        producer_id, producer_epoch = described.current_pair
        taken = await coordinator.request(
            transaction_pb2.CommandInitProducer(
                transactional_id=transactional_id,
                keep_prepared=True,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        )
        if not taken.HasField("ongoing_txn_id"):
            return False
        await self._end(coordinator, transactional_id, taken, TransactionAction.COMMIT)
        return True

    @checked
    async def force_terminate(
        self, transactional_id: str, txn_id: TxnID, *, abort_prepared: bool = False
    ) -> None:
        """Abort the open transaction of a transactional id, and fence its producer.

        Args:
            transactional_id: the transactional id.
            txn_id: its open transaction, which describe() has returned. If the producer has ended
                it and gone on, the next one stays as it is.
            abort_prepared: abort a transaction of two-phase commit, too. If its database has
                committed, the rows stay and the messages are discarded for ever: look into the
                database first. If its table names the transaction, complete() is right.
        Raises:
            TransactionalIdNotFound: no producer has used this id.
            TxnNotFound: no coordinator of this cluster has issued this TxnID. No effect.
            InvalidTxnState: the transaction is no longer the open one of the id: look again. Or it
                is in two-phase commit, so it may be prepared, and abort_prepared is False. No
                effect.
            ConcurrentTransactions: the transaction is aborted, and still ending; its producer has
                not been fenced.
            ProducerFenced: with abort_prepared: another instance has taken over meanwhile.
        Source: KIP-939, forceTerminateTransaction, which names no transaction.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        taken = await coordinator.request(
            transaction_pb2.CommandInitProducer(
                transactional_id=transactional_id,
                keep_prepared=abort_prepared,
                open_txn_id=txn_id.to_wire(),
            )
        )
        if taken.HasField("ongoing_txn_id"):
            await self._end(coordinator, transactional_id, taken, TransactionAction.ABORT)

    async def _describe(
        self, coordinator: ConnectionBase, transactional_id: str
    ) -> TransactionalIdDescription:
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        return TransactionalIdDescription.from_wire(reply.description)

    async def _end(
        self,
        coordinator: ConnectionBase,
        transactional_id: str,
        taken: transaction_pb2.CommandInitProducerResponse,
        action: TransactionAction,
    ) -> None:
        """End the transaction that a takeover has kept."""
        identity = ProducerIdentity(transactional_id, taken.producer_id, taken.producer_epoch)
        reply: Ended = await coordinator.request(
            EndTxn(
                TxnID.from_wire(taken.ongoing_txn_id),
                int(action),  # type: ignore[arg-type]
                identity=identity.to_wire(),
                wait_finished=True,
                seen_stamp=self._cluster.runtime.seen_stamp,
                by_hand=True,
            ),
            patient=True,
        )
        self._cluster.runtime.saw(reply.stamp)
