"""All that an administrator asks for; Client has it."""

from __future__ import annotations

from magnetar.admin.groups import GroupAdministration
from magnetar.admin.hanging_transactions import HangingTransactions
from magnetar.admin.in_use import InUseAdministration
from magnetar.link.cluster import Cluster, ClusterInfo


class Administration(InUseAdministration, HangingTransactions, GroupAdministration):
    """The administrative half of a client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def cluster_info(self) -> ClusterInfo:
        """Who belongs to the cluster."""
        return await self._cluster.info()
