"""Options with which the commands of a cluster find its directory."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from magnetar_cli import event_loop
from magnetar_cli.servers.owner_options import DEFAULT_CLUSTER_ID
from magnetar_cli.types import with_options

if TYPE_CHECKING:
    from magnetar_cluster.directory.cluster_directory import ClusterDirectory

Result = TypeVar("Result")
# Of MemberConfig: what a client of etcd needs beside addresses.
ETCD_SETTINGS = (
    *("etcd_ca_file", "etcd_certificate_file", "etcd_key_file"),
    *("etcd_user", "etcd_password_file"),
)


# The options that name a cluster in etcd.
etcd_options = with_options(
    click.option(
        "--etcd",
        envvar="MAGNETAR_ETCD",
        metavar="HOST:PORT,...",
        help="The addresses of etcd's members.  [env: MAGNETAR_ETCD]",
    ),
    click.option(
        "--cluster-id",
        envvar="MAGNETAR_CLUSTER_ID",
        default=DEFAULT_CLUSTER_ID,
        show_default=True,
        metavar="NAME",
        help="The id of the cluster in etcd.  [env: MAGNETAR_CLUSTER_ID]",
    ),
)


def with_directory(
    etcd: str | None, cluster_id: str, work: Callable[[ClusterDirectory], Awaitable[Result]]
) -> Result:
    """Open the directory of a cluster, do the work, and close it."""
    if etcd is None:
        raise click.UsageError(
            "name the addresses of etcd with --etcd HOST:PORT or MAGNETAR_ETCD; the members of a "
            "list keep"
            " their shards for good"
        )

    async def run() -> Result:
        directory = open_directory(etcd, cluster_id)
        try:
            return await work(directory)
        finally:
            await directory.close()

    return event_loop.run(run())


def open_directory(etcd: str, cluster_id: str) -> ClusterDirectory:
    """Return the directory of a cluster; nothing is asked yet.

    Further settings of etcd, such as certificates, come from the variables that servers read.

    Raises:
        InvalidConfig: an address is not valid, or a setting is wrong.
    """
    from magnetar_cli.servers.member_config import MemberConfig
    from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
    from magnetar_cluster.host_settings import HostSettings
    from magnetar_core.config import PREFIX

    # Servers read them with packages that the command line alone does not need.
    given: dict[str, Any] = {
        name: os.environ.get(f"{PREFIX}{name.upper()}", "") for name in ETCD_SETTINGS
    }
    config = MemberConfig(etcd=etcd, **given)
    return EtcdDirectory(config.etcd_settings(HostSettings().lease_duration_ms), cluster_id)
