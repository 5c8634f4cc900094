"""`magnetar broker`: runs a broker in this process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from magnetar_cli.servers.options import (
    SECTIONS,
    listen_config,
    load_membership,
    member_options,
    server_options,
    shared_settings,
    store_config,
)

BROKER_PORT = 6650


@click.command()
@click.option("--name", default="broker-0", show_default=True, help="The name in the cluster file.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data/broker"),
    show_default=True,
    help="The data directory of RocksDB; not used with --store.",
)
@member_options
@server_options
def broker(**options: Any) -> None:
    """Run a broker.

    Settings also come from variables MAGNETAR_... and from a file: see `magnetar config show`.
    """
    from magnetar_broker.broker import Broker
    from magnetar_broker.config import BrokerConfig
    from magnetar_broker.keys import FAMILIES, PAYLOAD_FAMILIES
    from magnetar_cli.servers.open_store import Rows
    from magnetar_cli.servers.server_process import Component, ServerProcess, World, run
    from magnetar_core.address_book import MemberAddress
    from magnetar_core.config import InvalidConfig
    from magnetar_core.settings import Sources, resolve

    membership = load_membership(options)
    sources = Sources.load(os.environ, SECTIONS, options["config_file"])
    name = options["name"]
    member = membership.broker(name) if membership else None
    listen = listen_config(
        options, "broker", sources, member.address if member else None, BROKER_PORT
    )

    given: dict[str, Any] = {"name": name}
    if member is not None and membership is not None:
        given["address"] = member.address
        given["external_address"] = member.external_address or None
        given["brokers"] = tuple(
            MemberAddress(name=one.name, address=one.address, external_address=one.external_address)
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
    resolved = resolve(BrokerConfig, "broker", sources, beside=shared_settings(), **given)
    if resolved.settings.batch_bytes_max > listen.frame_bytes_max // 2:
        raise InvalidConfig(
            f"batch_bytes_max is {resolved.settings.batch_bytes_max}, but must be at most half of"
            f" frame_bytes_max, {listen.frame_bytes_max}: raise that, or lower this"
        )

    def build(world: World) -> Component:
        config = resolved.settings
        if resolved.origins["address"] == "default":
            config = replace(config, address=world.address)
        component: Component = Broker(
            config,
            world.store,
            world.transport,
            world.clock,
            world.random,
            world.on_fatal,
            world.registry,
        )
        return component

    run(
        ServerProcess(
            service="Broker",
            rows=Rows(
                kind="broker",
                name=name,
                data_dir=options["data_dir"],
                families=FAMILIES,
                payload_families=PAYLOAD_FAMILIES,
                config=store_config(options, "broker", sources),
            ),
            listen=listen,
            build=build,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )
