"""Requests of kafka-transactions.sh: find transactions, and abort one that hangs (KIP-664).

WriteTxnMarkers becomes the abort of a hanging transaction: the coordinator refuses it for a
transaction that it holds open, which EndTxn aborts, or a takeover, or expiry.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import (
    InvalidTxnState,
    MagnetarError,
    TransactionalIdNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of, outcome_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import answered_by_partition, locate
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shards
from magnetar_kafka.transactions.transaction_codes import codes_of
from magnetar_kafka.wire import apis

# What a coordinator lists at once.
LISTED_MAX = 10_000
_NONE = -1
# Kafka's names of states, and those that nothing has here.
STATES = {
    pb.EMPTY: "Empty",
    pb.ONGOING: "Ongoing",
    pb.PREPARE_COMMIT: "PrepareCommit",
    pb.PREPARE_ABORT: "PrepareAbort",
    pb.COMPLETE_COMMIT: "CompleteCommit",
    pb.COMPLETE_ABORT: "CompleteAbort",
}
_OTHER_STATES = ("Dead", "PrepareEpochFence")
_LIVE = (pb.ONGOING, pb.PREPARE_COMMIT, pb.PREPARE_ABORT)


class TransactionTools:
    """Handlers of ListTransactions, DescribeTransactions, DescribeProducers, WriteTxnMarkers."""

    def __init__(self, shards: Shards, coordinators: Coordinators) -> None:
        self._shards = shards
        self._coordinators = coordinators

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.LIST_TRANSACTIONS.key: self._list,
            apis.DESCRIBE_TRANSACTIONS.key: self._describe,
            apis.DESCRIBE_PRODUCERS.key: self._describe_producers,
            apis.WRITE_TXN_MARKERS.key: self._write_markers,
        }

    # Transactional ids

    async def _list(self, request: Request) -> Answer:
        body = request.body
        named = body["state_filters"]
        known = (*STATES.values(), *_OTHER_STATES)
        message: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "unknown_state_filters": [one for one in named if one not in known],
        }
        rows: list[dict[str, Any]] = []
        try:
            for tcid in self._coordinators.tcids:
                rows += [
                    row
                    for row in await self._of_coordinator(tcid, body)
                    if request.caller.may(
                        Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, row["transactional_id"]
                    )
                ]
        except MagnetarError as error:
            message["error_code"] = codes_of(request.version).of(error)
            rows = []
        message["transaction_states"] = rows
        return Answer(body=lambda: message, codes=(message["error_code"],))

    async def _of_coordinator(self, tcid: int, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        states, producer_ids = body["state_filters"], frozenset(body["producer_id_filters"])
        duration_ms = body.get("duration_filter", _NONE)
        answer = await self._coordinators.ask_one(
            tcid, pb.CommandListTransactionalIds(limit=LISTED_MAX)
        )
        old: set[TxnID] | None = None
        if duration_ms >= 0:
            listed = await self._coordinators.ask_one(
                tcid, pb.CommandListTxns(age_ms_min=duration_ms, limit=LISTED_MAX)
            )
            old = {TxnID.from_wire(one.txn_id) for one in listed.transactions}
        return [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": STATES[one.state],
            }
            for one in answer.descriptions
            if (not states or STATES[one.state] in states)
            and (not producer_ids or one.producer_id in producer_ids)
            and (old is None or (one.state in _LIVE and TxnID.from_wire(one.txn_id) in old))
        ]

    async def _describe(self, request: Request) -> Answer:
        caller = request.caller
        rows: list[dict[str, Any]] = []
        for name in request.body["transactional_ids"]:
            row = {"transactional_id": name, "transaction_state": "", "transaction_timeout": 0}
            row |= {"transaction_start_time": _NONE, "producer_id": _NONE, "producer_epoch": _NONE}
            row["error_code"], row["topics"] = ErrorCode.NONE, []
            try:
                caller.check(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, name)
                row |= await self._described(caller, name)
            except TransactionalIdNotFound:
                row["error_code"] = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            except (Refused, MagnetarError) as error:
                row["error_code"] = codes_of(request.version).of(error)
            rows.append(row)
        codes = [row["error_code"] for row in rows]
        return Answer(body=lambda: {"transaction_states": rows}, codes=codes)

    async def _described(self, caller: Caller, name: str) -> dict[str, Any]:
        answer = await self._coordinators.ask(
            name, pb.CommandDescribeTransactionalId(transactional_id=name)
        )
        found = answer.description
        topics: dict[str, list[int]] = {}
        began_ms = _NONE
        if found.state in _LIVE:
            try:
                described = await self._coordinators.ask(
                    name, pb.CommandDescribeTxn(txn_id=found.txn_id)
                )
            except (TxnNotFound, TxnForgotten):
                pass  # It has ended in between.
            else:
                began_ms = described.transaction.opened_at_ms
                for partition in described.transaction.partitions:
                    if not caller.may(Operation.DESCRIBE, Kind.TOPIC, partition.topic):
                        continue
                    topics.setdefault(partition.topic, []).append(partition.partition)
        return {
            "transaction_state": STATES[found.state],
            "transaction_timeout": max(0, min(found.txn_timeout_ms, (1 << 31) - 1)),
            "transaction_start_time": began_ms,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "topics": [
                {"topic": topic, "partitions": sorted(numbers)} for topic, numbers in topics.items()
            ],
        }

    # Partitions

    async def _describe_producers(self, request: Request) -> Answer:
        return await answered_by_partition(
            request,
            partial(self._producers_of, request.caller),
            {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "active_producers": []},
            field="partition_indexes",
        )

    async def _producers_of(self, caller: Caller, topic: str, number: int) -> Part:
        fields: dict[str, Any] = {
            "partition_index": number,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "active_producers": [],
        }
        part = Part(shard=None, fields=fields)
        try:
            caller.check(Operation.READ, Kind.TOPIC, topic)
            shard, partition = locate(self._shards, topic, number, part)
        except (Refused, MagnetarError) as error:
            fields["error_code"], fields["error_message"] = code_of(error), str(error)
        else:
            fields["active_producers"] = [
                {
                    "producer_id": one.producer_id,
                    "producer_epoch": one.epoch,
                    "last_sequence": one.last_sequence,
                    "last_timestamp": one.last_time_ms,
                    "coordinator_epoch": _NONE,
                    "current_txn_start_offset": one.start_offset,
                }
                for one in shard.access.producers(partition)
            ]
        return part

    async def _write_markers(self, request: Request) -> Answer:
        markers: list[dict[str, Any]] = []
        codes: list[int] = []
        for marker in request.body["markers"]:
            topics: list[dict[str, Any]] = []
            for topic in marker["topics"]:
                rows: list[dict[str, Any]] = []
                for number in topic["partition_indexes"]:
                    code = await self._abort(request.caller, marker, topic["name"], number)
                    resource = f"topic:{topic['name']}-{number} producer:{marker['producer_id']}"
                    request.caller.note("abort_hanging_txn", resource, outcome_of(code))
                    rows.append({"partition_index": number, "error_code": code})
                    codes.append(code)
                topics.append({"name": topic["name"], "partitions": rows})
            markers.append({"producer_id": marker["producer_id"], "topics": topics})
        return Answer(body=lambda: {"markers": markers}, codes=codes)

    async def _abort(
        self, caller: Caller, marker: Mapping[str, Any], topic: str, number: int
    ) -> ErrorCode:
        """Abort the transaction of a producer that hangs on a partition; return the code."""
        try:
            caller.check_cluster(Operation.ALTER)
            if marker["transaction_result"]:
                raise Refused(ErrorCode.INVALID_REQUEST, "only coordinators decide to commit")
            shard, partition = locate(self._shards, topic, number, Part(shard=None, fields={}))
            producers = shard.access.producers(partition)
            hanging = next(
                (one for one in producers if one.producer_id == marker["producer_id"]), None
            )
            if hanging is None or hanging.txn_id is None:
                return ErrorCode.NONE  # Nothing hangs: it may be a copy.
            if hanging.epoch != marker["producer_epoch"]:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            await self._coordinators.ask_one(
                hanging.txn_id.tcid,
                pb.CommandAbortHangingTxn(
                    txn_id=hanging.txn_id.to_wire(),
                    partition=common.Partition(
                        topic=topic, partition=number, topic_id=partition.name.topic_id
                    ),
                    start_offset=hanging.start_offset,
                    producer_epoch=hanging.txn_epoch,
                ),
            )
        except InvalidTxnState:
            return ErrorCode.INVALID_TXN_STATE
        except (Refused, MagnetarError) as error:
            return code_of(error)
        return ErrorCode.NONE
