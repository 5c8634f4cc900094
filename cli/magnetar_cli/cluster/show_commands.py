"""`magnetar cluster members` and `magnetar cluster shards`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from magnetar_cli.cluster.options import etcd_options
from magnetar_cli.types import json_option, watch_option

if TYPE_CHECKING:
    from magnetar import Client
    from magnetar_cli.cluster.picture import Picture
    from magnetar_cluster.directory.cluster_directory import ClusterDirectory


@click.command()
@etcd_options
@watch_option
@json_option
def members(etcd: str | None, cluster_id: str, watch: bool, as_json: bool) -> None:
    """List the servers of the cluster, and the shards that they have.

    A server that is draining or leaving gives up its shards, and gets none. Without --etcd, such
    states and versions are not known, nor servers without a shard.
    """
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.watching import watched

    def show() -> None:
        found = picture(etcd, cluster_id).members
        if as_json:
            print_json(found)
            return
        print_table(
            ("KIND", "MEMBER", "ADDRESS", "VERSION", "SHARDS", "STATE"),
            [
                (one.kind, one.name, one.address, one.version, one.numbers, one.state)
                for one in found
            ],
            empty="no members are alive",
        )

    watched(show) if watch else show()


@click.command()
@etcd_options
@click.option(
    "--lag", "with_lag", is_flag=True, help="Also ask the brokers for the lag of subscriptions."
)
@watch_option
@json_option
def shards(etcd: str | None, cluster_id: str, with_lag: bool, watch: bool, as_json: bool) -> None:
    """List the shards of the cluster, and the member that has each of them.

    MOVES TO: the member that will get the shard, if that is not its owner. Each ownership has an
    EPOCH of its own. The exit status is 1 if a shard has no owner.
    """
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.watching import watched

    homeless = False

    def show() -> None:
        nonlocal homeless
        found = picture(etcd, cluster_id)
        if with_lag:
            found = with_lags(found)
        if as_json:
            print_json(found.shards)
        else:
            columns = ("SHARD", "OWNER", "ADDRESS", "EPOCH", "MOVES TO", "PINNED TO", "LAG")
            shown = len(columns) - (not with_lag)
            print_table(
                columns[:shown],
                [
                    (
                        *(one.name, one.owner, one.address, one.epoch),
                        *(one.wished, one.pinned, one.lag),
                    )[:shown]
                    for one in found.shards
                ],
                empty="the cluster has no shards",
            )
        homeless = not all(one.owner for one in found.shards)

    watched(show) if watch else show()
    raise click.exceptions.Exit(int(homeless))


def picture(etcd: str | None, cluster_id: str) -> Picture:
    """Ask the directory, or a broker where there is none."""
    from magnetar_cli.cluster.picture import of_info, of_view

    if etcd is None:
        from magnetar_cli.with_client import with_client

        return of_info(with_client(lambda client: client.admin.cluster_info()))
    from magnetar_cli.cluster.changes import known
    from magnetar_cli.cluster.options import with_directory

    async def work(directory: ClusterDirectory) -> Picture:
        now = await known(directory)
        return of_view(now.view, now.fixed)

    return with_directory(etcd, cluster_id, work)


def with_lags(found: Picture) -> Picture:
    """Ask the brokers how much is not acknowledged in their partitions."""
    from magnetar_cli.with_client import with_client
    from magnetar_core.errors import TopicNotFound

    async def work(client: Client) -> Counter[str]:
        lags: Counter[str] = Counter()
        for topic in await client.admin.topics.list():
            try:
                described = await client.admin.topics.describe(topic.topic)
            except TopicNotFound:
                continue  # it was deleted meanwhile
            for one in described.partitions:
                lags[one.broker_name] += sum(each.backlog for each in one.subscriptions)
        return lags

    addresses = sorted(
        {one.address for one in found.members if one.address and one.kind == "broker"}
    )
    lags = with_client(work, broker=",".join(addresses) or None)
    return replace(
        found,
        shards=tuple(
            replace(one, lag=lags[one.name]) if one.kind == "broker" else one
            for one in found.shards
        ),
    )
