"""The client processes of a short history; each task does its steps in sequence."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.history import Cursor, TransactionRecord
from tests.simulation.nodes import ClientNode
from tests.simulation.raw import BROKER, COORDINATOR, NoAnswer, RawClient
from tests.simulation.raw_unit import RawUnit, raw_client
from tests.simulation.sdk_unit import Unit, Writer
from tests.simulation.short.script import Step

import magnetar
from magnetar.enums import BatchingName
from magnetar_core.errors import ConsumerBusy, MagnetarError

if TYPE_CHECKING:
    from tests.simulation.world import World

CONNECT_ATTEMPTS = 60
# Until a broker knows that nobody is behind a link.
HALF_OPEN_SECONDS_MAX = 45.0


class Actor:
    """A client process, over all of its lives.

    Attributes:
        writers, consumers, units: what its present life has made, by the names that steps use.
        unknown: transactions whose commit it has asked for, and heard nothing of.
        kept: what survives a crash, as a database does.
    """

    def __init__(self, world: World, name: str, steps: list[Step]) -> None:
        self.world = world
        self.name = name
        self._tasks: dict[int, list[Step]] = {}
        self._closing: list[Step] = []
        for step in steps:
            if step.closing:
                self._closing.append(step)
            else:
                self._tasks.setdefault(step.task, []).append(step)
        self._next = dict.fromkeys(self._tasks, 0)
        self.kept: dict[str, Any] = {}
        self.node = ClientNode(world.environment, name, self._live)
        self._begin_life()

    def _begin_life(self) -> None:
        self.writers: dict[str, Writer] = {}
        self.consumers: dict[str, Any] = {}
        self.units: dict[str, Any] = {}
        self.unknown: list[Unit] = []
        # By consumer, topic, partition and offset: the transaction that has acknowledged it, and
        # where.
        self.acked_in: dict[tuple[Any, str, int, int], tuple[magnetar.Transaction, Cursor]] = {}
        self._client: magnetar.Client | None = None
        self._connecting: asyncio.Lock | None = None
        self._raw: RawClient | None = None
        self._unit_count = 0

    @property
    def task_count(self) -> int:
        return len(self._tasks)

    @property
    def finished(self) -> bool:
        """All is done, or abandoned, but for what waits for the end."""
        return all(self.world.has_done(step) for steps in self._tasks.values() for step in steps)

    # What steps work with.

    async def client(self) -> magnetar.Client:
        """The SDK's client of this life. Raises: MagnetarError: the broker cannot be reached."""
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            for attempt in range(CONNECT_ATTEMPTS):
                if self._client is not None:
                    break
                try:
                    self._client = await magnetar.connect(
                        self.world.bootstrap(self.name),
                        transport=self.node.transport(),
                        clock=self.node.clock,
                        random=self.random(f"sdk/{self._life_name}"),
                        config=self.world.client_config,
                    )
                except MagnetarError:
                    if attempt == CONNECT_ATTEMPTS - 1:
                        raise
                    await asyncio.sleep(0.1)
        assert self._client is not None
        return self._client

    def raw(self) -> RawClient:
        if self._raw is None:
            self._raw = raw_client(self.world, self.node)
        return self._raw

    def unit(self, step: Step) -> RawUnit:
        """A transaction by hand."""
        self._unit_count += 1
        name = f"{self.name}.{self.node.life}.{step.number}.{self._unit_count}"
        return RawUnit(self.world, self.raw(), self.random(f"unit/{step.number}"), name)

    async def writer(
        self,
        name: str,
        topic: str,
        *,
        batching: BatchingName = "mixed",
        linger_ms: float = 0.0,
        batch_messages_max: int = 8,
        **more: Any,
    ) -> Writer:
        """A producer, made at its first use."""
        known = self.writers.get(name)
        if known is not None:
            return known
        client = await self.client()
        producer = await client.create_producer(
            topic,
            linger_ms=linger_ms,
            batch_messages_max=batch_messages_max,
            batching=batching,
            **more,
        )
        if name in self.writers:
            await producer.close()  # Another task was quicker.
            return self.writers[name]
        self.world.writer_count += 1
        label = f"{self.name}/{name}/{self.world.writer_count}"
        if batching == "by_key":
            self.world.history.by_key.add(label)
        writer = self.writers[name] = Writer(self.world, producer, label)
        return writer

    def random(self, purpose: str) -> Random:
        return self.world.environment.random(f"{self.name}/{purpose}")

    @property
    def _life_name(self) -> str:
        """Of this process: no two of them draw the same tokens."""
        return f"{'' if self.node.name == self.name else 'closing/'}{self.node.life}"

    # Life.

    async def _live(self, node: ClientNode) -> None:
        self._begin_life()
        for task, steps in self._tasks.items():
            for step in steps[: self._next[task]]:
                self.world.done(step)
        await asyncio.gather(*[self._work(task) for task in self._tasks])
        await self._end_life()

    async def _work(self, task: int) -> None:
        steps = self._tasks[task]
        while self._next[task] < len(steps):
            step = steps[self._next[task]]
            # Who dies of a step does not begin it again.
            self._next[task] += 1
            await self._do(step)
            self.world.done(step)

    async def close_down(self) -> None:
        """The steps for the end, in a life of their own."""
        if self._closing:
            await self.world.run_program(f"{self.name}-closing", self._close)

    async def _close(self, node: ClientNode) -> None:
        self.node = node
        self._begin_life()
        for step in self._closing:
            await self._do(step)
        await self._end_life()

    async def _end_life(self) -> None:
        if self._raw is not None:
            for service in (BROKER, COORDINATOR):
                self._raw.hang_up(service)
        if self._client is not None:
            await self._client.close()
        self._begin_life()

    async def _perform(self, step: Step) -> None:
        world = self.world
        patience_ends_at = world.loop.time() + (HALF_OPEN_SECONDS_MAX if step.closing else 0.0)
        while True:
            try:
                await world.verbs[step.verb](self, step, **step.arguments)
                return
            except ConsumerBusy:
                # By who died on a half-open link, maybe.
                if world.loop.time() >= patience_ends_at:
                    raise
                await asyncio.sleep(1.0)

    async def _do(self, step: Step) -> None:
        world = self.world
        await world.wait_for(step.after)
        if step.pause_s:
            await asyncio.sleep(step.pause_s)
        world.begins(step)
        try:
            await self._perform(step)
        except (MagnetarError, NoAnswer) as error:
            if step.closing:
                # Nothing is wrong any more that could excuse it.
                world.history.violation("end", f"{self.name} cannot {step.verb}: {error!r}")
            world.note_client_failure(self.node, error)

    def record(self, unit: Any) -> TransactionRecord:
        record: TransactionRecord = unit.record
        return record
