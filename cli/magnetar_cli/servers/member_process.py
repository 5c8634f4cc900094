"""Runs a server whose shards come and go: port, directory, host, and an orderly end.

Source: docs/design/0009-owners.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_broker.config import BrokerConfig
from magnetar_cli.servers.host_metrics import HostMetrics
from magnetar_cli.servers.interruption import unless_stopped
from magnetar_cli.servers.kafka_port import MemberPorts, link_settings_of
from magnetar_cli.servers.member_commands import MemberCommands
from magnetar_cli.servers.member_config import MemberConfig
from magnetar_cli.servers.membership import Membership
from magnetar_cli.servers.membership_commands import membership_handlers
from magnetar_cli.servers.owner_options import Owning, servers_of, settings_of_cluster
from magnetar_cli.servers.owners_push import OwnersPush
from magnetar_cli.servers.ready import Ready
from magnetar_cli.servers.server_process import (
    EXIT_FATAL,
    announce,
    run_coroutine,
    spare_the_collector,
    stop_on_signals,
)
from magnetar_cli.servers.shard_metrics import ShardMetrics
from magnetar_cli.servers.shard_servers import ObjectStores, ShardKind, ShardServers
from magnetar_cluster.background import Background
from magnetar_cluster.cluster_transport import ClusterTransport
from magnetar_cluster.directory.cluster_directory import (
    ClusterDirectory,
    ClusterDirectoryUnavailable,
    ClusterDirectoryWentBack,
)
from magnetar_cluster.directory.view import Format, Member, MemberName, View
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_history import watch_history
from magnetar_cluster.hosting.host import Host
from magnetar_cluster.owners_book import OwnersBook
from magnetar_core.clock import SystemClock, since_boot_ms
from magnetar_core.config import InvalidConfig
from magnetar_core.gates.gates import gates_of
from magnetar_core.link.grpc_transport import GrpcTransport
from magnetar_core.membership.address_book import AddressBook
from magnetar_core.process.observability import MetricsEndpoint
from magnetar_core.security.certificate_metrics import tell_expiry
from magnetar_core.server.connection_metrics import tell_connections
from magnetar_core.server.doors import Doors
from magnetar_core.server.grpc_server import GrpcServer
from magnetar_core.traces.opening import open_traces
from magnetar_core.version import VERSION
from magnetar_kafka.config import KafkaConfig
from magnetar_storage.object_store.cluster_stamp import AddressTaken, ClusterStamp, take_address
from magnetar_storage.object_store.url import ObjectStoreUrl

log = logging.getLogger("magnetar_cli")

_ASK_AGAIN_SECONDS = 1.0
# sysexits.h, EX_TEMPFAIL: it has ended, as it was told to, and others have to wait a little longer.
EXIT_NOT_HANDED_OVER = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of a member: the facts of the cluster that its shards need.

    Attributes:
        identity: the settings that name the cluster; as of Membership.settings.
        broker: settings of a broker of the cluster; each shard's own have its name.
        book: knows where shards are.
    """

    identity: Mapping[str, Any]
    broker: BrokerConfig
    book: AddressBook


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProcess:
    """The member that a process is, and how it runs.

    Attributes:
        kind: "broker" or "coordinator".
        service: of gRPC.
        name: empty: made of the machine's name and the port.
        broker: settings of brokers, without what etcd has to tell of the cluster.
        kind_of: says how shards are made, when it is known where the member is.
        kafka: settings of its ports for Kafka's clients; None: it has none.
        supervised: as of ServerProcess.
    """

    kind: str
    service: str
    name: str
    cluster_id: str
    owning: Owning
    broker: BrokerConfig
    kind_of: Callable[[Place], ShardKind]
    kafka: KafkaConfig | None = None
    supervised: bool = False
    ready_file: Path | None = None


class NotHandedOver(Exception):
    """A server stopped, and could not hand over its shards in order; its text says why."""


def run(process: MemberProcess) -> None:
    """Serve until a signal."""
    try:
        run_coroutine(_serve(process))
    except NotHandedOver as reason:
        log.error("%s", reason)
        sys.exit(EXIT_NOT_HANDED_OVER)
    except ClusterDirectoryWentBack as reason:
        log.critical("%s. This one has given up its shards, and ends", reason)
        sys.exit(EXIT_FATAL)


async def _serve(process: MemberProcess) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, supervised=process.supervised)
    config, listen = process.owning.config, process.owning.listen
    async with AsyncExitStack() as closing:
        doors, registry, clock = Doors(), CollectorRegistry(), SystemClock()
        tell_expiry(registry, listen.tls_certificate_file)
        gate = gates_of(process.owning.access, listen, clock)
        # It ends last: others make spans until they have ended.
        traced_as = process.name or socket.gethostname()
        traces = open_traces(process.owning.traces, process.kind, traced_as, registry)
        if traces is not None:
            closing.push_async_callback(asyncio.to_thread, traces.close)
        server_traces = None if traces is None else traces.server
        server = GrpcServer(process.service, listen, doors, gate, traces=server_traces)
        tell_connections(registry, server)
        await server.open()
        closing.push_async_callback(server.close)
        member = member_of(process, server.address)
        name = MemberName(process.kind, process.name or default_name(server.port))
        log.info("%s %s of Magnetar %s is starting", *name, VERSION)
        metrics = ""
        if listen.metrics_port is not None:
            endpoint = MetricsEndpoint(registry, host=listen.host, port=listen.metrics_port)
            metrics = f"http://{endpoint.address}/metrics"
            closing.push_async_callback(asyncio.to_thread, endpoint.close)
        directory = EtcdDirectory(
            config.etcd_settings(process.owning.host.lease_duration_ms),
            process.cluster_id,
            asker=name.name,
        )
        closing.push_async_callback(directory.close)
        cluster_format = await unless_stopped(_format(directory, config, Random()), stop)
        if cluster_format is None:
            return
        history = asyncio.get_running_loop().create_task(watch_history(directory))
        closing.callback(history.cancel)
        cluster = ClusterStamp(
            cluster_id=process.cluster_id, token=cluster_format.token, etcd=config.etcd
        )
        shard_metrics = ShardMetrics()
        registry.register(shard_metrics)
        views = [View()]
        book = OwnersBook(lambda: views[0])
        kafka: MemberPorts | None = None
        if process.kafka is not None:
            shard_names = servers_of(cluster_format)[0]
            identity = settings_of_cluster(process.cluster_id, cluster_format)
            kafka = MemberPorts(
                process.kafka,
                listen,
                shard_names,
                book,
                registry,
                gate,
                transport=ClusterTransport(GrpcTransport(process.owning.links), lambda: views[0]),
                links=link_settings_of(replace(process.broker, name=name.name, **identity)),
            )
            await kafka.open()
            closing.push_async_callback(kafka.close)
            member = replace(
                member,
                kafka_address=kafka.address,
                kafka_external_address=kafka.external_address,
            )
        place = place_of(process, cluster_format, member, book)
        kind, links = process.kind_of(place), process.owning.links
        shards = ShardServers(
            kind,
            doors,
            shard_metrics,
            clock,
            server.address,
            surroundings=ObjectStores(kind.rows, links, cluster, directory),
            traces=server_traces,
            history=process.owning.history,
            on_open=None if kafka is None else kafka.add,
        )
        host = Host(
            directory,
            shards,
            process.owning.host,
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
            if kafka is not None:
                kafka.owners_changed(view)
            push.owners_changed(view)

        failures: list[ClusterDirectoryWentBack | AddressTaken] = []

        def failed(error: ClusterDirectoryWentBack | AddressTaken) -> None:
            failures.append(error)
            stop.set()

        # Shards wait for this, and the member does not: others have its shards if it cannot reach
        # the object store.
        prefix = ObjectStoreUrl.parse(process.owning.store.store)
        taking = asyncio.get_running_loop().create_task(_take_address(prefix, cluster, failed))
        closing.callback(taking.cancel)
        host.on_failure.append(failed)
        host.on_view.append(saw)
        host.on_speech.append(lambda may_speak: None if may_speak else doors.mute())
        own = ClusterResponses(place.broker, place.book, name.name)
        changes = Background()
        closing.push_async_callback(changes.end)
        membership = membership_handlers(
            Membership(host, directory, cluster_format, name), changes.start
        )
        shards.take_membership(membership)
        await server.serve(MemberCommands(own, membership))
        closing.push_async_callback(host.close)
        await host.start()
        spare_the_collector()
        joined = await unless_stopped(_joined(host), stop)
        if joined is not None:
            ready = Ready(
                kind=name.kind,
                name=name.name,
                pid=os.getpid(),
                address=member.address,
                metrics=metrics,
                kafka=member.kafka_address,
            )
            announce(ready, process.ready_file, supervised=process.supervised)
            await stop.wait()
        if failures:
            raise failures[0]
        if joined is None:
            return
        log.info("%s %s is stopping: it hands over its shards", *name)
        stop.clear()
        # A second signal does not wait for others to take the shards.
        if reason := await unless_stopped(host.drain(), stop):
            left = sum(bool(shard.epoch) for shard in host.shards.values())
            raise NotHandedOver(
                f"{name.kind} {name.name} stops with {left} shards that it could not hand over,"
                f" since {reason}. Nothing acknowledged is lost: others open the shards when its"
                " lease has ended, and replay their logs"
            )


def member_of(process: MemberProcess, listens_at: str) -> Member:
    """Return the row of this member."""
    config = process.owning.config
    return Member(
        address=config.advertised_address or listens_at,
        external_address=config.external_address,
        version=VERSION,
    )


def place_of(
    process: MemberProcess, cluster_format: Format, member: Member, book: AddressBook
) -> Place:
    """Return the place that all shards of a member share."""
    identity = settings_of_cluster(process.cluster_id, cluster_format)
    brokers, coordinators = servers_of(cluster_format)
    broker = replace(
        process.broker,
        # Settings may have a name for a broker with a list of members, and here it is a shard's.
        name=brokers[0].name,
        address=member.address,
        external_address=member.external_address,
        brokers=brokers,
        coordinators=coordinators,
        **identity,
    )
    return Place(identity=identity, broker=broker, book=book)


async def _format(directory: ClusterDirectory, config: MemberConfig, random: Random) -> Format:
    """Return how many shards the cluster has; wait until etcd answers.

    Args:
        random: makes the token of a new cluster.
    Raises:
        InvalidConfig: the cluster is new and no numbers are given, or it has other numbers.
    """
    wanted = config.wanted_format
    if wanted is not None:
        wanted = replace(wanted, token=f"{random.getrandbits(64):016x}")
    while True:
        try:
            return config.check_format(await directory.format(wanted))
        except ClusterDirectoryUnavailable as error:
            log.warning("etcd at %s does not answer; asking again: %s", config.etcd, error)
            await asyncio.sleep(_ASK_AGAIN_SECONDS)


async def _take_address(
    prefix: ObjectStoreUrl, cluster: ClusterStamp, failed: Callable[[AddressTaken], None]
) -> None:
    """Tell the process if another cluster uses its address in the object store."""
    try:
        await take_address(prefix, cluster)
    except AddressTaken as error:
        failed(error)
    except InvalidConfig as error:
        log.warning("the stores of this server cannot be opened: %s", error)


async def _joined(host: Host) -> Host:
    """Wait until the directory knows the member."""
    changed = asyncio.Event()
    host.on_change.append(changed.set)
    while not host.joined:
        changed.clear()
        await changed.wait()
    host.on_change.remove(changed.set)
    return host


def default_name(port: int) -> str:
    """Return the name of a member that was given none."""
    return f"{socket.gethostname()}-{port}"
