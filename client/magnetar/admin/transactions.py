"""What an administrator does with transactions: list, describe, end them, find those that hang.

A transaction hangs when it is open at a participant and at no coordinator (KIP-664).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from magnetar.admin.producer_descriptions import HangingTransaction, ProducerDescription
from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.enums import TransactionAction, TransactionStatus
from magnetar.link.cluster import Cluster
from magnetar.link.connection import Connection
from magnetar_core.errors import (
    MagnetarError,
    TopicNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.requests import Request
from magnetar_core.wire import broker_pb2, topic_pb2, transaction_pb2

# About single transactions, that are on their way at the same time.
QUESTIONS_MAX = 256


# A client names a participant to the coordinator while it writes there already.
JOINING_MS = 10_000
# Of who writes in a transaction and names no producer's epoch.
NO_EPOCH = -1

ResponseT = TypeVar("ResponseT", bound=Message)
# `list` is a method of the class below.
Transactions: TypeAlias = list[TransactionDescription]
TransactionStatuses: TypeAlias = list[TransactionStatus | None]
Producers: TypeAlias = list[ProducerDescription]
HangingOnes: TypeAlias = list[HangingTransaction]


class TransactionAdmin:
    """Administers transactions: `client.admin.transactions`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

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
    ) -> Transactions:
        """Transactions of all coordinators, those of each from the oldest to the newest.

        Of those that have ended, the latest ones that its coordinator has not forgotten.

        Args:
            statuses: only these; without any, OPEN, COMMITTING and ABORTING.
            age_ms_min: only what was opened, or has ended, so long ago.
            transactional_id_pattern: with a shell's wildcards, as `app-*`; empty: all.
            producer_ids: of these only, as transactional ids have them; none: all.
            tcid: of this coordinator only.
            limit: at most so many of each coordinator.
            on_unanswered: told of each coordinator that does not answer, and why; what the others
                have is returned. Without it the first of these errors is raised.
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
        found: Transactions = []
        for reply in await self._ask_coordinators(command, tcid, on_unanswered):
            listed = [TransactionDescription.from_wire(one) for one in reply.transactions]
            found += sorted(listed, key=lambda one: (one.ended_at_ms == 0, one.txn_id))
        return found

    async def _ask_coordinators(
        self,
        command: Request[ResponseT],
        tcid: int | None,
        on_unanswered: Callable[[int, MagnetarError], None] | None,
    ) -> Sequence[ResponseT]:
        """The same of all coordinators at once, or of one."""

        async def ask(tcid: int, coordinator: Connection) -> ResponseT | None:
            try:
                return await coordinator.request(command)
            except MagnetarError as error:
                if on_unanswered is None or not error.kind.may_pass:
                    raise
                on_unanswered(tcid, error)
                return None

        coordinators = await self._cluster.coordinators_by_tcid(tcid)
        replies = await asyncio.gather(*(ask(*one) for one in coordinators.items()))
        return [one for one in replies if one is not None]

    async def describe(self, txn_id: TxnID) -> TransactionDescription:
        """Describe a transaction as its coordinator knows it.

        Raises:
            TxnNotFound: never issued.
            TxnForgotten: it ended longer ago than its coordinator remembers.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandDescribeTxn(txn_id=txn_id.to_wire())
        )
        return TransactionDescription.from_wire(reply.transaction)

    async def statuses(self, txn_ids: Sequence[TxnID]) -> TransactionStatuses:
        """Return what coordinators say of many transactions, in order; None where none knows."""
        questions = asyncio.Semaphore(QUESTIONS_MAX)

        async def status(txn_id: TxnID) -> TransactionStatus | None:
            async with questions:
                try:
                    return (await self.describe(txn_id)).status
                except (TxnNotFound, TxnForgotten):
                    return None

        return await asyncio.gather(*(status(one) for one in txn_ids))

    async def end(
        self, txn_id: TxnID, action: TransactionAction, *, wait_finished: bool = True
    ) -> TransactionStatus:
        """End somebody's transaction by hand, with whatever it holds.

        Raises:
            InvalidTxnState: it ended the other way. No effect.
            TxnNotFound, TxnForgotten: as they say.
        """
        coordinator = await self._cluster.coordinator_of(txn_id)
        reply = await coordinator.request(
            transaction_pb2.CommandEndTxn(
                txn_id=txn_id.to_wire(),
                txn_action=int(action),  # type: ignore[arg-type]
                wait_finished=wait_finished,
            ),
            patient=wait_finished,
        )
        return TransactionStatus(reply.status)

    async def accept_loss(self, txn_id: TxnID) -> None:
        """Let a commit go on without what a participant has lost (TxnIncomplete)."""
        coordinator = await self._cluster.coordinator_of(txn_id)
        await coordinator.request(transaction_pb2.CommandAcceptTxnLoss(txn_id=txn_id.to_wire()))

    async def describe_producers(self, topic: str, partition: int) -> Producers:
        """Who writes to a partition, and what is open there and at its subscriptions.

        Raises:
            TopicNotFound: no such topic or partition.
        Source: KIP-664, DescribeProducers.
        """
        route = await self._cluster.route(topic)
        if not 0 <= partition < route.partition_count:
            raise TopicNotFound(f"{topic} has no partition {partition}")
        reply = await route.connection(partition).request(
            broker_pb2.CommandDescribeProducers(partition=route.partition_name(partition).to_wire())
        )
        name = route.partition_name(partition)
        return [ProducerDescription.from_wire(name, one) for one in reply.producers]

    async def find_hanging(
        self, topic: str | None = None, partition: int | None = None, *, age_ms_min: int = 0
    ) -> HangingOnes:
        """What is open at participants, and at no coordinator.

        Args:
            topic, partition: only there; everywhere unless given.
            age_ms_min: only what has been open for so long.
        Source: KIP-664, Finding Hanging Transactions.
        """
        topics = await self._topics() if topic is None else (topic,)
        found: HangingOnes = []
        for name in topics:
            route = await self._cluster.route(name)
            every = range(route.partition_count) if partition is None else (partition,)
            for number in every:
                producers = await self.describe_producers(name, number)
                found += await self.hanging_among(producers, age_ms_min=age_ms_min)
        return found

    async def hanging_among(
        self, producers: Iterable[ProducerDescription], *, age_ms_min: int = 0
    ) -> HangingOnes:
        """Those whose transaction is open where they write, and at no coordinator.

        Args:
            age_ms_min: as find_hanging.
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
        reply = await self._cluster.bootstrap.request(topic_pb2.CommandListTopics())
        return [one.topic for one in reply.topics]

    async def _why_hanging(self, producer: ProducerDescription) -> str:
        """Empty when its coordinator will end it, or its producer."""
        assert producer.txn_id is not None
        try:
            known = await self.describe(producer.txn_id)
        except (TxnNotFound, TxnForgotten) as error:
            return f"its coordinator does not know it ({type(error).__name__})"
        if known.status in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED):
            return f"its coordinator has ended it: {known.status.name}"
        identity, told_epoch = known.identity, producer.producer_epoch
        # Who writes by hand need not say an epoch.
        if identity is not None and told_epoch not in (NO_EPOCH, identity.producer_epoch):
            return f"its coordinator has it under epoch {identity.producer_epoch}"
        participants: tuple[object, ...] = (*known.partitions, *known.subscriptions)
        if producer.participant not in participants:
            if producer.open_ms(self._wall_ms()) < JOINING_MS:
                return ""  # Its client is about to add it.
            return f"its coordinator has it {known.status.name} without this participant"
        return ""

    async def abort_hanging(self, hanging: ProducerDescription) -> None:
        """Abort a transaction where it hangs; its coordinator vouches that nobody commits it.

        Args:
            hanging: as describe_producers or find_hanging told it: start and epoch have to match.
        Raises:
            InvalidTxnState: it is open or committing at its coordinator, or is not open there, or
                not with this start and epoch. No effect.
            TxnNotFound: no coordinator has ever issued it. No effect.
        Source: KIP-664, Aborting Transactions.
        """
        assert hanging.txn_id is not None
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
