"""`magnetar check`: the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from magnetar_cli.cluster.options import etcd_options
from magnetar_cli.types import json_option

if TYPE_CHECKING:
    from magnetar_cli.check.checking import CheckedStores, Report
    from magnetar_cli.check.history.judging import Report as HistoryReport


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="PLACE...")
@click.option(
    "--history",
    "of_histories",
    is_flag=True,
    help="Check histories that servers wrote with --history-dir, and not stores.",
)
@etcd_options
@json_option
def check(
    places: tuple[str, ...], of_histories: bool, etcd: str | None, cluster_id: str, as_json: bool
) -> None:
    """Check the stores of stopped servers, or the histories of servers, and change nothing.

    PLACE is the data directory of a broker or coordinator, a directory with several of them, or the
    address of a store (s3://BUCKET/PREFIX), as servers got it as --store. The command reads
    everything: checksums, logs, indexes, cursors, transactions, decisions. Given brokers and
    coordinators together, it compares them, too: what was decided must be true everywhere.

    A store in an object store is compared with its durable mark, which says whether its end is
    there. For servers with etcd the mark is in etcd: --etcd and --cluster-id say where.

    A directory whose server runs is refused. The exit status is 0 if everything is whole, and 16 if
    something is damaged or missing. docs/check.md says what each check means and what to do.

    With --history, PLACE is a file or a directory that servers got as --history-dir. Give those of
    all servers together. The command looks for an order of all events in which the protocol allows
    each. The exit status is 0 if there is one, 17 if servers did what the protocol forbids, 16 if
    lines are missing or damaged, and 18 if it could not decide. docs/histories.md explains it.
    """
    if of_histories:
        _check_histories(places, as_json)
    from magnetar_cli.check.checking import run_check
    from magnetar_cli.check.places import stores_at
    from magnetar_cli.errors import STATUS_OF_KIND
    from magnetar_cli.output import print_json
    from magnetar_cli.progress import RowsRead
    from magnetar_core.error_kinds import ErrorKind

    stores = list(dict.fromkeys(store for place in places for store in stores_at(place)))
    with RowsRead(shown=not as_json) as rows_read:
        report = run_check(stores, rows_read.show, etcd, cluster_id)
    if as_json:
        shown: CheckedStores = {
            "whole": not report.damage_count,
            "damage_count": report.damage_count,
            "stores": report.stores,
            "between": report.between,
            "missing": report.missing,
        }
        print_json(shown)
    else:
        _print(report)
    raise click.exceptions.Exit(STATUS_OF_KIND[ErrorKind.DATA_LOST] if report.damage_count else 0)


def _check_histories(places: tuple[str, ...], as_json: bool) -> NoReturn:
    from magnetar_cli.check.history.judging import STATUS_OF_VERDICT, judge
    from magnetar_cli.output import print_json

    report = judge(places)
    if as_json:
        print_json(report)
    else:
        _print_history(report)
    raise click.exceptions.Exit(STATUS_OF_VERDICT[report.verdict])


def _print_history(report: HistoryReport) -> None:
    from magnetar_cli.check.history.judging import SENTENCE_OF_VERDICT
    from magnetar_cli.output import print_table

    print_table(
        ("SERVER", "NAME", "LIVES", "EVENTS", "JUDGED", "DAMAGE"),
        [
            (
                *(one.server, one.name or "unknown", len(one.lives)),
                *(one.event_count, one.judged_count, one.damage_count),
            )
            for one in report.servers
        ],
        empty="nothing was checked",
    )
    for one in report.servers:
        for damage in one.damages:
            click.echo(f"damaged: {damage.file}:{damage.line}: {damage.text}")
        if one.damage_count > len(one.damages):
            click.echo(f"and {one.damage_count - len(one.damages):,} more damages of {one.server}")
    for text in report.missing:
        click.echo(f"no lines: {text}")
    for text in report.unjudged:
        click.echo(f"not judged: {text}")
    if report.refused:
        _print_refusal(report)
    click.echo()
    click.echo(SENTENCE_OF_VERDICT[report.verdict])


def _print_refusal(report: HistoryReport) -> None:
    blamed, *others = report.refused
    click.echo()
    click.echo(f"{blamed.at.server}, life {blamed.at.life}, line {blamed.at.line} comes next:")
    click.echo(f"  {blamed.at.event}")
    click.echo(f"  {blamed.rule}: {blamed.text}")
    for line in report.before:
        click.echo(f"before: {line.server}, life {line.life}, line {line.line}: {line.event}")
    for one in others:
        click.echo(f"waits: {one.at.server}, life {one.at.life}, line {one.at.line}: {one.text}")


def _print(report: Report) -> None:
    from magnetar_cli.output import print_table

    print_table(
        ("STORE", "SERVER", "ROWS", "DAMAGE"),
        [
            (store.place, store.server or "unknown", store.row_count, store.damage_count)
            for store in report.stores
        ],
        empty="nothing was checked",
    )
    found = [
        ("damage" if finding.is_damage else "note", server, finding)
        for server, findings in (
            *((store.server or store.place, store.findings) for store in report.stores),
            ("all", report.between),
        )
        for finding in findings
    ]
    if found:
        click.echo()
        print_table(
            ("FOUND", "SERVER", "CHECK", "WHERE", "WHAT"),
            [(kind, server, one.check, one.where, one.text) for kind, server, one in found],
            empty="",
        )
    shown = sum(kind == "damage" for kind, _, _ in found)
    if report.damage_count > shown:
        click.echo(f"and {report.damage_count - shown:,} more of the same kinds")
    click.echo()
    for name in report.missing:
        click.echo(f"not compared with {name}: its store was not given")
    for one in report.stores:
        if one.may_have_owner:
            click.echo(
                f"{one.place}: its owner did not close it. If it is running, it may have written"
                " meanwhile: compare servers with each other only when all are stopped"
            )
    click.echo(
        f"{report.damage_count:,} places are damaged: see docs/check.md"
        if report.damage_count
        else "everything is whole"
    )
