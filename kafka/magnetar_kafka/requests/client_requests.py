"""ApiVersions: the first question of clients."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_kafka.answer import Answer
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.wire import apis

# Features of Kafka that clients look for: the epoch rises with each transaction (KIP-890).
TRANSACTION_VERSION = "transaction.version"
_LEVEL = 2


class ClientRequests:
    """Handler of ApiVersions."""

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.API_VERSIONS.key: self._api_versions,
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
