"""What an administrator asks for about transactional ids, and names of work that counts once."""

from __future__ import annotations

from magnetar.admin.producer_descriptions import (
    NameDescription,
    TransactionalIdDescription,
)
from magnetar.link.cluster import Cluster
from magnetar_core.ids import TxnID
from magnetar_core.wire import transaction_pb2


class IdentityAdministration:
    """Transactional ids and names, as the administrative half of a client sees them."""

    _cluster: Cluster

    async def list_transactional_ids(
        self, pattern: str = "", *, limit: int = 1_000
    ) -> list[TransactionalIdDescription]:
        """Transactional ids of all coordinators.

        Args:
            pattern: with a shell's wildcards, as `app-*`; empty: all.
            limit: at most so many of each coordinator.
        """
        command = transaction_pb2.CommandListTransactionalIds(pattern=pattern, limit=limit)
        found: list[TransactionalIdDescription] = []
        for coordinator in await self._cluster.coordinators():
            reply = await coordinator.request(command)
            found += [TransactionalIdDescription.from_wire(one) for one in reply.descriptions]
        return found

    async def describe_transactional_id(self, transactional_id: str) -> TransactionalIdDescription:
        """Raises: TransactionalIdNotFound. Source: KIP-664, DescribeTransactions."""
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

    async def describe_name(self, name: str) -> NameDescription:
        """What is known of a name of sequences."""
        coordinator = await self._cluster.coordinator_for(name)
        reply = await coordinator.request(transaction_pb2.CommandDescribeName(name=name))
        return NameDescription(
            name,
            reply.committed_sequence if reply.has_committed else None,
            reply.open.sequence if reply.HasField("open") else None,
            TxnID.from_wire(reply.open_txn_id) if reply.HasField("open") else None,
            reply.committed_fingerprint or None,
        )

    async def remove_name(self, name: str) -> None:
        """Forget a name: its sequences may then be committed again.

        Raises:
            InvalidArgument: there is none.
            ResourceInUse: a transaction of it is open.
        """
        coordinator = await self._cluster.coordinator_for(name)
        await coordinator.request(transaction_pb2.CommandRemoveName(name=name))
