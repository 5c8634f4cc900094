"""The administrative client: what people and tools ask of a cluster, and change in it."""

from __future__ import annotations

from magnetar.admin.forced_aborts import ForcedAborts
from magnetar.admin.groups import GroupAdmin
from magnetar.admin.named_sequences import NamedSequenceAdmin
from magnetar.admin.subscriptions import SubscriptionAdmin
from magnetar.admin.topics import TopicAdmin
from magnetar.admin.transactional_ids import TransactionalIdAdmin
from magnetar.admin.transactions import TransactionAdmin
from magnetar.link.cluster import Cluster, ClusterInfo


class AdminClient:
    """Administers a cluster: `client.admin`. It uses the client's links, and ends with it.

        async with await magnetar.connect("127.0.0.1:6650") as client:
            await client.admin.topics.create("flights", partitions=4)

    Attributes:
        topics: create, list, describe, delete topics; look into their partitions.
        subscriptions: create, delete, move subscriptions.
        groups: list, describe, delete groups; reset their offsets.
        transactions: list, describe, end transactions; find and abort those that hang.
        transactional_ids: list and describe them; terminate what is prepared in one.
        named_sequences: describe and remove names of work that counts once.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.transactions = TransactionAdmin(cluster)
        self.transactional_ids = TransactionalIdAdmin(cluster)
        forced = ForcedAborts(cluster, self.transactions, self.transactional_ids)
        self.topics = TopicAdmin(cluster, forced)
        self.subscriptions = SubscriptionAdmin(cluster, forced)
        self.groups = GroupAdmin(cluster)
        self.named_sequences = NamedSequenceAdmin(cluster)

    async def cluster_info(self) -> ClusterInfo:
        """Return the members of the cluster.

        Raises:
            LogUnavailable: nobody answers in time.
        """
        return await self._cluster.info()
