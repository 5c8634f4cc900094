"""A transaction made by hand, and the questions that every hand-made client asks."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.history import Sent, TransactionRecord
from tests.simulation.nodes import ClientNode
from tests.simulation.raw import BROKER, COORDINATOR, RawClient, messages_of, send_command

from magnetar_core.errors import (
    TxnForgotten,
    TxnNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2, transaction_pb2

if TYPE_CHECKING:
    from tests.simulation.world import World

COMMIT = common_pb2.COMMIT
ABORT = common_pb2.ABORT


def raw_client(world: World, node: ClientNode) -> RawClient:
    return RawClient(
        node.name,
        node.transport(),
        {BROKER: world.any_broker(node.name), COORDINATOR: world.coordinator.name},
        brokers=world.broker_names,
        coordinators=[one.name for one in world.coordinators],
    )


async def read_new(world: World, client: RawClient, topic: str, partition: int, start: int) -> int:
    """Read what there is from an offset on. Returns where the next read begins."""
    reply = await client.read(topic, partition, start, messages_max=64)
    for delivered in reply.batches:
        txn_id = TxnID.from_wire(delivered.txn_id) if delivered.HasField("txn_id") else None
        for offset, value in messages_of(delivered):
            if offset >= start:
                world.history.saw(topic, partition, offset, value, txn_id)
    return reply.next_offset


async def ask_status(world: World, client: RawClient, txn: TransactionRecord) -> int:
    """The status that the coordinator tells of a transaction."""
    asked_at = world.loop.time()
    try:
        description = await client.describe_txn(txn.txn_id)
    except (TxnNotFound, TxnForgotten) as error:
        world.history.violation("2", f"{txn.txn_id} was issued; its coordinator says {error!r}")
    world.history.told(txn, description.status, asked_at=asked_at)
    return description.status


class RawUnit:
    """One transaction by hand, with as many producers as wanted."""

    def __init__(self, world: World, client: RawClient, random: Random, name: str) -> None:
        self.world = world
        self.client = client
        self.random = random
        self.name = name
        self.record: TransactionRecord
        self.txn_id: TxnID
        self._next_sequence: dict[tuple[int, str, int], int] = {}
        self._added: dict[tuple[str, int], common_pb2.Partition] = {}
        # Confirmed messages by partition and producer.
        self.confirmed: dict[tuple[str, int, int], list[Sent]] = {}

    async def begin(self, timeout_ms: int) -> None:
        self.begun(await self.client.new_txn(timeout_ms))

    def begun(self, txn_id: TxnID, *added: common_pb2.Partition) -> None:
        """Take a transaction that begins with these partitions."""
        self.txn_id = txn_id
        self.record = self.world.history.begin(txn_id, self.name)
        self._added = {(wire.topic, wire.partition): wire for wire in added}

    async def partition(
        self, topic: str, partition: int, *, add: bool = True
    ) -> common_pb2.Partition:
        known = self._added.get((topic, partition))
        if known is not None:
            return known
        topic_id = await self.client.lookup(topic)
        wire = common_pb2.Partition(topic=topic, partition=partition, topic_id=topic_id)
        if add:
            await self.client.add_partition(self.txn_id, wire)
            self._added[topic, partition] = wire
        return wire

    async def send(
        self,
        producer_id: int,
        topic: str,
        partition: int,
        *,
        add: bool = True,
        count: int = 1,
        follows: TxnID | None = None,
    ) -> list[Sent]:
        """Send until confirmed. Raises: MagnetarError: refused."""
        wire = await self.partition(topic, partition, add=add)
        history = self.world.history
        name = f"{self.name}:{producer_id}"
        sent = [history.send(name, topic, partition, self.record) for _ in range(count)]
        key = (producer_id, topic, partition)
        sequence = self._next_sequence.get(key, 0)
        asked_at = self.world.loop.time()
        await self.client.insist(
            BROKER,
            send_command(
                wire,
                producer_id,
                sequence,
                [one.value for one in sent],
                txn_id=self.txn_id,
                follows=follows,
            ),
        )
        self._next_sequence[key] = sequence + count
        for one in sent:
            history.confirm(one, asked_at=asked_at)
        writers = self.record.writers.setdefault((topic, partition), [])
        if name not in writers:
            writers.append(name)
        self.confirmed.setdefault((topic, partition, producer_id), []).extend(sent)
        return sent

    def end_command(
        self,
        action: common_pb2.TxnAction,
        *,
        counts: dict[tuple[str, int, int], int] | None = None,
        selected: list[int] | None = None,
        wait_finished: bool = False,
    ) -> transaction_pb2.CommandEndTxn:
        """EndTxn; counts by partition and producer, left out with None."""
        command = transaction_pb2.CommandEndTxn(
            txn_id=self.txn_id.to_wire(), txn_action=action, wait_finished=wait_finished
        )
        if counts is not None:
            command.counts_given = True
            for (topic, partition), wire in self._added.items():
                command.partition_counts.append(
                    transaction_pb2.PartitionCounts(
                        partition=wire,
                        producers=[
                            transaction_pb2.WriterCount(writer_id=producer_id, count=count)
                            for (one, number, producer_id), count in counts.items()
                            if (one, number) == (topic, partition)
                        ],
                    )
                )
        if selected is not None:
            command.selection_given = True
            command.selected_writer_ids.extend(selected)
        return command

    def confirmed_counts(self) -> dict[tuple[str, int, int], int]:
        return {key: len(sent) for key, sent in self.confirmed.items()}

    def confirmed_messages(self, producer_ids: list[int] | None = None) -> list[Sent]:
        return [
            message
            for (_, _, producer_id), sent in self.confirmed.items()
            if producer_ids is None or producer_id in producer_ids
            for message in sent
        ]

    async def end(self, command: transaction_pb2.CommandEndTxn, *, patience: int = 40) -> int:
        """Ask for an end until answered. Raises: MagnetarError: refused; NoAnswer."""
        asked_at = self.world.loop.time()
        if command.txn_action == ABORT:
            self.world.history.ask_abort(self.record)
        reply = await self.client.insist(COORDINATOR, command, attempts=patience)
        self.world.history.told(self.record, reply.status, asked_at=asked_at)
        return int(reply.status)
