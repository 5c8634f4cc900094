"""Members of a group, as the tests of groups play them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.broker.harness import (
    Client,
    World,
    ack,
    flow,
    subscribe,
)

from magnetar_core.ids import MemberName, PartitionName, TxnID
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import group_pb2 as group_wire

SESSION_MS = 10_000


GROUP = "s"


def join(member: str, *, instance: str = "", **fields: Any) -> group_wire.CommandJoinGroup:
    if "topics" not in fields and "topic_pattern" not in fields:
        fields["topics"] = ["t"]
    return group_wire.CommandJoinGroup(
        group=GROUP,
        member_id=member,
        instance_id=instance,
        initial_position=wire.EARLIEST,
        **fields,
    )


class Worker:
    """A member with a conversation of its own, which obeys unless it is told otherwise."""

    def __init__(self, world: World, member: str, instance: str = "") -> None:
        self.world = world
        self.member, self.instance = member, instance
        self.client = Client(world)
        self.held: dict[PartitionName, int] = {}
        self.consumer = sum(member.encode())
        self.epoch = 0

    async def join(self, **fields: Any) -> None:
        answer = await self.client.ask(join(self.member, instance=self.instance, **fields))
        self._obey(answer.state)

    async def beat(self, *, obey: bool = True) -> group_wire.CommandGroupHeartbeatResponse:
        held = [
            group_wire.AssignedPartition(partition=one.to_wire(), generation=generation)
            for one, generation in self.held.items()
        ]
        answer: group_wire.CommandGroupHeartbeatResponse = await self.client.ask(
            group_wire.CommandGroupHeartbeat(
                group=GROUP, member_id=self.member, instance_id=self.instance, held=held
            )
        )
        if obey:
            self._obey(answer)
        return answer

    async def beat_twice(self) -> None:
        """Hear what is asked back, and say that it is released."""
        await self.beat()
        await self.beat()

    async def attach(
        self, number: int = 0, *, after: Iterable[TxnID] = ()
    ) -> wire.CommandSubscribeResponse:
        self.epoch += 1
        command = subscribe(GROUP, consumer=self.consumer, epoch=self.epoch, number=number)
        command.after_txn_ids.extend(txn_id.to_wire() for txn_id in after)
        command.member.CopyFrom(self.name(number).to_wire())
        answer: wire.CommandSubscribeResponse = await self.client.ask(command)
        permits = flow(consumer=self.consumer, name=GROUP)
        permits.subscription.partition = number
        self.client.tell(permits)
        await self.world.settle()
        return answer

    async def ack(self, *ranges: tuple[int, int], number: int = 0, **fields: Any) -> None:
        two_phase_commit = fields.pop("two_phase_commit", False)
        generation = fields.pop("generation", None)
        command = ack(*ranges, consumer=self.consumer, name=GROUP, **fields)
        command.subscription.partition = number
        name = self.name(number)
        if generation is not None:
            name = name._replace(generation=generation)
        command.member.CopyFrom(name.to_wire())
        command.two_phase_commit = two_phase_commit
        await self.client.ask(command)

    def name(self, number: int = 0) -> MemberName:
        generation = next((g for one, g in self.held.items() if one.partition == number), 0)
        return MemberName(self.member, self.instance, generation)

    def numbers(self) -> list[int]:
        return sorted(one.partition for one in self.held)

    def _obey(self, state: group_wire.CommandGroupHeartbeatResponse) -> None:
        self.held = {
            PartitionName.from_wire(one.partition): one.generation for one in state.assigned
        }


async def pass_time(world: World, milliseconds: int, *beating: Worker) -> None:
    """In steps, as real time passes; members that beat are not expelled."""
    for _ in range(0, milliseconds, 500):
        world.clock.advance(500)
        for worker in beating:
            await worker.beat()
        world.broker.groups.sweep()
        await world.settle()
    for worker in beating:
        await worker.beat()


async def two_workers(world: World) -> tuple[Worker, Worker]:
    """`a` has partition 0 since generation 1, `b` has partition 1 since generation 2."""
    a, b = Worker(world, "a"), Worker(world, "b")
    await a.join()
    await b.join()
    await a.beat_twice()
    await b.beat()
    assert (a.numbers(), b.numbers()) == ([0], [1])
    return a, b
