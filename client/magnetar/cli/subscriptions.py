"""`magnetar subscriptions`: list, delete, seek."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import click

from magnetar.cli.types import json_option

if TYPE_CHECKING:
    from magnetar import Client


@click.group()
def subscriptions() -> None:
    """List, delete and move subscriptions."""


@subscriptions.command(name="list")
@click.argument("topic")
@json_option
def list_subscriptions(topic: str, as_json: bool) -> None:
    """List TOPIC's subscriptions, partition by partition."""
    from magnetar.cli.output import print_json, print_table
    from magnetar.cli.session import with_client
    from magnetar.cli.topics import SUBSCRIPTION_COLUMNS, subscription_rows

    found = with_client(lambda client: client.describe_topic(topic))
    if as_json:
        print_json(
            [
                {"partition": partition.partition, "subscription": one}
                for partition in found.partitions
                for one in partition.subscriptions
            ]
        )
        return
    print_table(
        SUBSCRIPTION_COLUMNS,
        subscription_rows(found.partitions),
        empty=f"no subscriptions; make one: magnetar consume {topic} --subscription NAME",
    )


@subscriptions.command()
@click.argument("topic")
@click.argument("subscription")
@click.option("--force", is_flag=True, help="Abort the transactions with acks pending there first.")
def delete(topic: str, subscription: str, force: bool) -> None:
    """Delete SUBSCRIPTION of TOPIC."""
    from magnetar.cli.session import with_client

    with_client(lambda client: client.unsubscribe(topic, subscription, force=force))
    print(f"deleted {subscription} of {topic}")


@subscriptions.command()
@click.argument("topic")
@click.argument("subscription")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, or a time as 2026-01-31T12:00:00 (local, or with a zone).",
)
@click.option("--partition", type=click.IntRange(0), help="Only this one; needed with an offset.")
@click.option("--force", is_flag=True, help="Abort the transactions with acks pending there first.")
def seek(topic: str, subscription: str, target: str, partition: int | None, force: bool) -> None:
    """Move SUBSCRIPTION of TOPIC."""
    from magnetar import InitialPosition
    from magnetar.cli.session import with_client

    position = append_time_ms = offset = None
    if target in ("earliest", "latest"):
        position = InitialPosition.of(target)
    elif re.fullmatch(r"\d+", target):
        offset = int(target)
        if partition is None:
            raise click.UsageError("each partition counts its own offsets; add --partition N")
    else:
        append_time_ms = _time_ms(target)

    async def work(client: Client) -> None:
        await client.seek(
            topic,
            subscription,
            position=position,
            offset=offset,
            append_time_ms=append_time_ms,
            partition=partition,
            force=force,
        )

    with_client(work)
    print(f"moved {subscription} of {topic} to {target}")


def _time_ms(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset nor a time as 2026-01-31T12:00:00"
        ) from None
