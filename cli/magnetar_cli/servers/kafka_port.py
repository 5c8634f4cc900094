"""Ports for Kafka's clients: whether a broker opens them, and their life beside it."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from magnetar_broker.broker import Broker
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.options import resolve_shared
from magnetar_cli.servers.server_process import Component, World
from magnetar_cluster.cluster_transport import ClusterTransport
from magnetar_cluster.directory.view import View
from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig, ListenConfig, split_address
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.membership.address_book import AddressBook, MemberAddress, found
from magnetar_core.process.settings import Sources
from magnetar_core.server.commands import CommandServer, Gate
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import Nodes, alone
from magnetar_kafka.offset_owners import BrokerLinks

log = logging.getLogger("magnetar_cli")

_NOT_IN_LIST = (
    "the list of members does not say where Kafka's clients reach this broker: give each broker a"
    " kafka_address there"
)
# Pauses between attempts to reach another server.
RETRY_DELAY_MS_MIN = 50
RECONNECT_DELAY_MS_MAX = 1_000


def kafka_settings(options: dict[str, Any], sources: Sources) -> KafkaConfig:
    """Return the settings of the ports for Kafka's clients."""
    return resolve_shared(KafkaConfig, "broker", sources, kafka_port=options["kafka_port"]).settings


def kafka_port_of(
    options: dict[str, Any], sources: Sources, broker: BrokerConfig, listen: ListenConfig
) -> KafkaPort | None:
    """Return the ports that a broker of a list of members opens; None: it opens none.

    Raises:
        InvalidConfig: a port is asked for that the broker cannot have.
    """
    config = kafka_settings(options, sources)
    own = next((one for one in broker.brokers if one.name == broker.name), None)
    if own is not None and own.kafka_address and config.kafka_port is None:
        config = replace(config, kafka_port=split_address(own.kafka_address)[1])
    if_free: int | None = options["kafka_port_if_free"]
    is_asked_for = config.kafka_port is not None
    if not is_asked_for and if_free is None:
        return None
    refusal = ""
    if len(broker.brokers) > 1:
        if own is None or not own.kafka_address:
            refusal = _NOT_IN_LIST
        elif config.kafka_advertised_address:
            raise InvalidConfig(
                "kafka_advertised_address is set, and so is a list of several brokers: all of them"
                " have to know it, so say it there, as kafka_address"
            )
    if refusal and is_asked_for:
        raise InvalidConfig(f"kafka_port is set, but {refusal}, or leave it unset")
    if not is_asked_for:
        config = replace(config, kafka_port=if_free)
    port = KafkaPort(
        config, listen, _told_by(config, broker, own), is_optional=not is_asked_for, refusal=refusal
    )
    port.check_external()
    return port


def _told_by(
    config: KafkaConfig, broker: BrokerConfig, own: MemberAddress | None
) -> tuple[MemberAddress, ...]:
    """Return the brokers with the addresses that Kafka's clients are told; empty: none is told."""
    if own is not None and own.kafka_address:
        return broker.brokers
    if not config.kafka_advertised_address:
        return ()
    alone_here = MemberAddress(
        name=broker.name,
        address=broker.address,
        kafka_address=config.kafka_advertised_address,
        kafka_external_address=config.kafka_external_address,
    )
    return (alone_here,)


@dataclass(slots=True)
class KafkaPort:
    """Ports for Kafka's clients of a broker that keeps its shard.

    Attributes:
        told: the brokers of the cluster; empty: it is alone, and tells where it was reached.
        is_optional: whether the broker goes on without it if it is taken.
        refusal: why it is not opened; empty: it is.
        address: where it is open; empty: nowhere.
    """

    config: KafkaConfig
    listen: ListenConfig
    told: tuple[MemberAddress, ...]
    is_optional: bool
    refusal: str
    address: str = ""

    def check_external(self) -> None:
        """Check that the second port has an address to tell, and is not without use.

        Raises:
            InvalidConfig: it has none.
        """
        has_address = any(one.kafka_external_address for one in self.told)
        check_external(self.config, has_address=has_address)

    def ready(self) -> dict[str, str]:
        """Return the fields of Ready about it."""
        return {"kafka": self.address, "no_kafka": "" if self.address else self.refusal}

    def beside(self, broker: Broker, world: World) -> Component:
        """Return a broker that has the ports while it runs."""
        return broker if self.refusal else _BrokerWithKafka(self, broker, world)

    def nodes(self, shard: int) -> Nodes:
        """Return the brokers as clients are told them.

        Args:
            shard: of this broker.
        """
        if not self.told:
            return alone()
        own = self.told[shard if len(self.told) > 1 else 0].kafka_address
        return Nodes(lambda: self.told, own, have_fixed_shards=True)

    async def open(self, listener: Listener) -> None:
        """Open the ports.

        Raises:
            InvalidConfig: one cannot be opened, and was asked for.
        """
        try:
            self.address = await open_ports(listener, self.config)
        except OSError as error:
            if not self.is_optional:
                raise _not_opened(error) from error
            taken = error.errno == errno.EADDRINUSE
            port = self.config.kafka_port
            self.refusal = f"port {port} is taken" if taken else str(error)
            log.warning("there is no port for Kafka's clients: %s", self.refusal)


class _BrokerWithKafka:
    """A broker, and the listener that answers in its name."""

    def __init__(self, port: KafkaPort, broker: Broker, world: World) -> None:
        self._port = port
        self._broker = broker
        self._listener = Listener(
            port.config,
            port.listen,
            world.clock,
            world.random,
            world.registry,
            nodes=port.nodes(broker.environment.config.shard),
            coordinators=_coordinators_of(broker.environment.config, world),
            brokers=_brokers_of(broker.environment.config, world),
            gate=world.gate,
        )

    @property
    def server(self) -> CommandServer:
        """The broker's gRPC services."""
        return self._broker.server

    async def start(self) -> None:
        """Recover, and begin to serve."""
        await self._broker.start()
        self._listener.add(self._broker.local_access)
        await self._port.open(self._listener)

    async def close(self) -> None:
        """Answer Kafka's clients, and close the broker."""
        await self._listener.close(self._port.listen.stop_grace_ms)
        await self._broker.close()

    def abandon(self) -> None:
        """Stop at once, and write nothing."""
        self._broker.abandon()


async def open_ports(listener: Listener, config: KafkaConfig) -> str:
    """Open the ports that settings ask for; return the address of the first.

    Raises:
        OSError: a port is taken, or the address is not one of this machine.
    """
    assert config.kafka_port is not None
    address = await listener.open(config.kafka_port)
    if config.kafka_external_port is not None:
        await listener.open(config.kafka_external_port, is_external=True)
    return address


def check_external(config: KafkaConfig, *, has_address: bool) -> None:
    """Check that a second port and an address for clients outside come together.

    Raises:
        InvalidConfig: one of them is missing.
    """
    if has_address != (config.kafka_external_port is not None):
        raise InvalidConfig(
            "kafka_external_port and kafka_external_address need each other: set both"
        )


def member_ports_of(config: KafkaConfig, listen: ListenConfig) -> KafkaConfig | None:
    """Return the settings of a member's ports in a cluster with etcd; None: it has none.

    Raises:
        InvalidConfig: others could not reach it.
    """
    if config.kafka_port is None:
        return None
    check_external(config, has_address=bool(config.kafka_external_address))
    if not config.kafka_advertised_address and listen.host in ("0.0.0.0", "::", "[::]"):
        raise InvalidConfig(
            f"a listener on {listen.host} has no address that others could reach: set"
            " kafka_advertised_address"
        )
    return config


class MemberPorts:
    """Ports for Kafka's clients of a server whose shards come and go.

    Attributes:
        address: what clients and other servers are told.

    Args:
        brokers: the shards of the cluster, by the names that the book knows.
        book: knows where shards are now.
        transport: carries links to shards by their names; it is closed with the ports.
        links: settings of these links.
    """

    def __init__(
        self,
        config: KafkaConfig,
        listen: ListenConfig,
        brokers: tuple[MemberAddress, ...],
        book: AddressBook,
        registry: CollectorRegistry,
        gate: Gate | None,
        *,
        transport: ClusterTransport,
        links: LinkSettings,
    ) -> None:
        self._config = config
        self._listen = listen
        self._transport = transport
        self.address = config.kafka_advertised_address
        self._nodes = Nodes(lambda: found(book, brokers), self.address, have_fixed_shards=False)
        self._listener = Listener(
            config,
            listen,
            SystemClock(),
            Random(),
            registry,
            nodes=self._nodes,
            # Theirs move: links to them are not followed.
            coordinators=Coordinators(),
            brokers=BrokerLinks.of(brokers, transport, links, Random()),
            gate=gate,
        )

    @property
    def external_address(self) -> str:
        """The address that clients outside are told; empty: there is no port for them."""
        return self._config.kafka_external_address

    async def open(self) -> None:
        """Open the ports. Until shards are added, there are no topics behind them.

        Raises:
            InvalidConfig: one cannot be opened.
        """
        try:
            listens_at = await open_ports(self._listener, self._config)
        except OSError as error:
            raise _not_opened(error) from error
        self.address = self._nodes.own = self.address or listens_at

    def owners_changed(self, view: View) -> None:
        """Take a later view, and end links to former owners."""
        self._transport.owners_changed(view)

    def add(self, shard: Component, may_speak: Callable[[], bool]) -> Callable[[], None]:
        """Answer in the name of a shard until the returned function is called."""
        assert isinstance(shard, Broker)
        added = self._listener.add(shard.local_access, may_speak)
        return partial(self._listener.remove, added)

    async def close(self) -> None:
        """Answer what was begun, and close."""
        await self._listener.close(self._listen.stop_grace_ms)
        await self._transport.close()


def _not_opened(error: OSError) -> InvalidConfig:
    return InvalidConfig(
        f"a port for Kafka's clients cannot be opened: {error}; choose another kafka_port"
    )


def _coordinators_of(config: BrokerConfig, world: World) -> Coordinators:
    settings = link_settings_of(config)
    return Coordinators.of(config.coordinators, world.transport, settings, world.random)


def _brokers_of(config: BrokerConfig, world: World) -> BrokerLinks:
    settings = link_settings_of(config)
    return BrokerLinks.of(config.brokers, world.transport, settings, world.random, own=config.shard)


def link_settings_of(config: BrokerConfig) -> LinkSettings:
    """Return the settings of the listener's links to other servers."""
    return LinkSettings(
        client_name=f"{config.name} for clients of Kafka",
        cluster_hash=config.cluster_hash,
        answer_deadline_ms=config.constants.broker_answer_deadline_ms,
        retry_delay_ms_min=RETRY_DELAY_MS_MIN,
        reconnect_delay_ms_max=RECONNECT_DELAY_MS_MAX,
    )
