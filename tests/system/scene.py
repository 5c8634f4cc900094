"""Raw conversations with the shards of a cluster, wherever they are."""

from __future__ import annotations

import asyncio

from tests.raw_talk import RawTalk
from tests.system.members import Members, Watcher
from tests.waiting import until

from magnetar_cluster.directory.view import BROKER, ShardName
from magnetar_cluster.directory.whereabouts import where_is
from magnetar_core.errors import MagnetarError
from magnetar_core.link.grpc_transport import GrpcTransport


class Scene:
    """A cluster, what its directory says, and raw conversations with its shards."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.watcher = Watcher(members.directory())
        self._transport = GrpcTransport()

    async def talk(self, shard: ShardName) -> RawTalk:
        """Converse with the owner of now."""
        service = "Broker" if shard.kind == BROKER else "TransactionCoordinator"

        async def connected() -> RawTalk | None:
            address = str(where_is(self.watcher.view, shard).address)
            try:
                return await RawTalk().connect(self._transport, address, service)
            except OSError:
                return None

        while (talk := await connected()) is None:
            await until(lambda: shard in self.watcher.view.shard_owners)
        return talk

    async def answered(self, shard: ShardName, body: object) -> object:
        """Ask until the owner of a shard answers, as clients do."""
        while True:
            talk = await self.talk(shard)
            answer = talk.begin(body)
            closed = asyncio.ensure_future(talk.closed.wait())
            await asyncio.wait((answer, closed), return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            if not answer.done():
                continue
            error = answer.exception()
            if error is None:
                return answer.result()
            assert isinstance(error, MagnetarError)
            assert error.retriable, error

    async def close(self) -> None:
        await self._transport.close()
        await self.watcher.close()
