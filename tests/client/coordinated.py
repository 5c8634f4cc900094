"""A cluster in memory whose coordinator is the product's, for the SDK's part in two-phase commit.

The broker is that of `fakes`: it knows nothing of what the coordinator ends, so these transactions
have no participants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests import virtual_time
from tests.client.fakes import COORDINATOR_ADDRESS, FakeCluster, connect
from tests.coordinator.fakes import World
from tests.core.envelope import parsed
from tests.fake_link import FakeLink
from tests.playbook import Playbook

from magnetar import Client
from magnetar.testing.envelope import command
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession, Conversation
from magnetar_core.wire import service_pb2


class CoordinatedCluster(FakeCluster):
    """A FakeCluster with a coordinator that decides.

    Attributes:
        world: has the coordinator.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.coordinators = {COORDINATOR_ADDRESS: 0}
        self.play = self.net.server = _Play(self)

    def epoch(self, transactional_id: str) -> int:
        """The epoch of the instance that may act."""
        return self.world.coordinator.transactional_ids.get(transactional_id).current.epoch

    def is_open(self, txn_id: TxnID | None) -> bool:
        return txn_id in self.world.coordinator.shard.live


class _Play(Playbook):
    """Passes what is for the coordinator on to it; it answers when its records are durable."""

    def __init__(self, cluster: CoordinatedCluster) -> None:
        super().__init__(cluster.handle, cluster.dispatch)
        self._world = cluster.world
        self._sessions: dict[FakeLink, CommandSession] = {}
        self._silent: set[tuple[FakeLink, int]] = set()

    def _answer(
        self, link: FakeLink, request_id: int, name: str, body: Any, *, silent: bool = False
    ) -> None:
        if link.address != COORDINATOR_ADDRESS or name == "hello":
            super()._answer(link, request_id, name, body, silent=silent)
            return
        if silent:
            self._silent.add((link, request_id))
        if link not in self._sessions:
            accept = self._world.coordinator.server.accept
            write = parsed(lambda frame: self._push(link, frame))
            self._sessions[link] = accept(Conversation(write=write))
        frame = service_pb2.Frame(commands=[command(body, request_id)])
        self._sessions[link].on_frame(frame)

    def _push(self, link: FakeLink, frame: service_pb2.Frame) -> None:
        for one in frame.commands:
            if (link, one.request_id) not in self._silent:
                link.push(one)


def run(test: Callable[[CoordinatedCluster, Client], Awaitable[None]], **settings: object) -> None:
    """Run a test against a fresh cluster, in virtual time.

    Args:
        settings: of the coordinator.
    """

    async def main() -> None:
        world = await World(two_phase_commit_enabled=True, **settings).start()
        cluster = CoordinatedCluster(world)
        async with asyncio.timeout(3_600), await connect(cluster) as client:
            await test(cluster, client)
        cluster.play.check()
        await world.close()

    virtual_time.run(main())
