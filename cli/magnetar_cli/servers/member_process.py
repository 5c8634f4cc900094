"""Runs a server whose shards come and go: port, directory, host, and an orderly end.

Source: docs/design/0009-owners.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from prometheus_client import CollectorRegistry

from magnetar_broker.cluster_answers import ClusterAnswers
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.host_metrics import HostMetrics
from magnetar_cli.servers.member_commands import MemberCommands
from magnetar_cli.servers.member_config import MemberConfig
from magnetar_cli.servers.owners_push import OwnersPush
from magnetar_cli.servers.ready import Ready
from magnetar_cli.servers.server_process import (
    announce,
    run_coroutine,
    spare_the_collector,
    stop_on_signals,
    unless_stopped,
)
from magnetar_cli.servers.shard_metrics import ShardMetrics
from magnetar_cli.servers.shard_servers import ShardKind, ShardServers
from magnetar_cluster.directory import Directory, DirectoryUnavailable
from magnetar_cluster.etcd_directory import EtcdDirectory
from magnetar_cluster.host import Host
from magnetar_cluster.host_settings import HostSettings
from magnetar_cluster.owners_book import OwnersBook
from magnetar_cluster.view import Format, Member, MemberName, View
from magnetar_core.address_book import AddressBook
from magnetar_core.clock import SystemClock, since_boot_ms
from magnetar_core.config import ListenConfig
from magnetar_core.doors import Doors
from magnetar_core.grpc_server import GrpcServer
from magnetar_core.observability import MetricsEndpoint
from magnetar_core.version import VERSION

log = logging.getLogger("magnetar_cli")

_ASK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a member is: what its shards need to know of the cluster.

    Attributes:
        cluster_format: how many shards the cluster has.
        member: the addresses of this process.
        book: knows where shards are.
    """

    cluster_format: Format
    member: Member
    book: AddressBook


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProcess:
    """The member that a process is, and how it runs.

    Attributes:
        kind: "broker" or "coordinator".
        service: of gRPC.
        name: empty: made of the machine's name and the port.
        external_address: where clients outside of the servers' network reach it; may be empty.
        kind_of: says how shards are made, when it is known where the member is.
        cluster: what the member says of the cluster while it has no shard.
        supervised: as of ServerProcess.
    """

    kind: str
    service: str
    name: str
    cluster_id: str
    listen: ListenConfig
    config: MemberConfig
    host: HostSettings
    external_address: str
    kind_of: Callable[[Place], ShardKind]
    cluster: Callable[[Place], BrokerConfig]
    supervised: bool = False
    ready_file: Path | None = None


def run(process: MemberProcess) -> None:
    """Serve until a signal."""
    run_coroutine(_serve(process))


async def _serve(process: MemberProcess) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, supervised=process.supervised)
    async with AsyncExitStack() as closing:
        doors, registry, clock = Doors(), CollectorRegistry(), SystemClock()
        server = GrpcServer(process.service, process.listen, doors)
        await server.open()
        closing.push_async_callback(server.close)
        member = Member(
            address=process.config.advertised_address or server.address,
            external_address=process.external_address,
            version=VERSION,
        )
        name = MemberName(process.kind, process.name or default_name(server.port))
        log.info("%s %s of Magnetar %s is starting", *name, VERSION)
        metrics = ""
        if process.listen.metrics_port is not None:
            endpoint = MetricsEndpoint(
                registry, host=process.listen.host, port=process.listen.metrics_port
            )
            metrics = f"http://{endpoint.address}/metrics"
            closing.push_async_callback(asyncio.to_thread, endpoint.close)
        directory = EtcdDirectory(
            process.config.etcd_settings(process.host.lease_duration_ms),
            process.cluster_id,
            asker=name.name,
        )
        closing.push_async_callback(directory.close)
        cluster_format = await unless_stopped(_format(directory, process.config), stop)
        if cluster_format is None:
            return
        shard_metrics = ShardMetrics()
        registry.register(shard_metrics)
        views = [View()]
        place = Place(
            cluster_format=cluster_format, member=member, book=OwnersBook(lambda: views[0])
        )
        shards = ShardServers(process.kind_of(place), doors, shard_metrics, clock, server.address)
        host = Host(
            directory,
            shards,
            process.host,
            cluster_format=cluster_format,
            name=name,
            member=member,
            now_ms=since_boot_ms,
            random=Random(),
        )
        registry.register(HostMetrics(host))
        push = OwnersPush(server.push)
        closing.callback(push.close)

        def saw(view: View) -> None:
            views[0] = view
            shards.owners_changed(view)
            push.owners_changed(view)

        host.on_view.append(saw)
        host.on_speech.append(lambda may_speak: None if may_speak else doors.mute())
        own = ClusterAnswers(process.cluster(place), place.book, name.name)
        await server.serve(MemberCommands(own))
        closing.push_async_callback(host.close)
        await host.start()
        spare_the_collector()
        if await unless_stopped(_joined(host), stop) is None:
            return
        ready = Ready(
            kind=name.kind,
            name=name.name,
            pid=os.getpid(),
            address=member.address,
            metrics=metrics,
        )
        announce(ready, process.ready_file, supervised=process.supervised)
        await stop.wait()
        log.info("%s %s is stopping: it hands over its shards", *name)
        stop.clear()
        # A second signal does not wait for others to take the shards.
        await unless_stopped(_drained(host), stop)


async def _format(directory: Directory, config: MemberConfig) -> Format:
    """Return how many shards the cluster has; wait until etcd answers.

    Raises:
        InvalidConfig: the cluster is new and nothing is wanted, or it has other numbers.
    """
    while True:
        try:
            return config.check_format(await directory.format(config.wanted_format))
        except DirectoryUnavailable as error:
            log.warning("etcd at %s does not answer; asking again: %s", config.etcd, error)
            await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _joined(host: Host) -> Host:
    """Wait until the directory knows the member."""
    changed = asyncio.Event()
    host.on_change.append(changed.set)
    while not host.joined:
        changed.clear()
        await changed.wait()
    host.on_change.remove(changed.set)
    return host


async def _drained(host: Host) -> Host:
    await host.drain()
    return host


def default_name(port: int) -> str:
    """Return the name of a member that was given none."""
    return f"{socket.gethostname()}-{port}"
