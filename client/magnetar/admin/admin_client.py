"""The administrator's client: it describes and changes a cluster, for people and tools."""

from __future__ import annotations

from magnetar.admin.forced_aborts import ForcedAborts
from magnetar.admin.groups import GroupAdmin
from magnetar.admin.members import MemberAdmin
from magnetar.admin.named_sequences import NamedSequenceAdmin
from magnetar.admin.subscriptions import SubscriptionAdmin
from magnetar.admin.topics import TopicAdmin
from magnetar.admin.transactional_ids import TransactionalIdAdmin
from magnetar.admin.transactions import TransactionAdmin
from magnetar.link.cluster import Cluster
from magnetar.link.members import ClusterInfo


class AdminClient:
    """Administers a cluster: `client.admin`. It uses the links of its client, and ends with it.

        async with await magnetar.connect("127.0.0.1:6650") as client:
            await client.admin.topics.create("flights", partitions=4)

    Attributes:
        topics: create, list, describe, delete topics; inspect their partitions.
        subscriptions: create, delete, move subscriptions.
        groups: list, describe, delete groups; reset their offsets.
        transactions: list, describe, end transactions; find and abort hanging transactions.
        transactional_ids: list, describe transactional ids; end their prepared transactions.
        named_sequences: describe and remove named sequences.
        members: describe and drain members, where shards change their owner; rebalance shards.
    """

    def __init__(self, cluster: Cluster, client: object) -> None:
        self._cluster = cluster
        # It closes when the program drops it.
        self._client = client
        self.transactions = TransactionAdmin(cluster)
        self.transactional_ids = TransactionalIdAdmin(cluster)
        forced = ForcedAborts(cluster, self.transactions)
        self.topics = TopicAdmin(cluster, forced)
        self.subscriptions = SubscriptionAdmin(cluster, forced)
        self.groups = GroupAdmin(cluster)
        self.named_sequences = NamedSequenceAdmin(cluster)
        self.members = MemberAdmin(cluster)

    async def cluster_info(self) -> ClusterInfo:
        """Return the members of the cluster.

        Raises:
            LogUnavailable: no broker answers in time.
        """
        return await self._cluster.info()
