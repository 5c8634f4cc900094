"""Questions that clients ask before they work: versions, and ids of producers."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from magnetar_core.access.needs import ANYWHERE_WRITE
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.produce import PRODUCER_ID_BITS
from magnetar_kafka.wire import apis

_NONE = -1


class ClientRequests:
    """Handlers of requests that concern no topic."""

    def __init__(self, random: Random) -> None:
        self._random = random

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.API_VERSIONS.key: self._api_versions,
            apis.INIT_PRODUCER_ID.key: self._init_producer_id,
        }

    async def _api_versions(self, _: Request) -> Answer:
        rows = [
            {"api_key": api.key, "min_version": api.first, "max_version": api.last}
            for api in apis.APIS
        ]
        return Answer(body=lambda: {"api_keys": rows})

    async def _init_producer_id(self, request: Request) -> Answer:
        """Give out an id: random, so that nothing needs to be stored before it is used."""
        try:
            request.caller.check_any((ANYWHERE_WRITE,), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        except Refused as refusal:
            refused = {"error_code": refusal.code, "producer_id": _NONE, "producer_epoch": _NONE}
            return Answer(body=lambda: refused, codes=(refusal.code,))
        message: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "producer_id": self._random.getrandbits(PRODUCER_ID_BITS),
            "producer_epoch": 0,
        }
        if request.body["transactional_id"] is not None:
            message = {
                "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "producer_id": _NONE,
                "producer_epoch": _NONE,
            }
        return Answer(body=lambda: message, codes=(message["error_code"],))
