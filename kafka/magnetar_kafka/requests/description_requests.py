"""DescribeAcls and DescribeLogDirs: what tools for administrators ask of every cluster.

Rights are in the access file, in roles and principals that Kafka's ACLs do not have. `magnetar
access` tells the rights of a principal; here clients are told that there are no ACLs, by the code
for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_core.access.needs import Operation
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

LOG_DIR = "magnetar"
_NOT_KNOWN = -1


class DescriptionRequests:
    """Handlers of questions of administrators."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.DESCRIBE_ACLS.key: self._describe_acls,
            apis.DESCRIBE_LOG_DIRS.key: self._describe_log_dirs,
        }

    async def _describe_acls(self, request: Request) -> Answer:
        code = ErrorCode.SECURITY_DISABLED
        text = "there are no ACLs here: rights are in the access file of the servers"
        try:
            request.caller.check_cluster(Operation.DESCRIBE)
        except Refused as refusal:
            code, text = refusal.code, str(refusal)
        message = {"error_code": code, "error_message": text, "resources": []}
        return Answer(body=lambda: message, codes=(code,))

    async def _describe_log_dirs(self, request: Request) -> Answer:
        try:
            request.caller.check_cluster(Operation.DESCRIBE)
        except Refused as refusal:
            # Older versions have a code for each directory only.
            row = {"error_code": refusal.code, "log_dir": LOG_DIR, "topics": []}
            refused = {"error_code": refusal.code, "results": [row]}
            return Answer(body=lambda: refused, codes=(refusal.code,))
        asked = request.body["topics"]
        wanted = None if asked is None else {one["topic"]: set(one["partitions"]) for one in asked}
        shards = self._shards.all()
        sizes: dict[str, list[dict[str, Any]]] = {}
        for shard in shards:
            _add_sizes(shard, wanted, sizes)
        result = {
            "error_code": ErrorCode.NONE,
            "log_dir": LOG_DIR,
            "topics": [{"name": name, "partitions": rows} for name, rows in sizes.items()],
            "total_bytes": _NOT_KNOWN,
            "usable_bytes": _NOT_KNOWN,
        }
        return Answer(body=lambda: {"results": [result]}, rests_on=shards)


def _add_sizes(
    shard: Shard, wanted: Mapping[str, set[int]] | None, sizes: dict[str, list[dict[str, Any]]]
) -> None:
    """Add the sizes of a shard's partitions.

    Args:
        wanted: partitions of topics; None: all.
    """
    for topic in shard.access.topics():
        if wanted is not None and topic.name not in wanted:
            continue
        for number, partition in topic.hosted.items():
            if wanted is None or number in wanted[topic.name]:
                sizes.setdefault(topic.name, []).append(
                    {
                        "partition_index": number,
                        "partition_size": partition.log.retained_bytes,
                        "offset_lag": 0,
                        "is_future_key": False,
                    }
                )
