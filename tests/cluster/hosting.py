"""Members over one directory in virtual time, and a judge who knows everything.

Nothing in place of the product: the directory is the one in memory, the hosts are real. Shards are
made of what a host can see of them: they open, close, end, are abandoned, and may speak or not.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import wraps
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar

from tests.virtual_loop import VirtualLoop
from tests.virtual_time import time_passes

from magnetar.testing.lives import Incarnation, SimulationFailure
from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.directory.cluster_directory_state import (
    Claim,
    ClusterDirectoryState,
    Release,
    Request,
)
from magnetar_cluster.directory.memory_directory import MemoryDirectory, MemoryService
from magnetar_cluster.directory.view import (
    BROKER,
    Format,
    Member,
    MemberName,
    ShardName,
    ShardOwner,
    View,
)
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.hosting.host import Host
from magnetar_cluster.hosting.shard_opener import RunningShard, ShardOwnership

Answer = TypeVar("Answer")
Given = ParamSpec("Given")
SETTINGS = HostSettings()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """A scenario in virtual time, in which members may be killed."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario)
        loop.check()
    finally:
        loop.bury()


def now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


@dataclass(kw_only=True)
class Troubles:
    """What is wrong around a member. As it begins, nothing is."""

    cut: bool = False
    request_lost: float = 0.0
    answer_lost: float = 0.0
    # Requests that arrive long after their sender has given up.
    late: float = 0.0
    delay_s: float = 0.0
    answer_delay_s: float = 0.0
    watch_breaks: float = 0.0
    opening_s: float = 0.05
    closing_s: float = 0.05
    abandoning_s: float = 0.01
    opening_fails: float = 0.0
    closing_fails: float = 0.0


def delete_row(state: ClusterDirectoryState, name: MemberName) -> None:
    """Delete a member's row by hand."""
    del state._members[name]
    state._changed()


class Judge:
    """What has to hold at every moment, over all members.

    Attributes:
        openings: every opening that was begun, in order.
    """

    def __init__(self, service: MemoryService) -> None:
        self.service = service
        self.openings: list[tuple[str, ShardName, int]] = []
        self.open: dict[int, Shard] = {}

    def require(self, holds: bool, complaint: str) -> None:
        """Fail the run; an exception might end up in a host, which asks again after each."""
        if not holds:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.fail(SimulationFailure(f"at {loop.time():.3f} s: {complaint}"))

    def owner(self, shard: ShardName) -> ShardOwner | None:
        self.service.state.expire(now_ms())
        return self.service.state.view.shard_owners.get(shard)

    def opening(self, member: str, ownership: ShardOwnership) -> None:
        epochs = [epoch for _, _, epoch in self.openings]
        self.require(ownership.epoch not in epochs, "one epoch is opened twice")
        self.openings.append((member, ownership.shard, ownership.epoch))

    def arrives(self, request: Request[Answer]) -> None:
        """A request is about to have its effect."""
        state = self.service.state
        state.expire(now_ms())
        if isinstance(request, Release):
            shard = self.open.get(request.epoch)
            gone = shard is None or shard.hangs()
            self.require(gone, f"{request.shard} is given back while it is open")
        if isinstance(request, Claim) and request.lease in state.leases():
            name = MemberName(request.shard.kind, request.member)
            joined = name in state.view.members
            self.require(joined, f"{request.member} claims before it has joined")

    def look(self) -> None:
        """Nobody speaks in the name of a shard but its owner."""
        for shard in self.open.values():
            if shard.ownership.may_speak():
                epoch = shard.ownership.epoch
                owner = self.owner(shard.ownership.shard)
                self.require(
                    owner == ShardOwner(shard.member, epoch),
                    f"{shard.member} speaks for {shard.ownership.shard} in epoch {epoch},"
                    f" which belongs to {owner}",
                )

    def forget(self, shard: Shard) -> None:
        """Let a shard speak that lost its owner's row by hand."""
        self.open.pop(shard.ownership.epoch)

    async def look_always(self) -> None:
        while True:
            self.look()
            await time_passes(0.013)


class Shard:
    """A shard that is open at a member."""

    def __init__(self, judge: Judge, node: Node, ownership: ShardOwnership) -> None:
        self.member = node.name
        self.ownership = ownership
        self.calls: list[str] = []
        self._judge = judge
        self._node = node
        judge.open[ownership.epoch] = self

    async def close(self) -> None:
        self._judge.require(self.calls == [], "closed after its end")
        self.calls.append("close")
        node = self._node
        node.closing.add(self.ownership.epoch)
        node.closing_most = max(node.closing_most, len(node.closing))
        try:
            await time_passes(node.troubles.closing_s)
        finally:
            node.closing.discard(self.ownership.epoch)
        if "close" in node.cancelled:
            raise asyncio.CancelledError
        if node.random.random() < node.troubles.closing_fails:
            raise OSError("the store does not answer")
        self._gone()

    async def abandon(self) -> None:
        self.calls.append("abandon")
        await time_passes(self._node.troubles.abandoning_s)
        self._gone()
        if "abandon" in self._node.cancelled:
            raise asyncio.CancelledError

    def hangs(self) -> bool:
        """Whether nobody can wait for its end: it may not speak, and its store will be fenced."""
        return "abandon" in self.calls and self._node.troubles.abandoning_s > 1_000

    def end(self, reason: str = "fenced") -> None:
        """It ends by itself."""
        self.ownership.on_end(OSError(reason))

    def _gone(self) -> None:
        self.calls.append("gone")
        self._node.ended.append(self.calls)
        self._judge.open.pop(self.ownership.epoch, None)


@dataclass
class Link:
    """A member's way to the directory; implements Service."""

    judge: Judge
    troubles: Troubles
    random: Random
    timeout_s: float = 1.0
    requests: list[Request[object]] = field(default_factory=list)
    # Instead of every answer.
    raises: BaseException | None = None

    async def ask(self, request: Request[Answer]) -> Answer:
        troubles = self.troubles
        self.requests.append(request)  # type: ignore[arg-type]
        await time_passes(self.random.random() * troubles.delay_s)
        if self.raises is not None:
            raise self.raises
        fate = self.random.random()
        if troubles.cut or fate < troubles.request_lost:
            raise await self._silence()
        if fate < troubles.request_lost + troubles.late:
            asyncio.get_running_loop().call_later(2 + 8 * fate, self._arrive_late, request)
            raise await self._silence()
        self.judge.arrives(request)
        answer = await self.judge.service.ask(request)
        await time_passes(troubles.answer_delay_s)
        if troubles.cut or self.random.random() < troubles.answer_lost:
            raise await self._silence()
        return answer

    async def watch(self) -> AsyncGenerator[View, None]:
        if self.troubles.cut:
            raise await self._silence()
        async with aclosing(self.judge.service.watch()) as views:
            async for view in views:
                await time_passes(self.random.random() * self.troubles.delay_s)
                if self.raises is not None:
                    raise self.raises
                if self.troubles.cut or self.random.random() < self.troubles.watch_breaks:
                    raise ClusterDirectoryUnavailable("the watch broke")
                yield view

    async def _silence(self) -> ClusterDirectoryUnavailable:
        await time_passes(self.timeout_s)
        return ClusterDirectoryUnavailable("no answer in time")

    def _arrive_late(self, request: Request[Answer]) -> None:
        self.judge.arrives(request)
        late = self.judge.service.ask(request)
        task = asyncio.get_running_loop().create_task(late)
        task.add_done_callback(lambda done: done.exception())


class Node:
    """One life of a member; implements ShardOpener."""

    def __init__(self, cluster: Cluster, name: str, settings: HostSettings) -> None:
        self.name = name
        self.troubles = Troubles()
        self.random = Random(cluster.random.random())
        self.link = Link(cluster.judge, self.troubles, self.random)
        self.closing: set[int] = set()
        self.closing_most = 0
        self.speech: list[bool] = []
        # What happens to certain shards here: seconds to open; cannot be opened; end too early.
        self.slow: dict[ShardName, float] = {}
        self.broken: set[ShardName] = set()
        self.openings = 0
        self.ends_early: set[ShardName] = set()
        # Moments at which something inside of a shard cancels itself.
        self.cancelled: set[str] = set()
        # What was asked of each shard that is gone.
        self.ended: list[list[str]] = []
        self._cluster = cluster
        self.incarnation: Incarnation = cluster.loop.incarnate(name)
        self.host = Host(
            MemoryDirectory(self.link),
            self,
            settings,
            cluster_format=cluster.format,
            name=MemberName(BROKER, name),
            member=Member(address=f"{name}:6650"),
            now_ms=now_ms,
            random=self.random,
        )
        self.host.on_speech.append(self.speech.append)

    async def open(self, ownership: ShardOwnership) -> RunningShard:
        self._cluster.judge.opening(self.name, ownership)
        self.openings += 1
        await time_passes(self.slow.pop(ownership.shard, self.troubles.opening_s))
        if "open" in self.cancelled:
            raise asyncio.CancelledError
        if ownership.shard in self.broken:
            raise OSError("no such bucket")
        if ownership.shard in self.ends_early:
            ownership.on_end(OSError("too early"))
        if self.random.random() < self.troubles.opening_fails:
            raise OSError("the store does not answer")
        return Shard(self._cluster.judge, self, ownership)

    def calm(self) -> None:
        """Nothing is wrong any more."""
        vars(self.troubles).update(vars(Troubles()))

    def open_shards(self) -> list[Shard]:
        return [one for one in self._cluster.judge.open.values() if one.member == self.name]

    def shard(self, name: ShardName) -> Shard:
        (found,) = [shard for shard in self.open_shards() if shard.ownership.shard == name]
        return found


class Cluster:
    """A directory and members."""

    def __init__(self, *, shards: int = 6, seed: int = 0) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.random = Random(seed)
        self.service = MemoryService(now_ms)
        self.judge = Judge(self.service)
        self.format = Format(broker_shards=shards, coordinator_shards=1)
        self.shards = self.format.shards(BROKER)
        self.admin = MemoryDirectory(self.service)
        self.nodes: dict[str, Node] = {}
        self._judging = loop.create_task(self.judge.look_always())

    async def start(self, *names: str, settings: HostSettings = SETTINGS) -> list[Node]:
        for name in names:
            node = self.nodes[name] = Node(self, name, settings)
            await self.loop.spawn(node.incarnation, node.host.start())
        return [self.nodes[name] for name in names]

    def kill(self, name: str) -> None:
        """End a member's process between two instructions."""
        node = self.nodes.pop(name)
        self.loop.kill(node.incarnation)
        for shard in node.open_shards():
            del self.judge.open[shard.ownership.epoch]

    async def end(self) -> None:
        if self._judging.done():
            self._judging.result()
        self._judging.cancel()
        for node in self.nodes.values():
            node.link.troubles.cut = False
            await self.loop.spawn(node.incarnation, node.host.close())
        self.service.close()

    def served(self) -> dict[ShardName, str]:
        """The shards that are open at their owners, who may speak for them."""
        return {
            one.ownership.shard: one.member
            for one in self.judge.open.values()
            if one.ownership.may_speak() and not one.calls
        }

    def loads(self) -> list[int]:
        held = list(self.served().values())
        return sorted(held.count(name) for name in self.nodes)

    async def until(self, seconds: float, what: str = "all shards are served") -> float:
        """Wait until all shards are served; return the seconds that it took."""
        for step in range(int(seconds * 20)):
            if len(self.served()) == len(self.shards):
                return step / 20
            await time_passes(0.05)
        raise AssertionError(f"not within {seconds} s: {what}; served are {self.served()}")


# A test of a cluster, and of what pytest gives it besides.
ClusterTest = Callable[Concatenate[Cluster, Given], Coroutine[Any, Any, None]]


def on_cluster(*, shards: int) -> Callable[[ClusterTest[Given]], Callable[Given, None]]:
    """Run a test in virtual time, on a new cluster, and end the cluster after it."""

    def decorate(test: ClusterTest[Given]) -> Callable[Given, None]:
        async def scenario(*given: Given.args, **named: Given.kwargs) -> None:
            cluster = Cluster(shards=shards)
            await test(cluster, *given, **named)
            await cluster.end()

        @wraps(test)
        def in_virtual_time(*given: Given.args, **named: Given.kwargs) -> None:
            run(scenario(*given, **named))

        # pytest would look for a fixture that makes the cluster.
        signature = inspect.signature(test)
        others = list(signature.parameters.values())[1:]
        vars(in_virtual_time)["__signature__"] = signature.replace(parameters=others)
        return in_virtual_time

    return decorate
