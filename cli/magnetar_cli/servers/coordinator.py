"""`magnetar coordinator`: runs a transaction coordinator in this process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.servers.options import (
    SECTIONS,
    access_config,
    all_settings,
    history_config,
    links_of,
    listen_config,
    load_membership,
    member_options,
    server_options,
    store_config,
    traces_config,
)
from magnetar_cli.servers.owner_options import (
    DEFAULT_CLUSTER_ID,
    Owning,
    owner_options,
    owning,
)

if TYPE_CHECKING:
    from magnetar_cli.servers.member_process import Place
    from magnetar_cli.servers.open_store import Rows
    from magnetar_cli.servers.server_process import Component, World
    from magnetar_cli.servers.shard_servers import ShardKind
    from magnetar_coordinator.config import CoordinatorConfig
    from magnetar_core.membership.membership import Membership
    from magnetar_core.process.settings import Sources
    from magnetar_storage.store_config import StoreConfig

COORDINATOR_PORT = 6651
SERVICE = "TransactionCoordinator"


@click.command()
@click.option(
    "--name",
    help="The name in the cluster file, or with --etcd any that no other coordinator has."
    "  [default: coordinator-0; with --etcd: the machine's name and the port]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data/coordinator-0"),
    show_default=True,
    help="The data directory of RocksDB; not used with --store.",
)
@owner_options
@member_options
@server_options
def coordinator(**options: Any) -> None:
    """Run a transaction coordinator.

    It needs a broker, from which it takes the incarnation of a new store: the first of the cluster
    file, or else the one named by `magnetar --broker`. With --etcd it takes shards of the cluster
    while it runs, and others take them when it ends; limits of memory are for each shard then.
    """
    from magnetar_core.process.settings import Sources

    membership = load_membership(options)
    sources = Sources.load(os.environ, SECTIONS, options["config_file"])
    owner = owning(options, "coordinator", sources, membership, COORDINATOR_PORT)
    if owner is not None:
        _run_member(options, sources, owner)
    else:
        _run_one(options, membership, sources)


def _run_one(options: dict[str, Any], membership: Membership | None, sources: Sources) -> None:
    """Run a coordinator that keeps its shard."""
    from magnetar_cli.servers.server_process import ServerProcess, run
    from magnetar_coordinator.config import CoordinatorConfig
    from magnetar_core.process.settings import resolve

    broker_option = click.get_current_context().find_root().obj
    if membership is None and "," in broker_option:
        raise click.UsageError(
            f"--broker names several brokers, {broker_option}, and without a list of members a"
            " coordinator has one; name all members in a file, and give it with --cluster-file"
        )
    name = options["name"] or "coordinator-0"
    member = membership.coordinator(name) if membership else None
    listen = listen_config(
        options, "coordinator", sources, member.address if member else None, COORDINATOR_PORT
    )

    given: dict[str, Any] = {
        "name": name,
        "tcid": member.tcid if member else 0,
        "broker_addresses": (broker_option,),
    }
    if membership is not None:
        given["broker_addresses"] = tuple(broker.address for broker in membership.brokers)
        given["broker_names"] = tuple(broker.name for broker in membership.brokers)
        given.update(membership.settings())
    config = resolve(
        CoordinatorConfig, "coordinator", sources, beside=all_settings("coordinator"), **given
    ).settings

    run(
        ServerProcess(
            service=SERVICE,
            rows=replace(
                _rows(options, store_config(options, "coordinator", sources), name),
                cluster_id=config.cluster_id,
                others=config.broker_names[:1],
            ),
            listen=listen,
            access=access_config(options, "coordinator", sources),
            links=links_of("coordinator", sources, listen),
            traces=traces_config(options, "coordinator", sources),
            history=history_config(options, "coordinator", sources),
            build=lambda world: _build(config, world),
            number=config.tcid,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )


def _run_member(options: dict[str, Any], sources: Sources, owner: Owning) -> None:
    """Run a server that takes the shards of coordinators which etcd has for it."""
    from magnetar_broker.config import BrokerConfig
    from magnetar_cli.servers.member_process import MemberProcess, run
    from magnetar_cli.servers.shard_servers import ShardKind
    from magnetar_coordinator.config import CoordinatorConfig
    from magnetar_core.process.settings import resolve

    resolved = resolve(
        CoordinatorConfig,
        "coordinator",
        sources,
        beside=all_settings("coordinator"),
        cluster_id=options["cluster_id"],
    ).settings

    def kind_of(place: Place) -> ShardKind:
        names = tuple(broker.name for broker in place.broker.brokers)
        config = replace(resolved, broker_addresses=names, broker_names=names, **place.identity)
        return ShardKind(
            rows=lambda shard: _rows(options, owner.store, str(shard)),
            build=lambda shard, world: _build(
                replace(config, name=str(shard), tcid=shard.number), world
            ),
        )

    run(
        MemberProcess(
            kind="coordinator",
            service=SERVICE,
            name=options["name"] or "",
            cluster_id=resolved.cluster_id or DEFAULT_CLUSTER_ID,
            owning=owner,
            # It answers as brokers do where everything is.
            broker=BrokerConfig(),
            kind_of=kind_of,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )


def _build(config: CoordinatorConfig, world: World) -> Component:
    from magnetar_coordinator.coordinator import Coordinator

    component: Component = Coordinator(
        config,
        world.store,
        world.transport,
        world.clock,
        world.random,
        world.on_fatal,
        world.registry,
        world.traces,
        history=world.history,
        membership=world.membership,
    )
    return component


def _rows(options: dict[str, Any], config: StoreConfig, name: str) -> Rows:
    from magnetar_cli.servers.open_store import Rows
    from magnetar_coordinator.metadata.records import FAMILIES

    return Rows(
        kind="coordinator",
        name=name,
        data_dir=options["data_dir"],
        families=FAMILIES,
        # It reads old outcomes only, and rarely: a larger one only takes long to fill.
        block_cache_bytes=4 << 20,
        memtables_bytes=96 << 20,
        config=config,
    )
