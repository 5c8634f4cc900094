"""Listener for Kafka's clients: its port, the shards in whose name it answers, an orderly end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from prometheus_client import CollectorRegistry

from magnetar_broker.local_access import LocalAccess
from magnetar_core.clock import Clock
from magnetar_core.config import ListenConfig, join_address
from magnetar_core.security.admission import Admission
from magnetar_core.server.commands import Gate
from magnetar_kafka.answer import Answer
from magnetar_kafka.budget import Budget
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.connection import Server
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.group_coordinator import GroupCoordinators
from magnetar_kafka.metrics import KafkaMetrics
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.offset_owners import BrokerLinks, OffsetOwners
from magnetar_kafka.parking import Parking
from magnetar_kafka.port import Port
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.client_requests import ClientRequests
from magnetar_kafka.requests.config_requests import ConfigRequests
from magnetar_kafka.requests.coordinator_requests import CoordinatorRequests
from magnetar_kafka.requests.delete_records import DeleteRecordsRequests
from magnetar_kafka.requests.description_requests import DescriptionRequests
from magnetar_kafka.requests.fetch import FetchRequests
from magnetar_kafka.requests.group_requests import GroupRequests
from magnetar_kafka.requests.group_views import GroupViewRequests
from magnetar_kafka.requests.list_offsets import ListOffsetsRequests
from magnetar_kafka.requests.metadata_requests import MetadataRequests
from magnetar_kafka.requests.offset_deletions import OffsetDeletions
from magnetar_kafka.requests.offset_requests import OffsetRequests
from magnetar_kafka.requests.offsets_in_transactions import OffsetsInTransactions
from magnetar_kafka.requests.produce import ProduceRequests
from magnetar_kafka.requests.producer_ids import ProducerIdRequests
from magnetar_kafka.requests.sasl_requests import SaslRequests
from magnetar_kafka.requests.topic_requests import TopicRequests
from magnetar_kafka.requests.transaction_requests import TransactionRequests
from magnetar_kafka.requests.transaction_tools import TransactionTools
from magnetar_kafka.security.port_tls import PortTls
from magnetar_kafka.security.visitor import Doorkeeper
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.transactions.transactions import Transactions

log = logging.getLogger(__name__)


class Listener:
    """A port for Kafka's clients.

    Args:
        listen: settings of the server that count for this port, too: TLS, and who clients are.
        nodes: the brokers of the cluster.
        coordinators: links to those who decide about transactions.
        brokers: links to the other brokers.
        gate: access control; None: there is none.
    Raises:
        InvalidConfig: a file of the settings cannot be read.
    """

    def __init__(
        self,
        config: KafkaConfig,
        listen: ListenConfig,
        clock: Clock,
        random: Random,
        registry: CollectorRegistry,
        *,
        nodes: Nodes,
        coordinators: Coordinators,
        brokers: BrokerLinks | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.shards = Shards()
        metrics = KafkaMetrics(registry)
        # Apart, since requests wait for room for their answers.
        requests, answers = (Budget(config.kafka_memory_bytes_max // 2) for _ in range(2))
        self.parking = Parking(config.kafka_memory_bytes_max // 2)
        self._coordinators = coordinators
        self._brokers = brokers if brokers is not None else BrokerLinks()
        self._transactions = transactions = Transactions(
            coordinators, self.shards.ledger_id_of, nodes
        )
        self._owners = owners = OffsetOwners(self.shards, self._brokers, random)
        self._groups = groups = GroupCoordinators(self.shards, owners, config, random)
        handlers: dict[int, Handle] = {
            **ClientRequests().handlers,
            **SaslRequests().handlers,
            **MetadataRequests(self.shards, nodes, config, random).handlers,
            **TopicRequests(self.shards, config, random).handlers,
            **ConfigRequests(self.shards, nodes, config, random).handlers,
            **ProducerIdRequests(transactions, random).handlers,
            **TransactionRequests(self.shards, transactions).handlers,
            **OffsetsInTransactions(self.shards, transactions, groups, config).handlers,
            **TransactionTools(self.shards, coordinators).handlers,
            **ProduceRequests(self.shards, transactions).handlers,
            **FetchRequests(
                self.shards, config, answers, self.parking, metrics, transactions.saw
            ).handlers,
            **DescriptionRequests(self.shards).handlers,
            **DeleteRecordsRequests(self.shards).handlers,
            **ListOffsetsRequests(self.shards).handlers,
            **CoordinatorRequests(transactions, nodes).handlers,
            **GroupRequests(groups, owners).handlers,
            **GroupViewRequests(groups).handlers,
            **OffsetRequests(self.shards, groups, owners, config).handlers,
            **OffsetDeletions(self.shards, groups, owners).handlers,
        }
        self._handlers = handlers
        self._admission = Admission(listen, clock)
        self._server = Server(
            config=config,
            keeper=Doorkeeper(
                self._admission, clock, takes_tokens=bool(listen.token_keys_file), gate=gate
            ),
            stranger_timeout_ms=listen.handshake_timeout_ms,
            handle=self._handle,
            metrics=metrics,
            budget=requests,
            answer_budget=answers,
        )
        self._tls = None
        if listen.tls_certificate_file:
            self._tls = PortTls(
                listen.tls_certificate_file, listen.tls_key_file, listen.tls_client_ca_file
            )
        self._ports: list[Port] = []
        self._host = listen.host

    def add(self, access: LocalAccess, may_speak: Callable[[], bool] = lambda: True) -> Shard:
        """Answer in the name of a broker of this process, until remove().

        Args:
            may_speak: whether the lease of its shard lasts, and its store has not failed.
        """
        access.let_ask_kafka_members(self._owners.kafka_members)
        # Clients may have read them at a listener that is gone.
        for partition in access.partitions():
            self._transactions.saw(partition.log.highest_stamp)
        shard = Shard(access, may_speak)
        self.shards.add(shard)
        return shard

    def remove(self, shard: Shard) -> None:
        """Answer no longer in the name of a broker. Repeating it is harmless."""
        self.shards.remove(shard)
        self._groups.ended(shard)

    async def open(self, number: int, *, is_external: bool = False) -> str:
        """Open a port; return its address.

        Args:
            number: 0: the operating system chooses.
            is_external: whether it is for clients outside, that are told other addresses.
        Raises:
            OSError: the port is taken, or the address is not one of this machine.
        """
        port = Port(self._server, self._tls, is_external=is_external)
        await port.open(self._host, number)
        if not self._ports:
            self._admission.start()
            self._coordinators.start()
            self._brokers.start()
        self._ports.append(port)
        return join_address(self._host, port.number)

    async def close(self, grace_ms: int) -> None:
        """Let no client in; answer what was begun, within a time.

        Args:
            grace_ms: connections that are open after it are cut.
        """
        for port in self._ports:
            port.close()
        self._server.stopping.set()
        connections = list(self._server.connections)
        if connections:
            finishing = [asyncio.ensure_future(one.finish()) for one in connections]
            _, late = await asyncio.wait(finishing, timeout=grace_ms / 1000)
            for one in late:
                one.cancel()
        self._admission.close()
        for connection in list(self._server.connections):
            connection.abort()
        self._groups.close()
        await self._coordinators.close()
        await self._brokers.close()

    async def _handle(self, request: Request) -> Answer:
        return await self._handlers[request.api.key](request)
