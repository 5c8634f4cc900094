"""`magnetar broker`: runs a broker in this process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.servers.options import (
    PORT,
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
    from magnetar_broker.broker import Broker
    from magnetar_broker.budgets.memory_budget import MemoryBudget
    from magnetar_broker.config import BrokerConfig
    from magnetar_cli.servers.member_process import Place
    from magnetar_cli.servers.open_store import Rows
    from magnetar_cli.servers.server_process import Component, World
    from magnetar_cli.servers.shard_servers import ShardKind
    from magnetar_core.config import ListenConfig
    from magnetar_core.membership.address_book import AddressBook
    from magnetar_core.membership.membership import Membership
    from magnetar_core.process.settings import Sources
    from magnetar_storage.store_config import StoreConfig

BROKER_PORT = 6650
SERVICE = "Broker"


@click.command()
@click.option(
    "--name",
    help="The name in the cluster file, or with --etcd any that no other broker has."
    "  [default: broker-0; with --etcd: the machine's name and the port]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data/broker"),
    show_default=True,
    help="The data directory of RocksDB; not used with --store.",
)
@click.option(
    "--durability",
    type=click.Choice(["synced", "os"]),
    help="Confirm plain messages when they are on the disk, or when the operating system has them."
    "  [default: synced]",
)
@click.option(
    "--kafka-port",
    type=PORT,
    help="Answer Kafka's clients on this port; 0: the system chooses.  [default: none]",
)
@click.option("--kafka-port-if-free", type=PORT, hidden=True)
@owner_options
@member_options
@server_options
def broker(**options: Any) -> None:
    """Run a broker.

    With --etcd it takes shards of the cluster while it runs, and others take them when it ends.
    All of its shards share memory_bytes.

    Settings also come from variables MAGNETAR_... and from a file: see `magnetar config show`.
    """
    from magnetar_core.process.settings import Sources

    membership = load_membership(options)
    sources = Sources.load(os.environ, SECTIONS, options["config_file"])
    owner = owning(options, "broker", sources, membership, BROKER_PORT)
    if owner is not None:
        _run_member(options, sources, owner)
    else:
        _run_one(options, membership, sources)


def _run_one(options: dict[str, Any], membership: Membership | None, sources: Sources) -> None:
    """Run a broker that keeps its shard."""
    from magnetar_broker.config import BrokerConfig
    from magnetar_cli.servers.kafka_port import kafka_port_of
    from magnetar_cli.servers.server_process import ServerProcess, run
    from magnetar_core.membership.address_book import MemberAddress
    from magnetar_core.process.settings import resolve

    name = options["name"] or "broker-0"
    member = membership.broker(name) if membership else None
    listen = listen_config(
        options, "broker", sources, member.address if member else None, BROKER_PORT
    )

    given: dict[str, Any] = {"name": name}
    if member is not None and membership is not None:
        given["address"] = member.address
        given["external_address"] = member.external_address or None
        given["brokers"] = tuple(
            MemberAddress(
                name=one.name,
                address=one.address,
                external_address=one.external_address,
                kafka_address=one.kafka_address,
                kafka_external_address=one.kafka_external_address,
            )
            for one in membership.brokers
        )
        given["coordinators"] = tuple(
            MemberAddress(
                name=one.name,
                address=one.address,
                external_address=one.external_address,
                tcid=one.tcid,
            )
            for one in membership.coordinators
        )
        given.update(membership.settings())
    given["durability"] = options["durability"]
    resolved = resolve(BrokerConfig, "broker", sources, beside=all_settings("broker"), **given)
    _check_frames(resolved.settings, listen)
    store = store_config(options, "broker", sources)
    _check_durability(resolved.settings, store)

    access = access_config(options, "broker", sources)
    kafka = kafka_port_of(options, sources, resolved.settings, listen)

    def build(world: World) -> Component:
        config = resolved.settings
        if resolved.origins["address"] == "default":
            config = replace(config, address=world.address)
        built = _build_broker(config, world, _memory_budget(config))
        return built if kafka is None else kafka.beside(built, world)

    run(
        ServerProcess(
            service=SERVICE,
            rows=_rows(options, resolved.settings, store, name),
            listen=listen,
            access=access,
            links=links_of("broker", sources, listen),
            traces=traces_config(options, "broker", sources),
            history=history_config(options, "broker", sources),
            build=build,
            kafka=kafka.ready if kafka is not None else dict,
            number=resolved.settings.shard,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )


def _run_member(options: dict[str, Any], sources: Sources, owner: Owning) -> None:
    """Run a server that takes the shards of brokers which etcd has for it."""
    from magnetar_broker.config import BrokerConfig
    from magnetar_cli.servers.kafka_port import kafka_settings, member_ports_of
    from magnetar_cli.servers.member_process import MemberProcess, run
    from magnetar_cli.servers.shard_servers import ShardKind
    from magnetar_core.process.settings import resolve

    kafka = member_ports_of(kafka_settings(options, sources), owner.listen)
    config = resolve(
        BrokerConfig,
        "broker",
        sources,
        beside=all_settings("broker"),
        cluster_id=options["cluster_id"],
        durability=options["durability"],
    ).settings
    _check_frames(config, owner.listen)
    _check_durability(config, owner.store)
    memory = _memory_budget(config)

    def kind_of(place: Place) -> ShardKind:
        return ShardKind(
            rows=lambda shard: _rows(options, config, owner.store, str(shard)),
            build=lambda shard, world: _build_broker(
                replace(place.broker, name=str(shard)), world, memory, place.book
            ),
        )

    run(
        MemberProcess(
            kind="broker",
            service=SERVICE,
            name=options["name"] or "",
            cluster_id=config.cluster_id or DEFAULT_CLUSTER_ID,
            owning=owner,
            broker=config,
            kind_of=kind_of,
            kafka=kafka,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )


def _memory_budget(config: BrokerConfig) -> MemoryBudget:
    """Return the memory of this process, for all of its brokers."""
    from magnetar_broker.budgets.memory_budget import MemoryBudget
    from magnetar_core.process.process_memory import ProcessMemory

    process = ProcessMemory()
    return MemoryBudget(
        memory_bytes=config.memory_bytes,
        tails_bytes_max=config.tails_bytes_max,
        resident_bytes=process.resident_bytes,
        give_back=process.give_back,
    )


def _build_broker(
    config: BrokerConfig, world: World, memory: MemoryBudget, book: AddressBook | None = None
) -> Broker:
    from magnetar_broker.broker import Broker

    return Broker(
        config,
        world.store,
        world.transport,
        world.clock,
        world.random,
        world.on_fatal,
        world.registry,
        book,
        memory,
        history=world.history,
        membership=world.membership,
    )


def _rows(options: dict[str, Any], settings: BrokerConfig, config: StoreConfig, name: str) -> Rows:
    from magnetar_broker.budgets.memory_budget import store_shares
    from magnetar_broker.keys import FAMILIES, PAYLOAD_FAMILIES
    from magnetar_cli.servers.open_store import Rows

    shares = store_shares(settings.memory_bytes)
    if config.store_memory_cache_bytes is None:
        config = replace(config, store_memory_cache_bytes=shares.object_cache_bytes)
    return Rows(
        kind="broker",
        name=name,
        data_dir=options["data_dir"],
        families=FAMILIES,
        payload_families=PAYLOAD_FAMILIES,
        block_cache_bytes=shares.block_cache_bytes,
        memtables_bytes=shares.memtables_bytes,
        late_syncs=settings.late_syncs,
        cluster_id=settings.cluster_id,
        others=tuple(one.name for one in settings.coordinators[:1]),
        config=config,
    )


def _check_frames(config: BrokerConfig, listen: ListenConfig) -> None:
    from magnetar_core.config import InvalidConfig

    if config.batch_bytes_max > listen.frame_bytes_max // 2:
        raise InvalidConfig(
            f"batch_bytes_max is {config.batch_bytes_max}, but must be at most half of"
            f" frame_bytes_max, {listen.frame_bytes_max}: raise that, or lower this"
        )


def _check_durability(config: BrokerConfig, store: StoreConfig) -> None:
    from magnetar_core.config import InvalidConfig

    if config.late_syncs and store.store:
        raise InvalidConfig(
            "durability is os, but the rows are in an object store, which has a write when it has"
            " answered: leave durability at synced, or keep the rows in a data directory"
        )
