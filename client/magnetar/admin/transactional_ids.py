"""What an administrator does with transactional ids: list, describe, terminate."""

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
        """Transactional ids of all coordinators.

        Args:
            pattern: with a shell's wildcards, as `app-*`; empty: all.
            limit: at most so many of each coordinator.
        """
        command = transaction_pb2.CommandListTransactionalIds(pattern=pattern, limit=limit)
        found: TransactionalIds = []
        for coordinator in await self._cluster.coordinators():
            reply = await coordinator.request(command)
            found += [TransactionalIdDescription.from_wire(one) for one in reply.descriptions]
        return found

    async def describe(self, transactional_id: str) -> TransactionalIdDescription:
        """Describe a transactional id: its producer id, its epoch, what is open in it.

        Raises:
            TransactionalIdNotFound: nobody has used it.
        Source: KIP-664, DescribeTransactions.
        """
        coordinator = await self._cluster.coordinator_for(transactional_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        return TransactionalIdDescription.from_wire(reply.description)

    async def force_terminate(self, transactional_id: str) -> None:
        """Abort what is open in a transactional id, prepared or not, and fence its producer.

        Only the external coordinator of a prepared transaction knows whether that is safe.

        Raises:
            TransactionalIdNotFound: nobody has used it.
            ConcurrentTransactions: it is still ending; it has been fenced.
        Source: KIP-939, forceTerminateTransaction.
        """
        coordinator = await self._cluster.coordinator_for(transactional_id)
        await coordinator.request(
            transaction_pb2.CommandDescribeTransactionalId(transactional_id=transactional_id)
        )
        await coordinator.request(
            transaction_pb2.CommandInitProducer(transactional_id=transactional_id)
        )
