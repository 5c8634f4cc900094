"""The options that the commands of servers share, and where settings come from."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from magnetar_cli.types import with_options

if TYPE_CHECKING:
    from magnetar_core.config import ListenConfig
    from magnetar_core.gates.access_file import AccessConfig
    from magnetar_core.membership.membership import Membership
    from magnetar_core.process.settings import Resolved, Sources
    from magnetar_core.recording.config import HistoryConfig
    from magnetar_core.security.link_security import LinkSecurity
    from magnetar_core.traces.config import TracesConfig
    from magnetar_storage.store_config import StoreConfig

SettingsT = TypeVar("SettingsT")

# Of the configuration file.
SECTIONS = ("broker", "coordinator")
LOG_LEVELS = click.Choice(["debug", "info", "warning", "error"])
LOG_FORMATS = click.Choice(["auto", "text", "json"])
PORT = click.IntRange(0, 0xFFFF)


# The options that every server process has.
server_options = with_options(
    click.option("--host", metavar="HOST", help="Listen on this address.  [default: 127.0.0.1]"),
    click.option(
        "--allow-remote",
        is_flag=True,
        default=None,
        help="Allow an address that other machines can reach; they may use the server.",
    ),
    click.option(
        "--access-file",
        metavar="FILE",
        envvar="MAGNETAR_ACCESS_FILE",
        help="Access rights, as TOML; read again when it changes. See `magnetar access`.",
    ),
    click.option(
        "--traces-endpoint",
        metavar="URL",
        help="Send spans to this collector, by OTLP over HTTP, as http://127.0.0.1:4318.",
    ),
    click.option(
        "--traces-sample-ratio",
        type=click.FloatRange(0, 1),
        metavar="RATIO",
        help="Begin traces for this part of the commands whose clients make none.  [default: 0.01]",
    ),
    click.option(
        "--history-dir",
        metavar="DIRECTORY",
        help="Write the history of the protocol there, for `magnetar check --history`.",
    ),
    click.option("--log-level", type=LOG_LEVELS, envvar="MAGNETAR_LOG_LEVEL", default="info"),
    click.option("--log-format", type=LOG_FORMATS, envvar="MAGNETAR_LOG_FORMAT", default="auto"),
    click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="MAGNETAR_CONFIG_FILE",
        help="The settings, as TOML; see `magnetar config show`.",
    ),
    click.option(
        "--ready-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="When ready, write process ids and addresses to this file, as JSON.",
    ),
)


# The options of a single server.
member_options = with_options(
    click.option(
        "--port",
        type=PORT,
        envvar="MAGNETAR_PORT",
        help="Listen on this port; 0: the system chooses.",
    ),
    click.option(
        "--metrics-port",
        type=PORT,
        envvar="MAGNETAR_METRICS_PORT",
        help="Serve metrics for Prometheus on this port; 0: the system chooses.  [default: none]",
    ),
    click.option(
        "--store",
        metavar="URL",
        help="Keep rows in an object store, as s3://BUCKET/PREFIX, and not in --data-dir.",
    ),
    click.option(
        "--cluster-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="MAGNETAR_CLUSTER_FILE",
        help="The members of the cluster, as TOML; not with --etcd.",
    ),
    click.option("--supervised", is_flag=True, hidden=True),
)


def load_membership(options: dict[str, Any]) -> Membership | None:
    """Read the cluster file, if there is any."""
    from magnetar_core.membership import membership
    from magnetar_core.process.observability import set_up_logging

    set_up_logging(level=options["log_level"], log_format=options["log_format"])
    return membership.load(os.environ, options["cluster_file"])


def settings_of(section: str) -> type[Any]:
    """Return the class of settings of a kind of server."""
    if section == "broker":
        from magnetar_broker.config import BrokerConfig

        return BrokerConfig
    from magnetar_coordinator.config import CoordinatorConfig

    return CoordinatorConfig


def shared_settings() -> list[type[Any]]:
    """Return the classes of settings that both kinds of servers have."""
    from magnetar_cli.servers.member_config import MemberConfig
    from magnetar_cluster.host_settings import HostSettings
    from magnetar_core.config import ListenConfig
    from magnetar_core.gates.access_file import AccessConfig
    from magnetar_core.recording.config import HistoryConfig
    from magnetar_core.security.link_security import LinkConfig
    from magnetar_core.traces.config import TracesConfig
    from magnetar_storage.store_config import StoreConfig

    return [
        ListenConfig,
        LinkConfig,
        AccessConfig,
        TracesConfig,
        HistoryConfig,
        StoreConfig,
        MemberConfig,
        HostSettings,
    ]


def all_settings(section: str) -> list[type[Any]]:
    """Return the classes of settings that a kind of server has, its own first."""
    own = [settings_of(section)]
    if section == "broker":
        from magnetar_kafka.config import KafkaConfig

        own.append(KafkaConfig)
    return [*own, *shared_settings()]


def resolve_shared(
    kind: type[SettingsT], section: str, sources: Sources, **flags: object
) -> Resolved[SettingsT]:
    """Create settings of one of the classes that a kind of server has."""
    from magnetar_core.process.settings import resolve

    return resolve(kind, section, sources, beside=all_settings(section), **flags)


def store_config(options: dict[str, Any], section: str, sources: Sources) -> StoreConfig:
    """Return where a server keeps its rows."""
    from magnetar_storage.store_config import StoreConfig

    return resolve_shared(StoreConfig, section, sources, store=options["store"]).settings


def access_config(options: dict[str, Any], section: str, sources: Sources) -> AccessConfig:
    """Return who may do what at a server."""
    from magnetar_core.gates.access_file import AccessConfig

    given = options["access_file"]
    return resolve_shared(AccessConfig, section, sources, access_file=given).settings


def traces_config(options: dict[str, Any], section: str, sources: Sources) -> TracesConfig:
    """Return which traces a server makes."""
    from magnetar_core.traces.config import TracesConfig

    return resolve_shared(
        TracesConfig,
        section,
        sources,
        traces_endpoint=options["traces_endpoint"],
        traces_sample_ratio=options["traces_sample_ratio"],
    ).settings


def history_config(options: dict[str, Any], section: str, sources: Sources) -> HistoryConfig:
    """Return where a server writes the history of the protocol."""
    from magnetar_core.recording.config import HistoryConfig

    given = options["history_dir"]
    return resolve_shared(HistoryConfig, section, sources, history_dir=given).settings


def listen_config(
    options: dict[str, Any],
    section: str,
    sources: Sources,
    address: str | None,
    default_port: int,
) -> ListenConfig:
    """Return where to listen: the options count first, then the cluster file, then the default."""
    from magnetar_core.config import ListenConfig, split_address

    resolved = resolve_shared(
        ListenConfig,
        section,
        sources,
        host=options["host"],
        port=options["port"],
        allow_remote=options["allow_remote"],
        metrics_port=options["metrics_port"],
    )
    settings = replace(resolved.settings, host=_there(resolved.settings.host))
    if resolved.origins["port"] != "default":
        return settings
    member_port = split_address(address)[1] if address else default_port
    return replace(settings, port=member_port)


def _there(host: str) -> str:
    """Return a host to listen on. `::` means all addresses, also on a machine without IPv6."""
    if host.strip("[]") != "::":
        return host
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6):
            return host
    except OSError:
        return "0.0.0.0"


def links_of(section: str, sources: Sources, listen: ListenConfig) -> LinkSecurity:
    """Return how the links of a server to other servers are secured.

    Raises:
        InvalidConfig: a file cannot be read, or is not what it should be.
    """
    from magnetar_core.security.link_security import LinkConfig

    links = resolve_shared(LinkConfig, section, sources).settings
    return links.security(
        certificate_file=listen.tls_certificate_file, key_file=listen.tls_key_file
    )
