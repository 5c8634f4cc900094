"""Makes the real servers for the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.nodes import ServerNode
from tests.simulation.raw import BROKER, COORDINATOR
from tests.virtual_loop import Incarnation

from magnetar_storage.memory import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.world import World


def broker_names(count: int) -> list[str]:
    """The nodes of all brokers; the place of each is its shard."""
    return ["broker", *(f"broker-{shard}" for shard in range(1, count))]


def coordinator_names(count: int) -> list[str]:
    """The nodes of all coordinators; the place of each is its TCID."""
    return ["coordinator", *(f"coordinator-{tcid}" for tcid in range(1, count))]


def make_broker(
    world: World,
    node: ServerNode,
    store: MemoryStore,
    incarnation: Incarnation,
    settings: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    from magnetar_broker.broker import Broker
    from magnetar_broker.config import BrokerConfig
    from magnetar_core.address_book import MemberAddress

    config = BrokerConfig(
        name=node.name,
        address=node.name,
        # Who is alone in its cluster file has no list, as before there were several.
        brokers=tuple(MemberAddress(name=name, address=name) for name in world.broker_names)
        if len(world.broker_names) > 1
        else (),
        coordinators=tuple(
            MemberAddress(name=name, address=name, tcid=tcid)
            for tcid, name in enumerate(coordinator_names(world.plan.coordinator_count))
        ),
        # Members are expelled by what happens to links, as it does to people's in minutes.
        group_session_timeout_ms_min=100,
        **settings,
    )
    random = world.environment.random(f"{node.name}/{node.life}")
    transport = world.network.transport(incarnation)
    broker = Broker(config, store, transport, node.clock, random, node.on_fatal)
    return broker, {BROKER: broker.server}


def make_coordinator(
    world: World,
    node: ServerNode,
    store: MemoryStore,
    incarnation: Incarnation,
    settings: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    from magnetar_coordinator.config import CoordinatorConfig
    from magnetar_coordinator.coordinator import Coordinator

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
        "tcid": coordinator_names(world.plan.coordinator_count).index(node.name),
        **settings,
    }
    config = CoordinatorConfig(
        name=node.name, broker_addresses=tuple(world.broker_names), **choices
    )
    random = world.environment.random(f"{node.name}/{node.life}")
    coordinator = Coordinator(
        config, store, world.network.transport(incarnation), node.clock, random, node.on_fatal
    )
    return coordinator, {COORDINATOR: coordinator.server}


def _broker_families() -> tuple[str, ...]:
    from magnetar_broker.keys import FAMILIES

    return FAMILIES


def _coordinator_families() -> tuple[str, ...]:
    from magnetar_coordinator.records import FAMILIES

    return tuple(FAMILIES)


make_broker.families = _broker_families  # type: ignore[attr-defined]
make_coordinator.families = _coordinator_families  # type: ignore[attr-defined]
