"""Ends of a transaction at several participants of this broker, which one command asks for.

Partitions end first; a commit may wait there for other transactions (rule k). In a commit,
subscriptions end only when all of these partitions have: the next owner of a group's partition then
writes behind the committed messages.
Source: PIP-31, Broker Request Processing; docs/design/0001-protocol.md, Ends at a participant;
docs/design/0003-groups.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from magnetar_broker.replies import refusal_of
from magnetar_broker.topics.partition import Partition
from magnetar_broker.topics.topics import Topics
from magnetar_broker.transactions.transaction_index import End, Outcome
from magnetar_broker.transactions.waiting_ends import AskedEnd
from magnetar_core.errors import (
    Gone,
    MagnetarError,
    PartitionMoved,
    SubscriptionNotFound,
    TopicNotFound,
)
from magnetar_core.ids import PartitionName, SubscriptionName
from magnetar_core.server.commands import CommandSession
from magnetar_core.transport.columns.ends import Counted

# A participant that is gone does not wait for others, and others do not wait for it.
_GONE = (Gone, TopicNotFound, SubscriptionNotFound)


class EndsTogether:
    """Ends at several participants, until each of them has an answer.

    Args:
        end: the end, without counts.
        participants: the names of all, each with the confirmed writes of its writers.
        are_counted: whether these count.
    Attributes:
        on_answered: called when every participant has answered.
        ended_partitions: how many partitions have ended the transaction.
        unfinished: participants that have not, each with its error; None: a subscription that waits
            for the partitions.
    Raises:
        Unheard: a topic may be new.
    """

    __slots__ = (
        "_outcome",
        "_partitions",
        "_subscriptions",
        "_topics",
        "_unanswered",
        "ended_partitions",
        "on_answered",
        "unfinished",
    )

    def __init__(
        self, topics: Topics, end: End, participants: Iterable[Counted], *, are_counted: bool
    ) -> None:
        self._topics = topics
        self._outcome = end.outcome
        # With the error in place of a partition that is not here.
        self._partitions: list[tuple[PartitionName, End, Partition | MagnetarError]] = []
        # With the error for those of partitions that are not here: a topic that is gone does not
        # come back.
        self._subscriptions: list[tuple[SubscriptionName, End, MagnetarError | None]] = []
        # One more: the answer waits until all have begun.
        self._unanswered = 1
        self.on_answered: Callable[[], None] | None = None
        self.ended_partitions = 0
        self.unfinished: dict[PartitionName | SubscriptionName, MagnetarError | None] = {}
        hosted = topics.hosted
        txn_id, outcome, _, selection, is_lost, hanging, is_dropped, stamp, _ = end
        for name, counts, ledger_id in participants:
            own = end
            if are_counted or ledger_id:
                confirmed = counts if are_counted else None
                fields = txn_id, outcome, confirmed, selection, is_lost, hanging, is_dropped, stamp
                own = tuple.__new__(End, (*fields, ledger_id))
            if isinstance(name, PartitionName):
                self._partitions.append((name, own, hosted.get(name) or self._find(name)))
            else:
                refusal = None if name[:3] in hosted else self._find(name)
                if isinstance(refusal, Partition):
                    refusal = None
                self._subscriptions.append((name, own, refusal))

    @property
    def is_answered(self) -> bool:
        """Whether every participant has answered."""
        return not self._unanswered

    def begin(self, session: CommandSession | None, request_id: int) -> None:
        """End the transaction at the partitions, and then at the subscriptions.

        Args:
            session: the conversation that asked for it; None: a unary call.
            request_id: the number of the request in the conversation.
        """
        for name, end, partition in self._partitions:
            if isinstance(partition, MagnetarError):
                self.unfinished[name] = partition
                continue
            failed = partial(self._partition_failed, name)
            asked = end, session, request_id, self._partition_ended, failed
            try:
                if partition.end(tuple.__new__(AskedEnd, asked)):
                    self.ended_partitions += 1
                else:
                    self._unanswered += 1
            except Exception as error:
                self.unfinished[name] = refusal_of(error)
        self._partition_answered()

    def _find(self, name: PartitionName | SubscriptionName) -> Partition | MagnetarError:
        try:
            return self._topics.partition(name[0], name[1], name[2])
        except (Gone, TopicNotFound, PartitionMoved) as error:
            return error

    def _partition_ended(self) -> None:
        self.ended_partitions += 1
        self._partition_answered()

    def _partition_failed(self, name: PartitionName, error: Exception) -> None:
        self.unfinished[name] = refusal_of(error)
        self._partition_answered()

    def _partition_answered(self) -> None:
        self._unanswered -= 1
        if self._unanswered:
            return
        waits = (
            bool(self.unfinished)
            and self._outcome is Outcome.COMMITTED
            and any(not isinstance(error, _GONE) for error in self.unfinished.values())
        )
        for name, end, refusal in self._subscriptions:
            if waits or refusal is not None:
                self.unfinished[name] = None if waits else refusal
            else:
                self._end_subscription(name, end)
        if self.on_answered is not None:
            self.on_answered()

    def _end_subscription(self, name: SubscriptionName, end: End) -> None:
        try:
            # Found again: its topic may have been deleted while a partition waited.
            topic, number, topic_id, subscription = name
            self._topics.partition(topic, number, topic_id).subscriptions.end(subscription, end)
        except Exception as error:
            self.unfinished[name] = refusal_of(error)
