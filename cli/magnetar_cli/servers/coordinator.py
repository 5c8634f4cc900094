"""`magnetar coordinator`: runs a transaction coordinator in this process."""

from __future__ import annotations

import os
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

COORDINATOR_PORT = 6651


@click.command()
@click.option(
    "--name", default="coordinator-0", show_default=True, help="The name in the cluster file."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data/coordinator-0"),
    show_default=True,
    help="The data directory of RocksDB; not used with --store.",
)
@member_options
@server_options
def coordinator(**options: Any) -> None:
    """Run a transaction coordinator.

    It needs a broker, from which it takes the incarnation of a new store: the first of the cluster
    file, or else the one named by `magnetar --broker`.
    """
    from magnetar_cli.servers.open_store import Rows
    from magnetar_cli.servers.server_process import Component, ServerProcess, World, run
    from magnetar_coordinator.config import CoordinatorConfig
    from magnetar_coordinator.coordinator import Coordinator
    from magnetar_coordinator.records import FAMILIES
    from magnetar_core.settings import Sources, resolve

    broker_option = click.get_current_context().find_root().obj
    membership = load_membership(options)
    if membership is None and "," in broker_option:
        raise click.UsageError(
            f"--broker names several brokers, {broker_option}, and without a list of members a"
            " coordinator has one; name all members in a file, and give it with --cluster-file"
        )
    name = options["name"]
    member = membership.coordinator(name) if membership else None
    sources = Sources.load(os.environ, SECTIONS, options["config_file"])
    listen = listen_config(
        options, "coordinator", sources, member.address if member else None, COORDINATOR_PORT
    )

    given: dict[str, Any] = {
        "name": name,
        "tcid": member.tcid if member else 0,
        "broker_addresses": (broker_option,),
    }
    if membership is not None:
        given["broker_addresses"] = tuple(one.address for one in membership.brokers)
        given["broker_names"] = tuple(one.name for one in membership.brokers)
        given.update(membership.settings())
    config = resolve(
        CoordinatorConfig, "coordinator", sources, beside=shared_settings(), **given
    ).settings

    def build(world: World) -> Component:
        component: Component = Coordinator(
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
            service="TransactionCoordinator",
            rows=Rows(
                kind="coordinator",
                name=name,
                data_dir=options["data_dir"],
                families=FAMILIES,
                # It reads old outcomes only, and rarely: a larger one only takes long to fill.
                block_cache_bytes=4 << 20,
                config=store_config(options, "coordinator", sources),
            ),
            listen=listen,
            build=build,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )
