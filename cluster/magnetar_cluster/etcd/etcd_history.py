"""Complains of an etcd that is never compacted.

etcd keeps each version of a row until it is compacted, and refuses all writes when it is full.
Marks of stores are written each second, so that this would take some weeks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory

log = logging.getLogger(__name__)

# Of a mark each takes about 200 bytes. etcd has room for 2 GB by default.
REVISIONS_MAX: Final = 1_000_000
_INTERVAL_SECONDS: Final = 3_600.0


async def watch_history(directory: EtcdDirectory, revisions_max: int = REVISIONS_MAX) -> None:
    """Look each hour how much history etcd keeps, until the task is cancelled."""
    while True:
        try:
            if await directory.keeps_revisions(revisions_max):
                log.warning(
                    "etcd keeps the last %d revisions and more: when it is full, it refuses all"
                    " writes, and no shard finds a new owner. Start etcd with"
                    " --auto-compaction-retention 1h",
                    revisions_max,
                )
        except ClusterDirectoryUnavailable as error:
            log.info("etcd does not say how much history it keeps: %s", error)
        await asyncio.sleep(_INTERVAL_SECONDS)
