"""Questions that clients ask before they work: versions, and coordinators."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.wire import apis

_NO_GROUPS = "consumer groups are not available on this port yet"
_NONE = -1
# Kinds of keys of FindCoordinator.
_OF_TRANSACTIONS = 1
# Features of Kafka that clients look for: the epoch rises with each transaction (KIP-890).
TRANSACTION_VERSION = "transaction.version"
_LEVEL = 2


class ClientRequests:
    """Handlers of requests that concern no topic."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.API_VERSIONS.key: self._api_versions,
            apis.FIND_COORDINATOR.key: self._find_coordinator,
        }

    async def _api_versions(self, _: Request) -> Answer:
        rows = [
            {"api_key": api.key, "min_version": api.first, "max_version": api.last}
            for api in apis.APIS
        ]
        features = {"name": TRANSACTION_VERSION, "min_version": 1, "max_version": _LEVEL}
        finalized = {
            "name": TRANSACTION_VERSION,
            "min_version_level": _LEVEL,
            "max_version_level": _LEVEL,
        }
        message = {
            "api_keys": rows,
            "supported_features": [features],
            "finalized_features_epoch": 0,
            "finalized_features": [finalized],
        }
        return Answer(body=lambda: message)

    async def _find_coordinator(self, request: Request) -> Answer:
        keys = request.body.get("coordinator_keys", ())
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = {"error_code": code, "error_message": _NO_GROUPS, "node_id": _NONE}
        found |= {"host": "", "port": _NONE}
        if request.body.get("key_type") == _OF_TRANSACTIONS:
            code = ErrorCode.NONE
            host, port = request.address
            found = {"error_code": code, "error_message": None, "node_id": self._node_id}
            found |= {"host": host, "port": port}
        message = {**found, "coordinators": [{"key": key, **found} for key in keys]}
        return Answer(body=lambda: message, codes=(code,))
