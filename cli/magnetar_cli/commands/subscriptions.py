"""`magnetar subscriptions`: list, delete, seek."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from magnetar_cli.confirmation import confirm, dry_run_option, yes_option
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import json_option, place_of, watch_option

if TYPE_CHECKING:
    from magnetar import Client
    from magnetar_cli.commands.json_shapes.rows import SubscriptionOfPartition


@click.group()
def subscriptions() -> None:
    """List, delete and move subscriptions."""


def _show(topic: str, only: str | None = None) -> None:
    """Print a table of the subscriptions of a topic, or of one of them."""
    from magnetar_cli.commands.topics import SUBSCRIPTION_COLUMNS, subscription_rows
    from magnetar_cli.output import print_table
    from magnetar_cli.with_client import with_client

    found = with_client(lambda client: client.admin.topics.describe(topic))
    rows = [row for row in subscription_rows(found.partitions) if only in (None, row[0])]
    make = f"no subscriptions; make one: magnetar consume {topic} --subscription NAME"
    print_table(
        SUBSCRIPTION_COLUMNS, rows, empty=make if only is None else f"there is no {only} of {topic}"
    )


@subscriptions.command(name="list")
@click.argument("topic", type=TopicName())
@watch_option
@json_option
def list_subscriptions(topic: str, watch: bool, as_json: bool) -> None:
    """List the subscriptions of TOPIC, by partition."""
    from magnetar_cli.output import print_json
    from magnetar_cli.watching import watched
    from magnetar_cli.with_client import with_client

    def show() -> None:
        if not as_json:
            _show(topic)
            return
        found = with_client(lambda client: client.admin.topics.describe(topic))
        rows: list[SubscriptionOfPartition] = [
            {"partition": partition.partition, "subscription": one}
            for partition in found.partitions
            for one in partition.subscriptions
        ]
        print_json(rows)

    watched(show) if watch else show()


@subscriptions.command()
@click.argument("topic", type=TopicName())
@click.argument("subscription")
@click.option("--force", is_flag=True, help="First abort transactions with pending acks there.")
@dry_run_option
@yes_option
def delete(topic: str, subscription: str, force: bool, dry_run: bool, yes: bool) -> None:
    """Delete SUBSCRIPTION of TOPIC."""
    from magnetar_cli.with_client import with_client

    if dry_run:
        _show(topic, subscription)
        click.echo("nothing was deleted: leave out --dry-run to delete it", err=True)
        return
    confirm(f"Delete {subscription} of {topic}, with what it has acknowledged?", yes=yes)
    with_client(lambda client: client.admin.subscriptions.delete(topic, subscription, force=force))
    print(f"deleted {subscription} of {topic}")


@subscriptions.command()
@click.argument("topic", type=TopicName())
@click.argument("subscription")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00 (local time).",
)
@click.option(
    "--partition", type=click.IntRange(0), help="Only this partition; needed with an offset."
)
@click.option("--force", is_flag=True, help="First abort transactions with pending acks there.")
@yes_option
def seek(
    topic: str, subscription: str, target: str, partition: int | None, force: bool, yes: bool
) -> None:
    """Move the cursors of SUBSCRIPTION of TOPIC."""
    from magnetar_cli.with_client import with_client

    place = place_of(target)
    if place.offset is not None and partition is None:
        raise click.UsageError("an offset belongs to a partition; add --partition N")
    confirm(
        f"Move {subscription} of {topic}, and forget which messages it has acknowledged?", yes=yes
    )

    async def work(client: Client) -> None:
        await client.admin.subscriptions.seek(
            topic,
            subscription,
            position=place.position,
            offset=place.offset,
            append_time_ms=place.append_time_ms,
            partition=partition,
            force=force,
        )

    with_client(work)
    print(f"moved {subscription} of {topic} to {target}")
