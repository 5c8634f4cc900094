"""Port for Kafka's clients: whether a broker opens one, and its life beside the broker."""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, replace
from typing import Any

from magnetar_broker.broker import Broker
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.options import resolve_shared
from magnetar_cli.servers.server_process import Component, World
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.link.link_settings import LinkSettings
from magnetar_core.process.settings import Sources
from magnetar_core.server.commands import CommandServer
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.coordinators import Coordinators
from magnetar_kafka.listener import Listener

log = logging.getLogger("magnetar_cli")

# Pauses between attempts to reach a coordinator.
RETRY_DELAY_MS_MIN = 50
RECONNECT_DELAY_MS_MAX = 1_000


def refuse_kafka_port(options: dict[str, Any], sources: Sources) -> None:
    """Check that a server whose shards come and go has no port for Kafka's clients.

    Raises:
        InvalidConfig: it is to have one.
    """
    config = resolve_shared(KafkaConfig, "broker", sources, kafka_port=options["kafka_port"])
    if config.settings.kafka_port is not None:
        raise InvalidConfig(
            "kafka_port is set, but clients of Kafka find no shards that move: run the broker"
            " without --etcd, or leave kafka_port unset"
        )


def kafka_port_of(
    options: dict[str, Any],
    sources: Sources,
    broker: BrokerConfig,
    listen: ListenConfig,
    access: AccessConfig,
) -> KafkaPort | None:
    """Return the port that a broker opens; None: it opens none.

    Raises:
        InvalidConfig: a port is asked for that the broker cannot have.
    """
    config = resolve_shared(
        KafkaConfig, "broker", sources, kafka_port=options["kafka_port"]
    ).settings
    if_free: int | None = options["kafka_port_if_free"]
    is_asked_for = config.kafka_port is not None
    if not is_asked_for and if_free is None:
        return None
    refusal = ""
    if access.is_on or access.audit_file or listen.asks_who_clients_are:
        refusal = "Kafka's clients cannot show who they are yet, and this server asks for that"
    elif len(broker.brokers) > 1:
        refusal = "Kafka's clients do not find the partitions of other brokers yet"
    if refusal and is_asked_for:
        raise InvalidConfig(f"kafka_port is set, but {refusal}: leave it unset")
    if not is_asked_for:
        config = replace(config, kafka_port=if_free)
    return KafkaPort(config, listen, is_optional=not is_asked_for, refusal=refusal)


@dataclass(slots=True)
class KafkaPort:
    """Port for Kafka's clients of a broker.

    Attributes:
        is_optional: whether the broker goes on without it if it is taken.
        refusal: why it is not opened; empty: it is.
        address: where it is open; empty: nowhere.
    """

    config: KafkaConfig
    listen: ListenConfig
    is_optional: bool
    refusal: str
    address: str = ""

    def told(self) -> dict[str, str]:
        """Return the fields of Ready about it."""
        return {"kafka": self.address, "no_kafka": "" if self.address else self.refusal}

    def beside(self, broker: Broker, world: World) -> Component:
        """Return a broker that has the port while it runs."""
        return broker if self.refusal else _BrokerWithKafka(self, broker, world)

    async def open(self, listener: Listener) -> None:
        """Open the port.

        Raises:
            InvalidConfig: it cannot be opened, and was asked for.
        """
        port = self.config.kafka_port
        assert port is not None
        try:
            await listener.open(self.listen.host, port)
        except OSError as error:
            if not self.is_optional:
                raise InvalidConfig(
                    f"the port for Kafka's clients cannot be opened: {error}; choose another"
                    " kafka_port"
                ) from error
            taken = error.errno == errno.EADDRINUSE
            self.refusal = f"port {port} is taken" if taken else str(error)
            log.warning("there is no port for Kafka's clients: %s", self.refusal)
        else:
            self.address = listener.address


class _BrokerWithKafka:
    """A broker, and the listener that answers in its name."""

    def __init__(self, port: KafkaPort, broker: Broker, world: World) -> None:
        self._port = port
        self._broker = broker
        self._listener = Listener(
            port.config,
            world.random,
            world.registry,
            node_id=broker.environment.config.shard + 1,
            coordinators=_coordinators_of(broker.environment.config, world),
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


def _coordinators_of(config: BrokerConfig, world: World) -> Coordinators:
    settings = LinkSettings(
        client_name=f"{config.name} for clients of Kafka",
        cluster_hash=config.cluster_hash,
        answer_deadline_ms=config.constants.broker_answer_deadline_ms,
        retry_delay_ms_min=RETRY_DELAY_MS_MIN,
        reconnect_delay_ms_max=RECONNECT_DELAY_MS_MAX,
    )
    return Coordinators(config.coordinators, world.transport, settings, world.random)
