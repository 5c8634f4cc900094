"""How the commands of a cluster find its directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from magnetar_cluster.directory import Directory

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


def etcd_options(function: Function) -> Function:
    """Add the options that name a cluster in etcd."""
    for option in reversed(
        (
            click.option(
                "--etcd",
                envvar="MAGNETAR_ETCD",
                metavar="HOST:PORT,...",
                help="The members of etcd.  [env: MAGNETAR_ETCD]",
            ),
            click.option(
                "--cluster-id",
                envvar="MAGNETAR_CLUSTER_ID",
                default="magnetar",
                show_default=True,
                metavar="NAME",
                help="The cluster, of several in one etcd.  [env: MAGNETAR_CLUSTER_ID]",
            ),
        )
    ):
        function = option(function)
    return function


def with_directory(
    etcd: str | None, cluster_id: str, work: Callable[[Directory], Awaitable[Result]]
) -> Result:
    """Open the directory of a cluster, do the work, and close it."""
    if etcd is None:
        raise click.UsageError(
            "say where etcd is, with --etcd HOST:PORT or MAGNETAR_ETCD; the members of a list keep"
            " their shards for good"
        )

    async def run() -> Result:
        directory = open_directory(etcd, cluster_id)
        try:
            return await work(directory)
        finally:
            await directory.close()

    return asyncio.run(run())


def open_directory(etcd: str, cluster_id: str) -> Directory:
    """Return the directory of a cluster; nothing is asked yet.

    What else etcd wants to know, as certificates, comes from the variables that servers read.

    Raises:
        InvalidConfig: the addresses are no addresses, or a setting is wrong.
    """
    from magnetar_cli.servers.member_config import MemberConfig
    from magnetar_cli.servers.options import SECTIONS, settings_of, shared_settings
    from magnetar_cluster.etcd_directory import EtcdDirectory
    from magnetar_cluster.host_settings import HostSettings
    from magnetar_core.settings import Sources, resolve

    section = SECTIONS[0]
    config = resolve(
        MemberConfig,
        section,
        Sources.load(os.environ, SECTIONS, None),
        beside=[settings_of(section), *shared_settings()],
        etcd=etcd,
    ).settings
    return EtcdDirectory(config.etcd_settings(HostSettings().lease_duration_ms), cluster_id)
