"""Makes the real servers for the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.nodes import ServerNode
from tests.simulation.raw import BROKER as BROKER_SERVICE
from tests.simulation.raw import COORDINATOR as COORDINATOR_SERVICE

from magnetar.testing.lives import Incarnation
from magnetar_core.history.events import BROKER, COORDINATOR
from magnetar_storage.memory.engine import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.world import World

    from magnetar_broker.config import BrokerConfig
    from magnetar_coordinator.config import CoordinatorConfig


def broker_names(count: int) -> list[str]:
    """The nodes of all brokers; the place of each is its shard."""
    return ["broker", *(f"broker-{shard}" for shard in range(1, count))]


def coordinator_names(count: int) -> list[str]:
    """The nodes of all coordinators; the place of each is its TCID."""
    return ["coordinator", *(f"coordinator-{tcid}" for tcid in range(1, count))]


def broker_config(
    name: str, brokers: Sequence[str], coordinators: Sequence[str], settings: Any
) -> BrokerConfig:
    """Settings of one broker. Args: brokers: their names; empty: this one is alone."""
    from tests.configs import broker_config as config_of

    from magnetar_core.membership.address_book import MemberAddress

    return config_of(
        name=name,
        address=name,
        brokers=tuple(MemberAddress(name=broker, address=broker) for broker in brokers),
        coordinators=tuple(
            MemberAddress(name=one, address=one, tcid=tcid) for tcid, one in enumerate(coordinators)
        ),
        # Members are expelled by what happens to links, as it does to people's in minutes.
        group_session_timeout_ms_min=100,
        **settings,
    )


def coordinator_config(
    name: str, tcid: int, brokers: Sequence[str], settings: Any
) -> CoordinatorConfig:
    """Settings of one coordinator."""
    from tests.configs import coordinator_config as config_of

    # Less patient than a real one: virtual time is dear, as every repeat costs steps.
    choices = {
        "answer_deadline_ms": 1_000,
        "retry_delay_ms_min": 20,
        "retry_delay_ms_max": 500,
        "refused_retry_delay_ms": 500,
        "watermark_listed_age_ms_min": 2_000,
        "two_phase_commit_enabled": True,
        # So that it overflows.
        "producer_epoch_max": 5,
        "takeover_wait_ms": 1_000,
        "tcid": tcid,
        **settings,
    }
    return config_of(name=name, broker_addresses=tuple(brokers), **choices)


def make_broker(
    world: World,
    node: ServerNode,
    store: MemoryStore,
    incarnation: Incarnation,
    settings: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    from magnetar_broker.broker import Broker

    names = world.broker_names
    # Who is alone in its cluster file has no list, as before there were several.
    brokers = names if len(names) > 1 else ()
    coordinators = coordinator_names(world.script.coordinator_count)
    config = broker_config(node.name, brokers, coordinators, settings)
    random = world.environment.random(f"{node.name}/{node.life}")
    transport = world.network.transport(incarnation)
    history = world.protocol.history_of(BROKER, world.broker_names.index(node.name), node.life)
    broker = Broker(config, store, transport, node.clock, random, node.on_fatal, history=history)
    return broker, {BROKER_SERVICE: broker.server}


def make_coordinator(
    world: World,
    node: ServerNode,
    store: MemoryStore,
    incarnation: Incarnation,
    settings: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    from magnetar_coordinator.coordinator import Coordinator

    tcid = coordinator_names(world.script.coordinator_count).index(node.name)
    config = coordinator_config(node.name, tcid, world.broker_names, settings)
    random = world.environment.random(f"{node.name}/{node.life}")
    coordinator = Coordinator(
        config,
        store,
        world.network.transport(incarnation),
        node.clock,
        random,
        node.on_fatal,
        history=world.protocol.history_of(COORDINATOR, tcid, node.life),
    )
    return coordinator, {COORDINATOR_SERVICE: coordinator.server}


def _broker_families() -> tuple[str, ...]:
    from magnetar_broker.keys import FAMILIES

    return FAMILIES


def _coordinator_families() -> tuple[str, ...]:
    from magnetar_coordinator.metadata.records import FAMILIES

    return tuple(FAMILIES)


make_broker.families = _broker_families  # type: ignore[attr-defined]
make_coordinator.families = _coordinator_families  # type: ignore[attr-defined]
