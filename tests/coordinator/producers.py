"""A transactional producer that sends exactly the producer ids and epochs that a test gives."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.coordinator.fakes import SILENCE, World

from magnetar_coordinator.metadata.transactional_id import Pair
from magnetar_core.ids import PartitionName, TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

P0 = PartitionName("t", 0, 1)
P1 = PartitionName("t", 1, 1)


class Hand:
    """Speaks for one transactional id."""

    def __init__(self, world: World, transactional_id: str = "app") -> None:
        self.world = world
        self.id = transactional_id

    def identity(self, pair: Pair) -> common.ProducerIdentity:
        return common.ProducerIdentity(
            transactional_id=self.id, producer_id=pair.producer_id, producer_epoch=pair.epoch
        )

    def ask(self, body: Any) -> asyncio.Future[Any]:
        return self.world.client.ask(body)

    async def init(
        self, *, keep: bool = False, two_phase: bool = False, timeout_ms: int = 0, **fields: Any
    ) -> Pair:
        response = await self.ask(self.init_command(keep, two_phase, timeout_ms, **fields))
        return Pair(response.producer_id, response.producer_epoch)

    def init_command(
        self, keep: bool = False, two_phase: bool = False, timeout_ms: int = 0, **fields: Any
    ) -> pb.CommandInitProducer:
        return pb.CommandInitProducer(
            transactional_id=self.id,
            keep_prepared=keep,
            enable_2pc=two_phase,
            txn_timeout_ms=timeout_ms,
            **fields,
        )

    def named(self, pair: Pair) -> dict[str, Any]:
        """Fields of InitProducer of an instance that has this pair."""
        return {"producer_id": pair.producer_id, "producer_epoch": pair.epoch}

    def begin_command(self, pair: Pair, *partitions: PartitionName) -> pb.CommandNewTxn:
        return pb.CommandNewTxn(
            identity=self.identity(pair),
            partitions=[partition.to_wire() for partition in partitions],
        )

    async def begin(self, pair: Pair, *partitions: PartitionName) -> TxnID:
        response = await self.ask(self.begin_command(pair, *partitions))
        return TxnID.from_wire(response.txn_id)

    async def add(self, pair: Pair, txn_id: TxnID, partition: PartitionName = P0) -> None:
        await self.ask(
            pb.CommandAddPartitionToTxn(
                txn_id=txn_id.to_wire(),
                partitions=[partition.to_wire()],
                identity=self.identity(pair),
            )
        )

    def end_command(self, pair: Pair, action: int, **fields: Any) -> pb.CommandEndTxn:
        return pb.CommandEndTxn(identity=self.identity(pair), txn_action=action, **fields)  # type: ignore[arg-type]

    async def end(self, pair: Pair, action: int = common.COMMIT, **fields: Any) -> Pair:
        response = await self.ask(self.end_command(pair, action, **fields))
        assert response.identity.transactional_id == self.id
        return Pair(response.identity.producer_id, response.identity.producer_epoch)

    async def state(self) -> tuple[str, int, int, int, int, int]:
        """The TC's state as KIP-939 prints it."""
        response = await self.ask(pb.CommandDescribeTransactionalId(transactional_id=self.id))
        found = response.description
        name = pb.TransactionalState.Name(found.state)
        return (
            "".join(part.capitalize() for part in name.split("_")),
            found.producer_id,
            found.producer_epoch,
            found.prev_producer_id,
            found.next_producer_id,
            found.next_producer_epoch,
        )


async def raised_to(hand: Hand, epoch: int, **fields: Any) -> Pair:
    """Initialise until a pair has that epoch."""
    pair = await hand.init(**fields)
    while pair.epoch < epoch:
        pair = await hand.init(**fields)
    assert pair.epoch == epoch
    return pair


async def next_producer_id(world: World, wanted: int) -> None:
    """Use producer ids up, until the next one is this."""
    while True:
        used = world.coordinator._metadata.next_producer_number
        if used == wanted:
            return
        assert used < wanted
        await Hand(world, f"filler-{used}").init()


def hold_ends(world: World, held: bool = True) -> None:
    """Have brokers leave ends unanswered, or answer them again."""
    world.broker.answer = lambda name, body: (
        SILENCE if held and name.startswith("end_txn") else None
    )
