"""FindCoordinator: which broker has a group, or sends on the requests of a transactional id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.group_coordinator import check_group_name
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.shards import shard_of_group
from magnetar_kafka.transactions.transactions import Transactions
from magnetar_kafka.wire import apis

# The first version that asks for several at once.
SEVERAL_FROM = 4
OF_GROUPS, OF_TRANSACTIONS = 0, 1
_NONE = -1


class CoordinatorRequests:
    """Handler of FindCoordinator."""

    def __init__(self, transactions: Transactions, nodes: Nodes) -> None:
        self._transactions = transactions
        self._nodes = nodes

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.FIND_COORDINATOR.key: self._find_coordinator}

    async def _find_coordinator(self, request: Request) -> Answer:
        body = request.body
        is_of_several = request.version >= SEVERAL_FROM
        keys = body["coordinator_keys"] if is_of_several else [body["key"]]
        kind = body.get("key_type", OF_GROUPS)
        rows = [self._row(request, kind, key) for key in keys]
        message = {"coordinators": rows} if is_of_several else rows[0]
        return Answer(body=lambda: message, codes=[row["error_code"] for row in rows])

    def _row(self, request: Request, kind: int, key: str) -> dict[str, Any]:
        row: dict[str, Any] = {"key": key, "error_code": ErrorCode.NONE, "error_message": None}
        host, port = request.address
        try:
            if kind == OF_TRANSACTIONS:
                request.caller.check(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, key)
                self._transactions.check_possible()
                return row | {"node_id": self._nodes.own_number, "host": host, "port": port}
            if kind != OF_GROUPS:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{kind} is not a kind of coordinators")
            request.caller.check(Operation.DESCRIBE, Kind.GROUP, key)
            check_group_name(key)
            nodes = self._nodes.by_shard(is_external=request.is_external)
            found = nodes[shard_of_group(key, len(nodes))]
            if found is None:
                raise Refused(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"the coordinator of group {key!r} is moving, or has no port: ask again",
                )
        except Refused as refusal:
            row |= {"error_code": refusal.code, "error_message": str(refusal)}
            return row | {"node_id": _NONE, "host": "", "port": _NONE}
        return row | {
            "node_id": found.number,
            "host": found.host or host,
            "port": found.port or port,
        }
