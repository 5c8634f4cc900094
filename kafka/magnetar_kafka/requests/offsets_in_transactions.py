"""AddOffsetsToTxn and TxnOffsetCommit: offsets of a group that count with a transaction.

A committed offset is the cursor of the subscription with the group's name, which takes part in the
transaction for each partition (docs/design/0029-kafka-groups.md). A commit carries the group's
generation to the owner of the partition, which refuses lower ones (KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.subscriptions.subscriptions import is_subscription_name
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import (
    InvalidArgument,
    InvalidTxnState,
    LogUnavailable,
    MagnetarError,
    PartitionMoved,
    TransactionConflict,
    TxnNotFound,
)
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused
from magnetar_kafka.group_coordinator import GroupCoordinator, GroupCoordinators
from magnetar_kafka.groups.classic_group import NO_GENERATION
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.offset_requests import offset_of
from magnetar_kafka.requests.partitions import locate
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.transactions.transaction_codes import Codes, codes_of
from magnetar_kafka.transactions.transactions import Pair, Transactions
from magnetar_kafka.wire import apis

# The first version of which a client does not send AddOffsetsToTxn before (KIP-890).
FIRST_COMMIT_OF_V2 = 5
_FIRST_WITH_ABORTABLE = 4


@dataclass(frozen=True, slots=True)
class _Offset:
    """An offset of a request, and its part of the answer."""

    name: PartitionName
    part: Part
    offset: CommittedOffset


class OffsetsInTransactions:
    """Handlers of AddOffsetsToTxn and TxnOffsetCommit."""

    def __init__(
        self,
        shards: Shards,
        transactions: Transactions,
        groups: GroupCoordinators,
        config: KafkaConfig,
    ) -> None:
        self._shards = shards
        self._transactions = transactions
        self._groups = groups
        self._metadata_bytes_max = config.kafka_offset_metadata_bytes_max

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.ADD_OFFSETS_TO_TXN.key: self._add_offsets,
            apis.TXN_OFFSET_COMMIT.key: self._commit,
        }

    async def _add_offsets(self, request: Request) -> Answer:
        """Begin a transaction, if none is open; its participants are added when they are known."""
        body, code = request.body, ErrorCode.NONE
        try:
            _check_rights(request)
            _check_group(body["group_id"])
            await self._transactions.add(body["transactional_id"], _pair_of(body))
        except (Refused, MagnetarError) as error:
            code = codes_of(request.version).of(error)
        return Answer(body=lambda: {"error_code": code}, codes=(code,))

    async def _commit(self, request: Request) -> Answer:
        body, version = request.body, request.version
        codes = _Codes(version)
        refusal: Refused | None = None
        try:
            _check_rights(request)
        except Refused as error:
            refusal = error
        offsets: list[_Offset] = []
        parts: list[Part] = []
        topics: list[dict[str, Any]] = []
        for topic in body["topics"]:
            of_topic: list[dict[str, Any]] = []
            for one in topic["partitions"]:
                fields = {"partition_index": one["partition_index"], "error_code": ErrorCode.NONE}
                part = Part(shard=None, fields=fields)
                parts.append(part)
                of_topic.append(fields)
                try:
                    if refusal is not None:
                        raise refusal
                    request.caller.check(Operation.READ, Kind.TOPIC, topic["name"])
                    _, partition = locate(self._shards, topic["name"], one["partition_index"], part)
                    offset = offset_of(one, self._metadata_bytes_max)
                    offsets.append(_Offset(partition.name, part, offset))
                except (Refused, MagnetarError) as error:
                    fields["error_code"] = codes.of(error)
            topics.append({"name": topic["name"], "partitions": of_topic})
        rests_on: list[Shard] = []
        if offsets:
            try:
                coordinator = await self._groups.of(body["group_id"])
                rests_on.append(coordinator.shard)
                await self._commit_all(
                    coordinator, body, offsets, codes, begins=version >= FIRST_COMMIT_OF_V2
                )
            except (Refused, MagnetarError) as error:
                for one in offsets:
                    one.part.fields["error_code"] = codes.of(error)
        return Answer(
            body=lambda: {"topics": topics},
            parts=parts,
            withdrawn={"error_code": ErrorCode.NOT_COORDINATOR},
            rests_on=rests_on,
        )

    async def _commit_all(
        self,
        coordinator: GroupCoordinator,
        body: Mapping[str, Any],
        offsets: list[_Offset],
        codes: _Codes,
        *,
        begins: bool,
    ) -> None:
        """Commit offsets, and fill in their parts of the answer.

        Raises:
            Refused: the client may not commit for the group. Nothing was committed.
            MagnetarError: nothing was committed.
        """
        group, pair = body["group_id"], _pair_of(body)
        named = body.get("generation_id", NO_GENERATION)
        generation = coordinator.check_commit(
            group,
            body.get("member_id", ""),
            body.get("group_instance_id"),
            named,
            in_transaction=True,
        )
        for one in offsets:
            _, partition = locate(
                self._shards, one.name.topic, one.name.partition, Part(shard=None, fields={})
            )
            # What is committed here is stamped later than what it was made of.
            self._transactions.saw(partition.log.highest_stamp)
        txn_id = await self._transactions.add(
            body["transactional_id"],
            pair,
            subscriptions=[SubscriptionName(*one.name, group) for one in offsets],
            begins=begins,
        )
        two_phase_commit = self._transactions.is_two_phase(body["transactional_id"])
        for one in offsets:
            try:
                try:
                    await self._commit_one(
                        txn_id,
                        pair,
                        group,
                        generation,
                        one,
                        is_member=named != NO_GENERATION,
                        two_phase_commit=two_phase_commit,
                    )
                except (InvalidTxnState, TxnNotFound) as error:
                    # The coordinator says why, unless only this partition has ended it.
                    self._transactions.forget(body["transactional_id"])
                    await self._transactions.open_txn(body["transactional_id"], pair, ())
                    raise Refused(codes.ended, str(error)) from None
            except (Refused, MagnetarError) as error:
                one.part.fields["error_code"] = codes.of(error)

    async def _commit_one(
        self,
        txn_id: TxnID,
        pair: Pair,
        group: str,
        generation: int,
        one: _Offset,
        *,
        is_member: bool,
        two_phase_commit: bool,
    ) -> None:
        name = one.name
        shard, _ = locate(self._shards, name.topic, name.partition, one.part)
        await shard.access.announced(txn_id)
        shard, partition = locate(self._shards, name.topic, name.partition, one.part)
        if partition.name != name:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name.topic!r} was deleted")
        if not is_member:
            # The owner has nothing to compare.
            generation = max(generation, partition.subscriptions.generation(group))
        shard.access.offsets.commit_in(
            partition,
            group,
            generation,
            one.offset,
            txn_id,
            writer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            two_phase_commit=two_phase_commit,
        )


class _Codes:
    """Codes of TxnOffsetCommit, which clients send to the coordinator of their group.

    Whatever the transaction cannot survive has to be a code after which a client of that version
    aborts it: an unknown code ends it for good. Before version 4 that is ILLEGAL_GENERATION.
    """

    def __init__(self, version: int) -> None:
        is_known = version >= _FIRST_WITH_ABORTABLE
        abortable = ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.ILLEGAL_GENERATION
        self.ended = abortable
        self._codes = Codes(ErrorCode.INVALID_PRODUCER_EPOCH, abortable)

    def of(self, error: Refused | MagnetarError) -> ErrorCode:
        """Return the code for an error."""
        # The second one: a group of ours takes no part in two-phase commit.
        if isinstance(error, TransactionConflict | InvalidArgument):
            return self.ended
        if isinstance(error, PartitionMoved | LogUnavailable):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self._codes.of(error)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code


def _pair_of(body: Mapping[str, Any]) -> Pair:
    return Pair(body["producer_id"], body["producer_epoch"])


def _check_rights(request: Request) -> None:
    """Check that a caller may write in a transaction, and read in a group.

    Raises:
        Refused: it may not.
    """
    caller, body = request.caller, request.body
    caller.check(Operation.WRITE, Kind.TRANSACTIONAL_ID, body["transactional_id"])
    caller.check(Operation.READ, Kind.GROUP, body["group_id"])


def _check_group(group: str) -> None:
    if not is_subscription_name(group):
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"{group!r} is not a name of a group")
