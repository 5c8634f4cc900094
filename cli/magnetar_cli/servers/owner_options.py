"""Options of servers whose shards change their owner, and what follows from them for each shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.servers.options import (
    access_config,
    history_config,
    links_of,
    listen_config,
    resolve_shared,
    store_config,
    traces_config,
)
from magnetar_cli.types import with_options

if TYPE_CHECKING:
    from magnetar_cli.servers.member_config import MemberConfig
    from magnetar_cluster.directory.view import Format
    from magnetar_cluster.host_settings import HostSettings
    from magnetar_core.config import ListenConfig
    from magnetar_core.gates.access_file import AccessConfig
    from magnetar_core.membership.address_book import MemberAddress
    from magnetar_core.membership.membership import Membership
    from magnetar_core.process.settings import Sources
    from magnetar_core.recording.config import HistoryConfig
    from magnetar_core.security.link_security import LinkSecurity
    from magnetar_core.traces.config import TracesConfig
    from magnetar_storage.store_config import StoreConfig

DEFAULT_CLUSTER_ID = "magnetar"


# The options of a server whose shards change their owner.
owner_options = with_options(
    click.option(
        "--etcd",
        metavar="HOST:PORT,...",
        help="Share the shards with other servers, through this etcd; needs --store.  [env: "
        "MAGNETAR_ETCD]",
    ),
    click.option(
        "--cluster-id",
        metavar="NAME",
        help="With --etcd: the id of the cluster in etcd."
        f"  [env: MAGNETAR_CLUSTER_ID; default: {DEFAULT_CLUSTER_ID}]",
    ),
    click.option(
        "--advertise",
        metavar="HOST:PORT",
        help="With --etcd: the address at which servers and clients reach this server.  [default: "
        "where it listens]",
    ),
    click.option(
        "--external-address",
        metavar="HOST:PORT",
        help="With --etcd: the address at which clients outside of the servers' network reach it."
        "  [env: MAGNETAR_EXTERNAL_ADDRESS]",
    ),
    click.option(
        "--broker-shards",
        type=click.IntRange(1),
        help="With --etcd: how many shards of brokers a new cluster has.",
    ),
    click.option(
        "--coordinator-shards",
        type=click.IntRange(1),
        help="With --etcd: how many shards of coordinators a new cluster has.",
    ),
    click.option(
        "--lease-ms",
        type=click.IntRange(1),
        help="With --etcd: a server that is silent for this long loses its shards."
        "  [default: 3000]",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owning:
    """Settings of a server whose shards change their owner.

    Attributes:
        store: where all of its shards keep their rows.
        links: how its links to other servers are secured.
        traces: which traces it makes.
        history: where its shards write the history of the protocol.
    """

    config: MemberConfig
    host: HostSettings
    listen: ListenConfig
    store: StoreConfig
    access: AccessConfig
    links: LinkSecurity
    traces: TracesConfig
    history: HistoryConfig


def owning(
    options: dict[str, Any],
    section: str,
    sources: Sources,
    membership: Membership | None,
    default_port: int,
) -> Owning | None:
    """Return the settings of a member of a cluster in etcd; None: the server keeps its shard.

    Raises:
        InvalidConfig: they do not fit together, or not with others.
    """
    from magnetar_cli.servers.member_config import MemberConfig
    from magnetar_cluster.host_settings import HostSettings
    from magnetar_core.config import InvalidConfig

    config = resolve_shared(
        MemberConfig,
        section,
        sources,
        etcd=options["etcd"],
        advertised_address=options["advertise"],
        external_address=options["external_address"],
        broker_shards=options["broker_shards"],
        coordinator_shards=options["coordinator_shards"],
    ).settings
    if not config.etcd:
        return None
    store = store_config(options, section, sources)
    if not store.store:
        raise InvalidConfig(
            "shards that change their owner must be in an object store: name it with --store"
            " s3://BUCKET/PREFIX; with rows on local disks, start without --etcd"
        )
    listen = listen_config(options, section, sources, None, default_port)
    if not config.advertised_address and listen.host in ("0.0.0.0", "::", "[::]"):
        raise InvalidConfig(
            f"other servers cannot reach {listen.host}: name the address of this server with "
            "--advertise HOST:PORT"
        )
    lease_ms = options["lease_ms"]
    host = resolve_shared(HostSettings, section, sources, lease_duration_ms=lease_ms).settings
    if membership is not None:
        cluster_file = options["cluster_file"]
        where = f"in {cluster_file}" if cluster_file else "in the environment"
        raise InvalidConfig(
            f"the list of members {where} says who has which shard for good, and --etcd says that"
            " shards change their owner: start without one of them"
        )
    links = links_of(section, sources, listen)
    access = access_config(options, section, sources)
    traces = traces_config(options, section, sources)
    return Owning(
        config=config,
        host=host,
        listen=listen,
        access=access,
        store=store,
        links=links,
        traces=traces,
        history=history_config(options, section, sources),
    )


def settings_of_cluster(cluster_id: str, cluster_format: Format) -> dict[str, Any]:
    """Return the settings of each server that name the cluster itself.

    The hash covers the id and the numbers of shards: members come and go.
    """
    from magnetar_core.membership.membership import CoordinatorMember, Member, Membership

    brokers, coordinators = servers_of(cluster_format)
    return Membership(
        cluster_id=cluster_id,
        brokers=tuple(Member(name=broker.name, address=f"{broker.name}:1") for broker in brokers),
        coordinators=tuple(
            CoordinatorMember(
                name=coordinator.name, address=f"{coordinator.name}:1", tcid=coordinator.tcid
            )
            for coordinator in coordinators
        ),
        stable_addresses=False,
    ).settings()


def servers_of(
    cluster_format: Format,
) -> tuple[tuple[MemberAddress, ...], tuple[MemberAddress, ...]]:
    """Return brokers and coordinators as servers know each other: by the names of their shards."""
    from magnetar_cluster.directory.view import BROKER, COORDINATOR
    from magnetar_core.membership.address_book import MemberAddress

    return (
        tuple(
            MemberAddress(name=str(one), address=str(one)) for one in cluster_format.shards(BROKER)
        ),
        tuple(
            MemberAddress(name=str(one), address=str(one), tcid=one.number)
            for one in cluster_format.shards(COORDINATOR)
        ),
    )
