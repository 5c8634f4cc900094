"""`magnetar cluster`: members, shards, drain, move, rebalance, up."""

from __future__ import annotations

import click

from magnetar_cli.cluster.change_commands import drain, move, rebalance
from magnetar_cli.cluster.show_commands import members, shards
from magnetar_cli.cluster.up_command import up


@click.group()
def cluster() -> None:
    """Show who has which shard, move shards, or start a cluster for experiments.

    Where shards change their owners, etcd knows them: name it with --etcd. Without it, a broker
    tells what it knows.
    """


for command in (members, shards, drain, move, rebalance, up):
    cluster.add_command(command)
