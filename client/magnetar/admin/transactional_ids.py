"""Administration of transactional ids: list, describe, terminate."""

from __future__ import annotations

from typing import TypeAlias

from magnetar.admin.producer_descriptions import TransactionalIdDescription
from magnetar.link.cluster import Cluster
from magnetar_core.wire import transaction_pb2

# `list` is a method of the class below.
TransactionalIds: TypeAlias = list[TransactionalIdDescription]


class TransactionalIdAdmin:
    """Administers transactional ids: `client.admin.transactional_ids`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

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
            found += [TransactionalIdDescription.from_wire(one) for one in reply.descriptions]
        return found

    async def describe(self, transactional_id: str) -> TransactionalIdDescription:
        """Describe a transactional id: its producer id, its epoch, its latest transaction.

        Raises:
            TransactionalIdNotFound: no producer has used this id.
        Source: KIP-664, DescribeTransactions.
        """
        coordinator = await self._cluster.coordinator_for(transactional_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        return TransactionalIdDescription.from_wire(reply.description)

    async def force_terminate(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, even if prepared; fence its producer.

        Only the external coordinator of a prepared transaction knows whether this is safe.

        Raises:
            TransactionalIdNotFound: no producer has used this id.
            ConcurrentTransactions: the transaction is still ending; the producer has been fenced.
        Source: KIP-939, forceTerminateTransaction.
        """
        coordinator = await self._cluster.coordinator_for(transactional_id)
        await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        await coordinator.request(
            transaction_pb2.CommandInitProducer(transactional_id=transactional_id)
        )
