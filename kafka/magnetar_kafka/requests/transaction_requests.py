"""AddPartitionsToTxn and EndTxn: what a transactional producer asks besides Produce.

Up to version 3 of AddPartitionsToTxn a client asks; later versions are for brokers, which may add
for several transactional ids at once, or only ask whether partitions were added. EndTxn from
version 5 on is of clients whose epoch rises with each transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import InvalidTxnState, MagnetarError
from magnetar_core.ids import PartitionName
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import name_of
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shards
from magnetar_kafka.transactions.transaction_codes import Codes, codes_of, is_committed
from magnetar_kafka.transactions.transactions import NO_PAIR, Pair, Transactions
from magnetar_kafka.wire import apis

FIRST_END_OF_V2 = 5
FIRST_ADD_OF_BROKERS = 4
_FIRST_ADD_WITH_ABORTABLE = 5


class TransactionRequests:
    """Handlers of requests that begin and end transactions."""

    def __init__(self, shards: Shards, transactions: Transactions) -> None:
        self._shards = shards
        self._transactions = transactions

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.ADD_PARTITIONS_TO_TXN.key: self._add_partitions,
            apis.END_TXN.key: self._end,
        }

    # Adding

    async def _add_partitions(self, request: Request) -> Answer:
        version, body = request.version, request.body
        if version < FIRST_ADD_OF_BROKERS:
            codes = codes_of(version)
            results = await self._add(
                request.caller,
                body["v3_and_below_transactional_id"],
                Pair(body["v3_and_below_producer_id"], body["v3_and_below_producer_epoch"]),
                body["v3_and_below_topics"],
                codes,
                verify_only=False,
            )
            return Answer(
                body=lambda: {"results_by_topic_v3_and_below": results}, codes=_codes_in(results)
            )
        codes = codes_of(version, knows_abortable=version >= _FIRST_ADD_WITH_ABORTABLE)
        rows: list[dict[str, Any]] = []
        found: list[int] = []
        for one in body["transactions"]:
            results = await self._add(
                request.caller,
                one["transactional_id"],
                Pair(one["producer_id"], one["producer_epoch"]),
                one["topics"],
                codes,
                verify_only=one["verify_only"],
            )
            rows.append({"transactional_id": one["transactional_id"], "topic_results": results})
            found += _codes_in(results)
        return Answer(
            body=lambda: {"error_code": ErrorCode.NONE, "results_by_transaction": rows},
            codes=found,
        )

    async def _add(
        self,
        caller: Caller,
        transactional_id: str,
        pair: Pair,
        topics: Iterable[Mapping[str, Any]],
        codes: Codes,
        *,
        verify_only: bool,
    ) -> list[dict[str, Any]]:
        """Add partitions to a transaction, all or none; return the results by topic."""
        names: dict[tuple[str, int], PartitionName] = {}
        refused: dict[tuple[str, int], ErrorCode] = {}
        asked = [(topic["name"], number) for topic in topics for number in topic["partitions"]]
        if not caller.may(Operation.WRITE, Kind.TRANSACTIONAL_ID, transactional_id):
            refused = dict.fromkeys(asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            asked = []
        for place in asked:
            try:
                caller.check(Operation.WRITE, Kind.TOPIC, place[0])
                names[place] = name_of(self._shards, *place)
            except (Refused, MagnetarError) as error:
                refused[place] = code_of(error)
        otherwise = ErrorCode.NONE
        if refused:
            otherwise = ErrorCode.OPERATION_NOT_ATTEMPTED
        else:
            try:
                if verify_only:
                    await self._verify(transactional_id, pair, names.values())
                else:
                    await self._transactions.add(transactional_id, pair, names.values())
            except (Refused, MagnetarError) as error:
                otherwise = codes.of(error)
        return [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {
                        "partition_index": number,
                        "partition_error_code": refused.get((topic["name"], number), otherwise),
                    }
                    for number in topic["partitions"]
                ],
            }
            for topic in topics
        ]

    async def _verify(
        self, transactional_id: str, pair: Pair, names: Iterable[PartitionName]
    ) -> None:
        txn_id, missing = await self._transactions.open_txn(transactional_id, pair, names)
        if txn_id is None or missing:
            raise InvalidTxnState(f"{transactional_id!r} has not added these partitions")

    # Ending

    async def _end(self, request: Request) -> Answer:
        body, version = request.body, request.version
        is_v2 = version >= FIRST_END_OF_V2
        given, code = NO_PAIR, ErrorCode.NONE
        try:
            request.caller.check(Operation.WRITE, Kind.TRANSACTIONAL_ID, body["transactional_id"])
            given = await self._transactions.end(
                body["transactional_id"],
                Pair(body["producer_id"], body["producer_epoch"]),
                is_commit=body["committed"],
                keep_epoch=not is_v2,
            )
        except (Refused, MagnetarError) as error:
            code = codes_of(version, knows_abortable=is_v2).of(error)
            if not body["committed"] and is_committed(error):
                # There is nothing that its producer could abort.
                code = ErrorCode.INVALID_TXN_STATE
        message = {
            "error_code": code,
            "producer_id": given.producer_id,
            "producer_epoch": given.epoch,
        }
        return Answer(body=lambda: message, codes=(code,))


def _codes_in(results: Iterable[Mapping[str, Any]]) -> list[int]:
    return [
        one["partition_error_code"] for topic in results for one in topic["results_by_partition"]
    ]
