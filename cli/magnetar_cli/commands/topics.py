"""`magnetar topics`: create, list, describe, delete, offsets, skip-damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from magnetar_cli.confirmation import confirm, dry_run_option, yes_option
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import Duration, Size, Time, json_option, watch_option

if TYPE_CHECKING:
    from magnetar import Client, TopicDescription


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--retention",
    type=Duration(),
    default=0,
    help="How long to keep messages, such as 7d.  [default: for ever]",
)
@click.option(
    "--retention-bytes",
    type=Size(),
    default=0,
    help="How much to keep in each partition, such as 10GiB.",
)
@click.option(
    "--drop-unconsumed",
    is_flag=True,
    help="Let retention remove messages that are not acknowledged.",
)
@click.option(
    "--exist-ok",
    is_flag=True,
    help="Succeed if TOPIC exists with these partitions and settings.",
)
def create(
    topic: str,
    partitions: int,
    retention: int,
    retention_bytes: int,
    drop_unconsumed: bool,
    exist_ok: bool,
) -> None:
    """Create TOPIC, with partitions and a retention."""
    from magnetar_cli.with_client import with_client

    async def work(client: Client) -> int:
        return await client.admin.topics.create(
            topic,
            partitions=partitions,
            retention_ms=retention,
            retention_bytes=retention_bytes,
            retain_unconsumed=not drop_unconsumed,
            exist_ok=exist_ok,
        )

    topic_id = with_client(work)
    outcome = f"{topic} exists" if exist_ok else f"created {topic}"
    print(f"{outcome}: {partitions} partition{'s' * (partitions > 1)}, id {topic_id}")


@topics.command(name="list")
@watch_option
@json_option
def list_topics(watch: bool, as_json: bool) -> None:
    """List all topics."""
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.watching import watched
    from magnetar_cli.with_client import with_client

    def show() -> None:
        found = sorted(
            with_client(lambda client: client.admin.topics.list()), key=lambda one: one.topic
        )
        if as_json:
            print_json(found)
            return
        print_table(
            ("TOPIC", "ID", "PARTITIONS"),
            [(one.topic, one.topic_id, one.partitions) for one in found],
            empty="no topics; create one: magnetar topics create NAME",
        )

    watched(show) if watch else show()


@topics.command()
@click.argument("topic", type=TopicName())
@watch_option
@json_option
def describe(topic: str, watch: bool, as_json: bool) -> None:
    """Show the partitions and subscriptions of TOPIC, and which broker keeps each partition."""
    from magnetar_cli.output import print_json
    from magnetar_cli.watching import watched
    from magnetar_cli.with_client import with_client

    def show() -> None:
        found = with_client(lambda client: client.admin.topics.describe(topic))
        print_json(found) if as_json else _show(found)

    watched(show) if watch else show()


def _show(found: TopicDescription) -> None:
    from magnetar_cli.output import duration, print_facts, print_table, some

    print_facts(
        (
            ("topic", found.topic),
            ("id", found.topic_id),
            ("retention", duration(found.retention_ms) if found.retention_ms else "for ever"),
            ("retention bytes", found.retention_bytes or "without limit"),
            ("unconsumed", "kept" if found.retain_unconsumed else "removed too"),
        )
    )
    print()
    print_table(
        ("PARTITION", "BROKER", "LEDGER", "FIRST", "END", "OPEN TRANSACTIONS"),
        [
            (
                one.partition,
                one.broker_name,
                one.ledger_id,
                one.first_offset,
                one.end_offset,
                some(one.open_txns, one.open_txn_count),
            )
            for one in found.partitions
        ],
        empty="no partitions",
    )
    rows = subscription_rows(found.partitions)
    if rows:
        print()
        print_table(SUBSCRIPTION_COLUMNS, rows, empty="")


@topics.command()
@click.argument("topic", type=TopicName())
@click.option("--at", type=Time(), help="Also show the first offset stored at this time or later.")
@json_option
def offsets(topic: str, at: int | None, as_json: bool) -> None:
    """Show the first and last offsets of TOPIC."""
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.with_client import with_client

    found = with_client(lambda client: client.admin.topics.list_offsets(topic, append_time_ms=at))
    if as_json:
        print_json(found)
        return
    rows = [
        (one.partition, one.ledger_id, one.first_offset, one.end_offset, one.time_offset)
        for one in found.partitions
    ]
    columns = ("PARTITION", "LEDGER", "FIRST", "END", "AT THAT TIME")
    shown = len(columns) if at is not None else -1
    print_table(columns[:shown], [row[:shown] for row in rows], empty="no partitions")


@topics.command()
@click.argument("topic", type=TopicName())
@click.option("--force", is_flag=True, help="First abort transactions that are open there.")
@dry_run_option
@yes_option
def delete(topic: str, force: bool, dry_run: bool, yes: bool) -> None:
    """Delete TOPIC, its messages and its subscriptions."""
    from magnetar_cli.with_client import with_client

    if dry_run:
        _show(with_client(lambda client: client.admin.topics.describe(topic)))
        click.echo("nothing was deleted: leave out --dry-run to delete it", err=True)
        return
    confirm(f"Delete {topic}, its messages and its subscriptions?", yes=yes)
    with_client(lambda client: client.admin.topics.delete(topic, force=force))
    print(f"deleted {topic}")


class LostOffsets(NamedTuple):
    """Offsets of a partition that cannot be read, the last one included."""

    partition: int
    first: int
    last: int


@topics.command(name="skip-damaged")
@click.argument("topic", type=TopicName())
@click.option("--partition", type=click.IntRange(0), help="Only this partition.  [default: all]")
@click.option("--dry-run", is_flag=True, help="Print what is damaged, and change nothing.")
@yes_option
@json_option
def skip_damaged(
    topic: str, partition: int | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Skip the messages of TOPIC that cannot be read.

    The command reads the whole topic. Damaged messages are lost: readers no longer get DataLoss
    there, but the messages behind them, and subscriptions count them as acknowledged.
    """
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.with_client import with_client

    async def work(client: Client) -> list[LostOffsets]:
        numbers: Sequence[int] = (partition,) if partition is not None else ()
        if partition is None:
            # All brokers have to answer before anything is changed.
            offsets = await client.admin.topics.list_offsets(topic)
            numbers = [one.partition for one in offsets.partitions]
        return [
            LostOffsets(number, first, last)
            for number in numbers
            for first, last in await client.admin.topics.skip_damaged(
                topic, number, dry_run=dry_run
            )
        ]

    if not dry_run:
        confirm(f"Give up all messages of {topic} that cannot be read?", yes=yes)
    lost = with_client(work)
    if as_json:
        print_json(lost)
        return
    print_table(("PARTITION", "FIRST LOST", "LAST LOST"), lost, empty="everything can be read")


SUBSCRIPTION_COLUMNS = (
    "SUBSCRIPTION",
    "PARTITION",
    "MARK DELETE",
    "BACKLOG",
    "UNACKED",
    "PENDING",
    "CONSUMERS",
)


def subscription_rows(partitions: Any) -> list[tuple[object, ...]]:
    """Return the rows of a topic's subscriptions, by name and partition."""
    return sorted(
        (
            one.subscription,
            partition.partition,
            one.mark_delete_offset,
            one.backlog,
            one.unacked_count,
            one.pending_ack_count,
            one.consumers,
        )
        for partition in partitions
        for one in partition.subscriptions
    )
