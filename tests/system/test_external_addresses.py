"""Clients on the far side of published ports: the members' own addresses lead nowhere for them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.system.processes import BROKER, COORDINATOR, Servers

import magnetar


class PublishedPort:
    """Passes bytes on to a server, as a container engine does; counts who came."""

    def __init__(self) -> None:
        self.connections = 0
        self._target = ("", 0)
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def lead_to(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._target = (host, int(port))

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        other_reader, other_writer = await asyncio.open_connection(*self._target)
        await asyncio.gather(_pump(reader, other_writer), _pump(other_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


def test_a_client_outside_uses_the_published_ports_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        published = {BROKER: PublishedPort(), COORDINATOR: PublishedPort()}
        external = {kind: await one.open() for kind, one in published.items()}
        servers = Servers(
            tmp_path,
            {
                "MAGNETAR_EXTERNAL_ADDRESSES": f"broker-0={external[BROKER]},"
                f"coordinator-0={external[COORDINATOR]}"
            },
        )
        for kind, one in published.items():
            one.lead_to(servers.addresses[kind])
        await asyncio.to_thread(servers.start)
        try:
            outside = await magnetar.connect(external[BROKER])
            info = await outside.admin.cluster_info()
            assert [broker.address for broker in info.brokers] == [external[BROKER]]
            assert [one.address for one in info.coordinators] == [external[COORDINATOR]]
            await outside.admin.topics.create("orders", partitions=2)
            producer = await outside.create_producer("orders")
            async with outside.transaction() as txn:
                await producer.send(b"an order", txn=txn)
            await outside.close()
            assert all(one.connections for one in published.values())

            # Inside, the members' own addresses: nothing comes through the published ports.
            before = {kind: one.connections for kind, one in published.items()}
            async with await magnetar.connect(servers.address) as inside:
                info = await inside.admin.cluster_info()
                assert [broker.address for broker in info.brokers] == [servers.addresses[BROKER]]
                consumer = await inside.subscribe("orders", "all", initial_position="earliest")
                assert (await consumer.receive()).value == b"an order"
                async with inside.transaction() as txn:
                    await (await inside.create_producer("orders")).send(b"another", txn=txn)
            assert {kind: one.connections for kind, one in published.items()} == before
        finally:
            for one in published.values():
                await one.close()
            await asyncio.to_thread(servers.stop)

    asyncio.run(scenario())
