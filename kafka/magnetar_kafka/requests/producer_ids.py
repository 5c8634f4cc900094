"""InitProducerId: ids of idempotent producers, and takeovers of transactional ids.

With a transactional id the coordinator raises the epoch, aborts what is open, and waits for its
end. Version 6 has two-phase commit: the open transaction may be kept (KIP-939).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from magnetar_core.access.needs import ANYWHERE_WRITE, Kind, Operation
from magnetar_core.errors import MagnetarError
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.batches import PRODUCER_ID_BITS
from magnetar_kafka.transactions.transaction_codes import codes_of
from magnetar_kafka.transactions.transactions import NO_PAIR, Pair, Transactions
from magnetar_kafka.wire import apis

# The first version whose clients know that they are fenced (KIP-588).
FIRST_WITH_FENCED = 4
_CALL_TOKEN_BITS = 64


class ProducerIdRequests:
    """Handler of InitProducerId."""

    def __init__(self, transactions: Transactions, random: Random) -> None:
        self._transactions = transactions
        self._random = random

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.INIT_PRODUCER_ID.key: self._init_producer_id}

    async def _init_producer_id(self, request: Request) -> Answer:
        transactional_id = request.body["transactional_id"]
        message: dict[str, Any]
        if transactional_id is None:
            try:
                request.caller.check_any((ANYWHERE_WRITE,), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            except Refused as refusal:
                message = {**_given(NO_PAIR), "error_code": refusal.code}
            else:
                # Random, so that nothing needs to be stored before it is used.
                message = _given(Pair(self._random.getrandbits(PRODUCER_ID_BITS), 0))
        else:
            try:
                message = await self._take_over(transactional_id, request)
            except (Refused, MagnetarError) as error:
                code = codes_of(request.version, since=FIRST_WITH_FENCED).of(error)
                message = {**_given(NO_PAIR), "error_code": code}
        return Answer(body=lambda: message, codes=(message["error_code"],))

    async def _take_over(self, transactional_id: str, request: Request) -> dict[str, Any]:
        caller, body = request.caller, request.body
        caller.check(Operation.WRITE, Kind.TRANSACTIONAL_ID, transactional_id)
        enable_2pc = body.get("enable2_pc", False)
        if enable_2pc:
            caller.check(Operation.TWO_PHASE_COMMIT, Kind.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id is empty")
        timeout_ms = body["transaction_timeout"]
        if timeout_ms <= 0 and not enable_2pc:
            raise Refused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"a timeout of {timeout_ms} ms is not valid"
            )
        named = Pair(body.get("producer_id", -1), body.get("producer_epoch", -1))
        command = pb.CommandInitProducer(
            transactional_id=transactional_id,
            txn_timeout_ms=max(0, timeout_ms),
            enable_2pc=enable_2pc,
            keep_prepared=body.get("keep_prepared_txn", False),
            call_token=self._random.getrandbits(_CALL_TOKEN_BITS),
        )
        if named.producer_id >= 0:
            command.producer_id, command.producer_epoch = named
        found = await self._transactions.initialise(transactional_id, command)
        return {
            **_given(Pair(found.producer_id, found.producer_epoch)),
            "ongoing_txn_producer_id": found.ongoing_producer_id,
            "ongoing_txn_producer_epoch": found.ongoing_producer_epoch,
        }


def _given(pair: Pair) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "producer_id": pair.producer_id,
        "producer_epoch": pair.epoch,
        "ongoing_txn_producer_id": NO_PAIR.producer_id,
        "ongoing_txn_producer_epoch": NO_PAIR.epoch,
    }
