"""`magnetar groups`: list, describe, reset-offsets, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from magnetar_cli.confirmation import confirm, dry_run_option, yes_option
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import json_option, watch_option

if TYPE_CHECKING:
    from magnetar import GroupDescription


@click.group()
def groups() -> None:
    """List, describe, move and delete consumer groups."""


@groups.command(name="list")
@watch_option
@json_option
def list_groups(watch: bool, as_json: bool) -> None:
    """List all groups."""
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.watching import watched
    from magnetar_cli.with_client import with_client

    def show() -> None:
        found = with_client(lambda client: client.admin.groups.list())
        if as_json:
            print_json(found)
            return
        print_table(
            ("GROUP", "STATE", "GENERATION", "MEMBERS", "PARTITIONS", "LAG"),
            [
                (one.group, one.state.name, one.generation, one.members, one.partitions, one.lag)
                for one in found
            ],
            empty="no groups; client.consumer_group() makes one",
        )

    watched(show) if watch else show()


@groups.command()
@click.argument("group")
@watch_option
@json_option
def describe(group: str, watch: bool, as_json: bool) -> None:
    """Show the members, partitions and lag of GROUP."""
    from magnetar_cli.output import print_json
    from magnetar_cli.watching import watched
    from magnetar_cli.with_client import with_client

    def show() -> None:
        found = with_client(lambda client: client.admin.groups.describe(group))
        print_json(found) if as_json else _show(found)

    watched(show) if watch else show()


def _show(found: GroupDescription) -> None:
    from magnetar_cli.output import duration, print_facts, print_table, some

    summary = found.summary
    facts = [
        ("group", summary.group),
        ("state", summary.state.name),
        ("generation", summary.generation),
        ("lag", summary.lag),
    ]
    if found.allow_two_phase_commit:
        facts.append(("two-phase commit", "allowed"))
    print_facts(facts)
    print()
    print_table(
        ("MEMBER", "INSTANCE", "CLIENT", "PARTITIONS", "LAG", "SILENT", "SESSION"),
        [
            (
                *(one.member_id, one.instance_id, one.client_name, one.partitions, one.lag),
                *(duration(one.silent_ms), duration(one.session_timeout_ms)),
            )
            for one in found.members
        ],
        empty="no members; its cursors stay where they are",
    )
    print()
    print_table(
        (
            *("TOPIC", "PARTITION", "OWNER", "SINCE", "NEXT", "ACKED-TO", "END", "LAG"),
            *("PENDING", "WAITS-FOR"),
        ),
        [
            (
                *(one.topic, one.partition, one.member_id, one.generation, one.next_member_id),
                *(one.mark_delete_offset, one.end_offset, one.lag, one.pending_ack_count),
                some(one.awaited_txns, len(one.awaited_txns)),
            )
            for one in found.partitions
        ],
        empty="no partitions: no topic of its members exists",
    )


@groups.command()
@click.argument("group")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, or a time such as 2026-01-31T12:00:00 (local time).",
)
@click.option("--topic", type=TopicName(), help="Only this topic.")
@click.option(
    "--partition", type=click.IntRange(0), help="Only this partition; needed with an offset."
)
@click.option("--dry-run", is_flag=True, help="Print what would move, and move nothing.")
@yes_option
@json_option
def reset_offsets(
    group: str,
    target: str,
    topic: str | None,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move the cursors of GROUP, while it has no members."""
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.types import place_of
    from magnetar_cli.with_client import with_client

    place = place_of(target)
    if place.offset is not None and (topic is None or partition is None):
        raise click.UsageError("an offset belongs to a partition; add --topic NAME --partition N")
    if not dry_run:
        confirm(f"Move the cursors of {group}, and forget what it has acknowledged?", yes=yes)
    resets = with_client(
        lambda client: client.admin.groups.reset_offsets(
            group,
            offset=place.offset,
            append_time_ms=place.append_time_ms,
            position=place.position,
            topic=topic,
            partition=partition,
            dry_run=dry_run,
        )
    )
    if as_json:
        print_json(resets)
        return
    print_table(("TOPIC", "PARTITION", "ACKED-TO", "NEW"), resets, empty="nothing to move")
    if dry_run:
        click.echo("nothing was moved: leave out --dry-run to move them", err=True)


@groups.command()
@click.argument("group")
@dry_run_option
@yes_option
def delete(group: str, dry_run: bool, yes: bool) -> None:
    """Delete GROUP and its cursors, while it has no members."""
    from magnetar_cli.with_client import with_client

    if dry_run:
        _show(with_client(lambda client: client.admin.groups.describe(group)))
        click.echo("nothing was deleted: leave out --dry-run to delete it", err=True)
        return
    confirm(f"Delete group {group} and its cursors?", yes=yes)
    with_client(lambda client: client.admin.groups.delete(group))
    print(f"deleted group {group}")
