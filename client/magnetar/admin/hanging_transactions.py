"""Transactions that are open at a broker and at no coordinator: find and abort them (KIP-664)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from magnetar.admin.producer_descriptions import (
    HangingTransaction,
    ProducerDescription,
)
from magnetar.admin.topics import TopicAdministration
from magnetar.admin.transactions import QUESTIONS_MAX, TransactionAdministration
from magnetar.enums import TransactionStatus
from magnetar_core.errors import (
    TopicNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.wire import broker_pb2, transaction_pb2

# A client names a participant to the coordinator while it writes there already.
JOINING_MS = 10_000
# Of who writes in a transaction and names no producer's epoch.
NO_EPOCH = -1


class HangingTransactions(TopicAdministration, TransactionAdministration):
    """Who writes in transactions, and which of these hang."""

    async def describe_producers(self, topic: str, partition: int) -> list[ProducerDescription]:
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
    ) -> list[HangingTransaction]:
        """What is open at participants, and at no coordinator.

        Args:
            topic, partition: only there; everywhere unless given.
            age_ms_min: only what has been open for so long.
        Source: KIP-664, Finding Hanging Transactions.
        """
        topics = [one.topic for one in await self.list_topics()] if topic is None else [topic]
        found: list[HangingTransaction] = []
        for name in topics:
            route = await self._cluster.route(name)
            every = range(route.partition_count) if partition is None else (partition,)
            for number in every:
                producers = await self.describe_producers(name, number)
                found += await self.hanging_among(producers, age_ms_min=age_ms_min)
        return found

    async def hanging_among(
        self, producers: Iterable[ProducerDescription], *, age_ms_min: int = 0
    ) -> list[HangingTransaction]:
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

    async def _why_hanging(self, producer: ProducerDescription) -> str:
        """Empty when its coordinator will end it, or its producer."""
        assert producer.txn_id is not None
        try:
            known = await self.describe_transaction(producer.txn_id)
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
