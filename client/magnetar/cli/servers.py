"""`magnetar broker` and `magnetar coordinator`: one server each, in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from magnetar_core.config import ListenConfig
    from magnetar_core.membership import Membership
    from magnetar_core.settings import Sources

Function = TypeVar("Function", bound=Callable[..., Any])

# Of the configuration file.
SECTIONS = ("broker", "coordinator")
BROKER_PORT = 6650
COORDINATOR_PORT = 6651
LOG_LEVELS = click.Choice(["debug", "info", "warning", "error"])
LOG_FORMATS = click.Choice(["auto", "text", "json"])
PORT = click.IntRange(0, 0xFFFF)


def server_options(function: Function) -> Function:
    """The options that every server process has."""
    for option in reversed(
        (
            click.option("--host", metavar="HOST", help="Listen here.  [default: 127.0.0.1]"),
            click.option(
                "--allow-remote",
                is_flag=True,
                default=None,
                help="Allow a host that other machines reach: whoever reaches it may use it.",
            ),
            click.option(
                "--log-level", type=LOG_LEVELS, envvar="MAGNETAR_LOG_LEVEL", default="info"
            ),
            click.option(
                "--log-format", type=LOG_FORMATS, envvar="MAGNETAR_LOG_FORMAT", default="auto"
            ),
            click.option(
                "--config",
                "config_file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                envvar="MAGNETAR_CONFIG_FILE",
                help="Settings, as TOML; see `magnetar config show`.",
            ),
            click.option(
                "--ready-file",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Write process ids and addresses here, as JSON, once ready.",
            ),
        )
    ):
        function = option(function)
    return function


def member_options(function: Function) -> Function:
    """The options of a single server."""
    for option in reversed(
        (
            click.option(
                "--port", type=PORT, envvar="MAGNETAR_PORT", help="0: the system chooses one."
            ),
            click.option("--metrics-port", type=PORT, envvar="MAGNETAR_METRICS_PORT"),
            click.option(
                "--cluster-file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                envvar="MAGNETAR_CLUSTER_FILE",
                help="The members of the cluster, as TOML.",
            ),
            click.option("--supervised", is_flag=True, hidden=True),
        )
    ):
        function = option(function)
    return function


@click.command()
@click.option("--name", default="broker-0", show_default=True, help="As in the cluster file.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data/broker"),
    show_default=True,
)
@member_options
@server_options
def broker(**options: Any) -> None:
    """Run one broker.

    Settings come from MAGNETAR_... variables and from a file too: `magnetar config show`.
    """
    from magnetar.cli.hosting import Component, Hosting, World, run
    from magnetar_broker.broker import Broker
    from magnetar_broker.config import BrokerConfig, MemberAddress
    from magnetar_broker.keys import FAMILIES, PAYLOAD_FAMILIES
    from magnetar_core.config import InvalidConfig, ListenConfig
    from magnetar_core.settings import Sources, resolve

    membership = _membership(options)
    sources = Sources.load(os.environ, SECTIONS, options["config_file"])
    name = options["name"]
    member = membership.serving_broker(name) if membership else None
    listen = listen_config(
        options, "broker", sources, member.address if member else None, BROKER_PORT
    )

    given: dict[str, Any] = {"name": name}
    if member is not None and membership is not None:
        given["address"] = member.address
        given["external_address"] = member.external_address or None
        given["coordinators"] = tuple(
            MemberAddress(
                name=one.name,
                address=one.address,
                external_address=one.external_address,
                tcid=one.tcid,
            )
            for one in membership.coordinators
        )
        given["membership_version"] = membership.version
        given["cluster_hash"] = membership.hash
    resolved = resolve(BrokerConfig, "broker", sources, beside=[ListenConfig], **given)
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
            config, world.store, world.clock, world.random, world.on_fatal, world.registry
        )
        return component

    run(
        Hosting(
            kind="broker",
            name=name,
            service="Broker",
            data_dir=options["data_dir"],
            families=FAMILIES,
            payload_families=PAYLOAD_FAMILIES,
            listen=listen,
            build=build,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )


def _membership(options: dict[str, Any]) -> Membership | None:
    from magnetar_core import membership
    from magnetar_core.observability import set_up_logging

    set_up_logging(level=options["log_level"], log_format=options["log_format"])
    return membership.load(os.environ, options["cluster_file"])


def settings_of(section: str) -> type[Any]:
    """The settings of one kind of server."""
    if section == "broker":
        from magnetar_broker.config import BrokerConfig

        return BrokerConfig
    from magnetar_coordinator.config import CoordinatorConfig

    return CoordinatorConfig


def listen_config(
    options: dict[str, Any],
    section: str,
    sources: Sources,
    address: str | None,
    default_port: int,
) -> ListenConfig:
    """Where to listen: what was asked for, else the member's own address, else the default."""
    from magnetar_core.config import ListenConfig, split_address
    from magnetar_core.settings import resolve

    resolved = resolve(
        ListenConfig,
        section,
        sources,
        beside=[settings_of(section)],
        host=options["host"],
        port=options["port"],
        allow_remote=options["allow_remote"],
        metrics_port=options["metrics_port"],
    )
    if resolved.origins["port"] != "default":
        return resolved.settings
    member_port = split_address(address)[1] if address else default_port
    return replace(resolved.settings, port=member_port)


@click.command()
@click.option("--name", default="coordinator-0", show_default=True, help="As in the cluster file.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data/coordinator-0"),
    show_default=True,
)
@member_options
@server_options
def coordinator(**options: Any) -> None:
    """Run one transaction coordinator.

    It needs a broker, from which it takes the incarnation of a new store: the first of the cluster
    file, or else the one named by `magnetar --broker`.
    """
    from magnetar.cli.hosting import Component, Hosting, World, run
    from magnetar_coordinator.config import CoordinatorConfig
    from magnetar_coordinator.coordinator import Coordinator
    from magnetar_coordinator.records import FAMILIES
    from magnetar_core.config import ListenConfig
    from magnetar_core.settings import Sources, resolve

    broker_option = click.get_current_context().find_root().obj
    membership = _membership(options)
    name = options["name"]
    member = membership.coordinator(name) if membership else None
    sources = Sources.load(os.environ, SECTIONS, options["config_file"])
    listen = listen_config(
        options, "coordinator", sources, member.address if member else None, COORDINATOR_PORT
    )

    given: dict[str, Any] = {
        "name": name,
        "tcid": member.tcid if member else 0,
        "broker_address": membership.brokers[0].address if membership else broker_option,
        "membership_version": membership.version if membership else None,
        "cluster_hash": membership.hash if membership else None,
    }
    config = resolve(
        CoordinatorConfig, "coordinator", sources, beside=[ListenConfig], **given
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
        Hosting(
            kind="coordinator",
            name=name,
            service="TransactionCoordinator",
            data_dir=options["data_dir"],
            families=FAMILIES,
            # It reads old outcomes only, and rarely: a larger one only takes long to fill.
            block_cache_bytes=4 << 20,
            listen=listen,
            build=build,
            supervised=options["supervised"],
            ready_file=options["ready_file"],
        )
    )
