"""Administration of transactions: list, describe, end them, find hanging transactions.

A transaction hangs when it is open at a participant but not at its coordinator (KIP-664).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from magnetar.admin.producer_descriptions import HangingTransaction, ProducerDescription
from magnetar.admin.transaction_changes import CoordinatorChanges, TransactionChanges
from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.admin.transaction_history import TransactionHistory, history_of
from magnetar.arguments import checked
from magnetar.enums import TransactionAction, TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.topic_route import TopicRoute
from magnetar.link.whole_topics import all_of
from magnetar_core.errors import (
    InvalidArgument,
    MagnetarError,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import NO_EPOCH, TxnID
from magnetar_core.requests import Request
from magnetar_core.transport.columns.end_txns import Ended, EndTxn
from magnetar_core.wire import broker_pb2, topic_pb2, transaction_pb2

# How many questions about single transactions may be on their way at the same time.
QUESTIONS_MAX = 256
# How many partitions may be looked at at the same time.
PARTITIONS_AT_ONCE = 16


# How long a client may write to a participant before the coordinator is told of it.
JOINING_MS = 10_000

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")
# `list` is a method of the class below.
Transactions: TypeAlias = list[TransactionDescription]
TransactionStatuses: TypeAlias = list[TransactionStatus | None]
Producers: TypeAlias = list[ProducerDescription]
HangingOnes: TypeAlias = list[HangingTransaction]


class TransactionAdmin:
    """Administers transactions: `client.admin.transactions`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @checked
    async def list(
        self,
        statuses: Iterable[TransactionStatus] = (),
        *,
        age_ms_min: int = 0,
        transactional_id_pattern: str = "",
        producer_ids: Iterable[int] = (),
        tcid: int | None = None,
        limit: int = 1_000,
        on_unanswered: Callable[[int, MagnetarError], None] | None = None,
        on_truncated: Callable[[int], None] | None = None,
    ) -> Transactions:
        """List the transactions of all coordinators.

        Those that have not ended come first, the oldest before the others. Then come those that
        have ended and that their coordinators have not forgotten, the latest end first.

        Args:
            statuses: only transactions in these states; empty: OPEN, COMMITTING and ABORTING.
            age_ms_min: only transactions that were opened, or have ended, at least this many
                milliseconds ago.
            transactional_id_pattern: only transactions of transactional ids that match, with
                wildcards as in a shell, for example `app-*`; empty: all transactions.
            producer_ids: only transactions of these producer ids, which are those of transactional
                ids; empty: all transactions.
            tcid: ask this coordinator only; None: all coordinators.
            limit: how many transactions to return at most: the first in that order. A coordinator
                returns up to 10,000.
            on_unanswered: called with the TCID of each coordinator that does not answer, and the
                error; the transactions of the others are returned. None: the first of these errors
                is raised.
            on_truncated: called with the TCID of each coordinator that has more such transactions
                than the list.
        Raises:
            LogUnavailable, OutcomeUnknown: a coordinator does not answer in time.
        Source: KIP-664, ListTransactions.
        """
        command = transaction_pb2.CommandListTxns(
            statuses=[int(status) for status in statuses],  # type: ignore[misc]
            age_ms_min=age_ms_min,
            transactional_id_pattern=transactional_id_pattern,
            producer_ids=producer_ids,
            limit=limit,
        )
        replies = await self._ask_coordinators(command, tcid, on_unanswered)
        found = [
            TransactionDescription.from_wire(one)
            for reply in replies.values()
            for one in reply.transactions
        ]
        self._cluster.runtime.saw(max((one.stamp for one in found), default=0))
        found.sort(key=_open_and_old_first)
        left_out = {one.txn_id.tcid for one in found[limit:]}
        for asked, reply in replies.items():
            if on_truncated is not None and (reply.truncated or asked in left_out):
                on_truncated(asked)
        return found[:limit]

    @checked
    async def changes(
        self,
        since: TransactionChanges | None = None,
        *,
        on_unanswered: Callable[[int, MagnetarError], None] | None = None,
    ) -> TransactionChanges:
        """Tell what has changed among the transactions of all coordinators.

        For programs that show live transactions: a list would tell all of them again each time.

            live = {}
            seen = None
            while True:
                seen = await client.admin.transactions.changes(seen)
                seen.apply_to(live)

        Args:
            since: the changes that the last call returned; None: list all live transactions.
            on_unanswered: as for list(). Such a coordinator goes on in the next call.
        Raises:
            LogUnavailable, OutcomeUnknown: a coordinator does not answer in time.
        """
        places = {} if since is None else dict(since.places)

        async def follow(tcid: int, coordinator: ConnectionBase) -> CoordinatorChanges:
            told = CoordinatorChanges(places.get(tcid))
            await told.ask(coordinator)
            return told

        told = await self._of_coordinators(follow, None, on_unanswered)
        places |= {tcid: one.place for tcid, one in told.items() if one.place is not None}
        live = tuple(found for one in told.values() for found in one.live.values())
        ended = tuple(found for one in told.values() for found in one.ended)
        self._cluster.runtime.saw(max((one.stamp for one in (*live, *ended)), default=0))
        return TransactionChanges(
            live,
            ended,
            frozenset(tcid for tcid, one in told.items() if one.is_anew),
            places,
        )

    async def _ask_coordinators(
        self,
        command: Request[ResponseT],
        tcid: int | None,
        on_unanswered: Callable[[int, MagnetarError], None] | None,
    ) -> dict[int, ResponseT]:
        """Send a command to all coordinators at once, or to a single coordinator.

        Returns:
            The answers, by TCID.
        """

        async def request(tcid: int, coordinator: ConnectionBase) -> ResponseT:
            return await coordinator.request(command)

        return await self._of_coordinators(request, tcid, on_unanswered)

    async def _of_coordinators(
        self,
        ask_one: Callable[[int, ConnectionBase], Awaitable[T]],
        tcid: int | None,
        on_unanswered: Callable[[int, MagnetarError], None] | None,
    ) -> dict[int, T]:
        """Ask all coordinators at once, or a single one. Returns the answers, by TCID."""

        async def ask(tcid: int, coordinator: ConnectionBase) -> T | None:
            try:
                return await ask_one(tcid, coordinator)
            except MagnetarError as error:
                if on_unanswered is None or not error.kind.may_pass:
                    raise
                on_unanswered(tcid, error)
                return None

        coordinators = await self._cluster.coordinators_by_tcid(tcid)
        replies = await asyncio.gather(*(ask(*one) for one in coordinators.items()))
        return {
            one: reply
            for one, reply in zip(coordinators, replies, strict=True)
            if reply is not None
        }

    @checked
    async def describe(self, txn_id: TxnID) -> TransactionDescription:
        """Describe a transaction as its coordinator knows it.

        Raises:
            TxnNotFound: this TxnID was never issued.
            TxnForgotten: the transaction ended longer ago than its coordinator remembers.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTxn(txn_id=txn_id.to_wire())
        )
        self._cluster.runtime.saw(reply.transaction.stamp)
        return TransactionDescription.from_wire(reply.transaction)

    @checked
    async def history(self, txn_id: TxnID) -> TransactionHistory:
        """Tell what became of a transaction: how it began, was decided and ended, everywhere.

        The coordinator is asked as by describe(), and then the brokers of all participants, for how
        much they have of it. A broker that does not answer within seconds leaves its participants
        without that, and they say so.

        Raises:
            TxnNotFound: this TxnID was never issued.
            TxnForgotten: the transaction ended longer ago than its coordinator remembers.
        """
        return await history_of(self._cluster, await self.describe(txn_id))

    @checked
    async def statuses(self, txn_ids: Sequence[TxnID]) -> TransactionStatuses:
        """Return the status of each transaction, in order; None: its coordinator does not know it.

        Args:
            txn_ids: the transactions.
        """
        questions = asyncio.Semaphore(QUESTIONS_MAX)

        async def status(txn_id: TxnID) -> TransactionStatus | None:
            async with questions:
                try:
                    return (await self.describe(txn_id)).status
                except (TxnNotFound, TxnForgotten):
                    return None

        return await asyncio.gather(*(status(one) for one in txn_ids))

    @checked
    async def end(
        self, txn_id: TxnID, action: TransactionAction, *, wait_finished: bool = True
    ) -> TransactionStatus:
        """End a transaction of any client by hand.

        Args:
            txn_id: the transaction.
            action: COMMIT commits all that the participants have of it, without the counts that
                its client would send; ABORT discards all of it.
            wait_finished: wait until every participant has carried the outcome out; otherwise the
                call returns when the outcome is decided.
        Returns:
            The status of the transaction after the call.
        Raises:
            InvalidTxnState: the other outcome is decided; or the transaction belongs to a
                transactional id, and then it can only be aborted, and only without two-phase commit
                (see transactional_ids.force_terminate). No effect.
            TxnNotFound: this TxnID was never issued. No effect.
            TxnForgotten: the transaction ended longer ago than its coordinator remembers.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply: Ended = await coordinator.request(
            EndTxn(
                txn_id,
                int(action),  # type: ignore[arg-type]
                wait_finished=wait_finished,
                seen_stamp=self._cluster.runtime.seen_stamp,
                by_hand=True,
            ),
            patient=wait_finished,
        )
        self._cluster.runtime.saw(reply.stamp)
        return TransactionStatus(reply.status)

    @checked
    async def accept_loss(self, txn_id: TxnID) -> None:
        """Let a commit go on without the data that a participant has lost (TxnIncomplete).

        Raises:
            TxnNotFound: this TxnID was never issued. No effect.
            InvalidTxnState: the transaction is not being committed. No effect.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        await coordinator.request(transaction_pb2.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))

    @checked
    async def describe_producers(
        self, topic: str, partition: int, *, limit: int = 10_000
    ) -> Producers:
        """Describe the producers of a partition, and the transactions open there.

        Transactions with pending acks on the partition's subscriptions are among them. Those with
        open transactions come first.

        Args:
            topic: the topic's name.
            partition: the partition's number.
            limit: how many it returns at most, up to 10,000.
        Raises:
            TopicNotFound: the topic or the partition does not exist.
        Source: KIP-664, DescribeProducers.
        """
        return await self._producers_of(await self._cluster.route(topic), partition, limit)

    async def _producers_of(self, route: TopicRoute, partition: int, limit: int = 0) -> Producers:
        name = route.partition_name(partition)
        reply = await route.connection(partition).request(
            broker_pb2.CommandDescribeProducers(partition=name.to_wire(), producers_max=limit)
        )
        return [ProducerDescription.from_wire(name, one) for one in reply.producers]

    @checked
    async def find_hanging(
        self, topic: str | None = None, partition: int | None = None, *, age_ms_min: int = 0
    ) -> HangingOnes:
        """Find the transactions that are open at participants but not at their coordinators.

        Args:
            topic: look at this topic only; None: at all topics.
            partition: look at this partition only; None: at all partitions.
            age_ms_min: only transactions that have been open for at least this many milliseconds.
        Raises:
            TopicNotFound: the topic or the partition does not exist.
            LogUnavailable, OutcomeUnknown: a broker or a coordinator does not answer in time.
        Source: KIP-664, Finding Hanging Transactions.
        """
        topics = await self._topics() if topic is None else (topic,)
        runtime = self._cluster.runtime
        questions = asyncio.Semaphore(PARTITIONS_AT_ONCE)

        async def hanging_on(route: TopicRoute, number: int) -> HangingOnes:
            async with questions:
                producers = await self._producers_of(route, number)
                return await self.hanging_among(producers, age_ms_min=age_ms_min)

        found: HangingOnes = []
        for name in topics:
            route = await self._cluster.route(name)
            every = range(route.partition_count) if partition is None else (partition,)
            for some in await all_of(runtime, partial(hanging_on, route), every):
                found += some
        return found

    @checked
    async def hanging_among(
        self, producers: Iterable[ProducerDescription], *, age_ms_min: int = 0
    ) -> HangingOnes:
        """Find the hanging transactions of producers: open there, but not at the coordinator.

        Args:
            producers: the answers of describe_producers.
            age_ms_min: only transactions that have been open for at least this many milliseconds.
        """
        questions = asyncio.Semaphore(QUESTIONS_MAX)

        async def judged(producer: ProducerDescription) -> HangingTransaction | None:
            async with questions:
                reason = await self._why_hanging(producer)
            return HangingTransaction(producer, reason) if reason else None

        now_ms = self._wall_ms()
        chosen = [
            one for one in producers if one.txn_id is not None and one.open_ms(now_ms) >= age_ms_min
        ]
        every = await asyncio.gather(*(judged(one) for one in chosen))
        return [one for one in every if one is not None]

    async def _topics(self) -> Sequence[str]:
        reply = await self._cluster.any_broker.request(topic_pb2.CommandListTopics())
        return [one.topic for one in reply.topics]

    async def _why_hanging(self, producer: ProducerDescription) -> str:
        """Return why a transaction hangs; empty: its coordinator or its producer will end it."""
        assert producer.txn_id is not None
        try:
            known = await self.describe(producer.txn_id)
        except (TxnNotFound, TxnForgotten) as error:
            return f"its coordinator does not know it ({type(error).__name__})"
        if known.status in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED):
            return f"its coordinator has ended it: {known.status.name}"
        identity, told_epoch = known.identity, producer.producer_epoch
        # A writer by hand may leave the epoch out.
        if identity is not None and told_epoch not in (NO_EPOCH, identity.producer_epoch):
            return f"its coordinator has it under epoch {identity.producer_epoch}"
        participants: tuple[object, ...] = (*known.partitions, *known.subscriptions)
        if producer.participant not in participants:
            if producer.open_ms(self._wall_ms()) < JOINING_MS:
                return ""  # Its client is about to add it.
            return f"its coordinator has it {known.status.name} without this participant"
        return ""

    @checked
    async def abort_hanging(self, hanging: ProducerDescription) -> None:
        """Abort a hanging transaction at its participant.

        The coordinator first makes sure that no client can commit the transaction.

        Args:
            hanging: an answer of describe_producers or find_hanging; start and epoch must match.
        Raises:
            InvalidArgument: it has no transaction: this describes sends outside of transactions.
            InvalidTxnState: the transaction is open or committing at its coordinator, or it is not
                open at the participant with this start and epoch. No effect.
            TxnNotFound: no coordinator has ever issued this TxnID. No effect.
        Source: KIP-664, Aborting Transactions.
        """
        if hanging.txn_id is None:
            raise InvalidArgument(
                f"producer {hanging.producer_id} has no open transaction on {hanging.partition}"
            )
        coordinator = await self._cluster.coordinator_of(hanging.txn_id)
        await coordinator.request(
            transaction_pb2.CommandAbortHangingTxn(
                txn_id=hanging.txn_id.to_wire(),
                partition=hanging.partition.to_wire(),
                subscription=hanging.subscription,
                start_offset=hanging.start_offset,
                producer_epoch=hanging.producer_epoch,
            )
        )

    def _wall_ms(self) -> int:
        return self._cluster.runtime.clock.wall_ms()


def _open_and_old_first(one: TransactionDescription) -> tuple[bool, int, TxnID]:
    """Return where a transaction stands in a list."""
    has_ended = one.ended_at_ms != 0
    # The age of an ended transaction is the time since its end.
    return has_ended, one.age_ms if has_ended else -one.age_ms, one.txn_id
