"""`magnetar cluster`: members, shards, drain, move, rebalance."""

from __future__ import annotations

import click

from magnetar_cli.cluster.change_commands import drain, move, rebalance
from magnetar_cli.cluster.show_commands import members, shards


@click.group()
def cluster() -> None:
    """Show who has which shard, and move shards.

    Where shards change their owners, etcd knows them: name it with --etcd. Without it, a broker
    tells what it knows.
    """


for command in (members, shards, drain, move, rebalance):
    cluster.add_command(command)
