"""Offsets of Kafka groups on the partitions of this broker: cursors of subscriptions.

A listener in this process asks for them, and brokers that coordinate groups.
Source: docs/design/0029-kafka-groups.md, 0033-kafka-groups-over-brokers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import group_pb2 as wire

Outcomes = list[wire.OffsetOutcome]


class GroupOffsets:
    """Offsets of groups at the owner of their partitions.

    What is returned or raised may be told when everything applied so far is durable.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    # Of one partition

    def committed(self, partition: Partition, group: str) -> CommittedOffset | None:
        """Return the offset from which a group reads on; None: it has none yet."""
        found = partition.subscriptions.find(group)
        return found.committed if found is not None else None

    def has_pending_acks(self, partition: Partition, group: str) -> bool:
        """Return whether the outcome of a transaction may move a group's offset."""
        found = partition.subscriptions.find(group)
        return found is not None and bool(found.index.open)

    def note_generation(self, partition: Partition, group: str, generation: int) -> None:
        """Refuse earlier generations of a group from now on; nothing is committed by that.

        Raises:
            IllegalGeneration: a later one has come here.
            InvalidArgument: the group's name is not allowed.
            QuotaExceeded: too many groups have come here.
        """
        partition.subscriptions.note_generation(group, generation)

    def commit(
        self, partition: Partition, group: str, generation: int, offset: CommittedOffset
    ) -> None:
        """Commit an offset of a group, outside of transactions.

        The first one makes the subscription.

        Args:
            generation: the group's when the commit was checked.
        Raises:
            IllegalGeneration: a later one has come here.
            ResourceInUse: transactions have acknowledged what the offset moves over: try again.
            UnknownMember: the group has members of ours.
            InvalidArgument: the group's name is not allowed.
            QuotaExceeded: too many subscriptions.
            LogUnavailable: the topic is being given partitions: try again.
        """
        partition.subscriptions.for_commit(group, generation).commit(offset)

    def commit_in(
        self,
        partition: Partition,
        group: str,
        generation: int,
        offset: CommittedOffset,
        txn_id: TxnID,
        *,
        writer_id: int,
        producer_epoch: int,
        two_phase_commit: bool = False,
    ) -> None:
        """Commit an offset of a group in a transaction; a repeat changes nothing.

        Args:
            writer_id: always the same for a transactional producer.
        Raises:
            TransactionConflict: as Subscription.commit_in.
            InvalidTxnState: the transaction has ended.
            MagnetarError: as commit, but for ResourceInUse.
        """
        partition.subscriptions.for_commit(group, generation).commit_in(
            txn_id,
            writer_id,
            offset,
            producer_epoch=producer_epoch,
            two_phase_commit=two_phase_commit,
        )

    def forget(self, partition: Partition, group: str, *, expired: bool = False) -> None:
        """Delete what a group has committed, and its subscription.

        Args:
            expired: keep the subscription if something else has used it.
        Raises:
            ResourceInUse: acks are pending, or the group has members of ours.
            LogUnavailable: as commit.
        """
        partition.subscriptions.forget_group(group, expired=expired)

    # Of several, as commands ask

    def commit_all(self, command: wire.CommandCommitOffsets) -> wire.CommandCommitOffsetsResponse:
        """Commit offsets; each partition has an outcome of its own."""
        group = command.group
        outcomes: Outcomes = []
        for one in command.offsets:

            def commit(partition: Partition, one: wire.PartitionOffset = one) -> None:
                offset = CommittedOffset.of_row(one.offset)
                self.commit(partition, group, command.generation, offset)

            outcomes.append(self._outcome(one.partition, commit))
        return wire.CommandCommitOffsetsResponse(outcomes=outcomes)

    def fetch_all(self, command: wire.CommandFetchOffsets) -> wire.CommandFetchOffsetsResponse:
        """Return offsets, and refuse earlier generations from now on."""
        group = command.group
        outcomes: Outcomes = []
        for name in self._named(command.partitions, of_all=command.of_all):
            outcome = wire.OffsetOutcome()

            def fetch(partition: Partition, outcome: wire.OffsetOutcome = outcome) -> None:
                if command.generation:
                    self.note_generation(partition, group, command.generation)
                outcome.pending = self.has_pending_acks(partition, group)
                offset = self.committed(partition, group)
                if offset is not None:
                    outcome.offset.CopyFrom(offset.row())

            outcome.MergeFrom(self._outcome(name, fetch))
            if not command.of_all or outcome.HasField("offset"):
                outcomes.append(outcome)
        return wire.CommandFetchOffsetsResponse(outcomes=outcomes)

    def forget_all(self, command: wire.CommandForgetOffsets) -> wire.CommandForgetOffsetsResponse:
        """Delete offsets; each partition has an outcome of its own."""
        outcomes = [
            self._outcome(
                name,
                lambda partition: self.forget(partition, command.group, expired=command.expired),
            )
            for name in self._named(command.partitions, of_all=command.of_all)
        ]
        if command.of_all:
            outcomes = [one for one in outcomes if one.HasField("error")]
        return wire.CommandForgetOffsetsResponse(outcomes=outcomes)

    def _named(
        self, partitions: Iterable[common.Partition], *, of_all: bool
    ) -> list[common.Partition]:
        if of_all:
            return [one.name.to_wire() for one in self._topics.partitions()]
        return list(partitions)

    def _outcome(
        self, name: common.Partition, work: Callable[[Partition], None]
    ) -> wire.OffsetOutcome:
        try:
            work(self._topics.named(name))
        except MagnetarError as error:
            return wire.OffsetOutcome(partition=name, error=error.to_wire())
        return wire.OffsetOutcome(partition=name)
