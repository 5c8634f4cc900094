"""Listener for Kafka's clients: its port, the shards in whose name it answers, an orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from prometheus_client import CollectorRegistry

from magnetar_broker.local_access import LocalAccess
from magnetar_core.config import join_address
from magnetar_core.server.commands import Gate
from magnetar_kafka.answer import Answer
from magnetar_kafka.budget import Budget
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.connection import Connection, Server
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.group_coordinator import GroupCoordinators
from magnetar_kafka.metrics import KafkaMetrics
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.client_requests import ClientRequests
from magnetar_kafka.requests.coordinator_requests import CoordinatorRequests
from magnetar_kafka.requests.fetch import FetchRequests
from magnetar_kafka.requests.group_requests import GroupRequests
from magnetar_kafka.requests.group_views import GroupViewRequests
from magnetar_kafka.requests.list_offsets import ListOffsetsRequests
from magnetar_kafka.requests.offset_requests import OffsetRequests
from magnetar_kafka.requests.offsets_in_transactions import OffsetsInTransactions
from magnetar_kafka.requests.produce import ProduceRequests
from magnetar_kafka.requests.producer_ids import ProducerIdRequests
from magnetar_kafka.requests.topic_requests import TopicRequests
from magnetar_kafka.requests.transaction_requests import TransactionRequests
from magnetar_kafka.requests.transaction_tools import TransactionTools
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.transactions.transactions import Transactions

log = logging.getLogger(__name__)


class Listener:
    """A port for Kafka's clients.

    Args:
        node_id: the number of this broker for clients.
        coordinators: links to those who decide about transactions.
        gate: access control of commands that change topics; None: there is none.
    """

    def __init__(
        self,
        config: KafkaConfig,
        random: Random,
        registry: CollectorRegistry,
        *,
        node_id: int,
        coordinators: Coordinators,
        gate: Gate | None = None,
    ) -> None:
        self.shards = Shards()
        self._coordinators = coordinators
        transactions = Transactions(coordinators, self.shards.ledger_id_of)
        metrics, budget = KafkaMetrics(registry), Budget(config.kafka_memory_bytes_max)
        self._groups = groups = GroupCoordinators(self.shards, config, random)
        handlers: dict[int, Handle] = {
            **ClientRequests().handlers,
            **ProducerIdRequests(transactions, random).handlers,
            **TransactionRequests(self.shards, transactions).handlers,
            **OffsetsInTransactions(self.shards, transactions, groups, config).handlers,
            **TransactionTools(self.shards, coordinators).handlers,
            **TopicRequests(self.shards, config, random, node_id=node_id, gate=gate).handlers,
            **ProduceRequests(self.shards, transactions).handlers,
            **FetchRequests(self.shards, config, budget, metrics, transactions.saw).handlers,
            **ListOffsetsRequests(self.shards).handlers,
            **CoordinatorRequests(groups, node_id=node_id).handlers,
            **GroupRequests(self.shards, groups).handlers,
            **GroupViewRequests(groups).handlers,
            **OffsetRequests(self.shards, groups, config).handlers,
        }
        self._handlers = handlers
        self._server = Server(config=config, handle=self._handle, metrics=metrics, budget=budget)
        self._listening: asyncio.Server | None = None
        self.address = ""

    def add(self, access: LocalAccess, may_speak: Callable[[], bool] = lambda: True) -> Shard:
        """Answer in the name of a broker of this process, until remove().

        Args:
            may_speak: whether the lease of its shard lasts, and its store has not failed.
        """
        shard = Shard(access, may_speak)
        self.shards.add(shard)
        return shard

    def remove(self, shard: Shard) -> None:
        """Answer no longer in the name of a broker. Repeating it is harmless."""
        self.shards.remove(shard)
        self._groups.ended(shard)

    async def open(self, host: str, port: int) -> None:
        """Open the port.

        Args:
            port: 0: the operating system chooses.
        Raises:
            OSError: the port is taken, or the address is not one of this machine.
        """
        self._coordinators.start()
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            lambda: Connection(self._server), host.strip("[]"), port
        )
        found: int = self._listening.sockets[0].getsockname()[1]
        self.address = join_address(host, found)

    async def close(self, grace_ms: int) -> None:
        """Let no client in; answer what was begun, within a time.

        Args:
            grace_ms: connections that are open after it are cut.
        """
        if self._listening is not None:
            self._listening.close()
        self._server.stopping.set()
        connections = list(self._server.connections)
        if connections:
            finishing = [asyncio.ensure_future(one.finish()) for one in connections]
            _, late = await asyncio.wait(finishing, timeout=grace_ms / 1000)
            for one in late:
                one.cancel()
        for connection in list(self._server.connections):
            connection.abort()
        await self._coordinators.close()
        self._groups.close()

    async def _handle(self, request: Request) -> Answer:
        return await self._handlers[request.api.key](request)
