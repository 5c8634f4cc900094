"""`magnetar transactions`: find and end transactions by hand (KIP-664)."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from magnetar.cli.types import Duration, TxnIdType, json_option

STATUSES = click.Choice(
    ["open", "committing", "aborting", "committed", "aborted"], case_sensitive=False
)


@click.group()
def transactions() -> None:
    """List, describe and end transactions."""


@transactions.command(name="list")
@click.option("--status", "statuses", type=STATUSES, multiple=True, help="Default: all live ones.")
@click.option("--min-age", type=Duration(), default=0, help="Only older ones, as 10m.")
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True)
@json_option
def list_transactions(statuses: tuple[str, ...], min_age: int, limit: int, as_json: bool) -> None:
    """List live transactions, the oldest first."""
    from magnetar import TransactionStatus
    from magnetar.cli.output import duration, print_json, print_table
    from magnetar.cli.session import with_client

    wanted = [TransactionStatus[one.upper()] for one in statuses]
    found = with_client(
        lambda client: client.list_transactions(wanted, age_ms_min=min_age, limit=limit)
    )
    found = sorted(found, key=lambda one: -one.age_ms)
    if as_json:
        print_json(found)
        return
    print_table(
        ("TXNID", "STATUS", "AGE", "TIMEOUT", "PARTITIONS", "SUBSCRIPTIONS", "UNFINISHED"),
        [
            (
                one.txn_id,
                one.status.name,
                duration(one.age_ms),
                duration(one.timeout_ms),
                len(one.partitions),
                len(one.subscriptions),
                len(one.unfinished),
            )
            for one in found
        ],
        empty="no such transactions",
    )


@transactions.command()
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
@json_option
def describe(txn_id: str, as_json: bool) -> None:
    """Show a transaction with its participants."""
    from magnetar.cli.output import duration, print_facts, print_json, print_table
    from magnetar.cli.session import with_client
    from magnetar_core.ids import TxnID

    found = with_client(lambda client: client.describe_transaction(TxnID.parse(txn_id)))
    if as_json:
        print_json(found)
        return
    opened = datetime.fromtimestamp(found.opened_at_ms / 1_000, UTC).astimezone()
    print_facts(
        (
            ("transaction", found.txn_id),
            ("status", found.status.name),
            ("opened", opened.isoformat(sep=" ", timespec="seconds")),
            ("age", duration(found.age_ms)),
            ("timeout", duration(found.timeout_ms)),
        )
    )
    unfinished = {
        (one.partition, one.subscription or ""): one.last_error or "under way"
        for one in found.unfinished
    }
    ending = found.status.name in ("COMMITTING", "ABORTING")
    rows = [
        (one.topic, one.partition, "", unfinished.get((one, ""), "ended" if ending else ""))
        for one in found.partitions
    ] + [
        (
            one.topic,
            one.partition,
            one.subscription,
            unfinished.get((one.partition_name, one.subscription), "ended" if ending else ""),
        )
        for one in found.subscriptions
    ]
    if rows:
        print()
        print_table(("TOPIC", "PARTITION", "SUBSCRIPTION", "END"), rows, empty="")


@transactions.command()
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
def commit(txn_id: str) -> None:
    """Commit a transaction by hand. What it confirmed is not checked."""
    _end(txn_id, "COMMIT")


@transactions.command()
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
def abort(txn_id: str) -> None:
    """Abort a transaction by hand. Its writer is told at its next command."""
    _end(txn_id, "ABORT")


@transactions.command(name="accept-loss")
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
def accept_loss(txn_id: str) -> None:
    """Let a commit go on without what a participant has lost (TxnIncomplete)."""
    from magnetar.cli.session import with_client
    from magnetar_core.ids import TxnID

    with_client(lambda client: client.accept_transaction_loss(TxnID.parse(txn_id)))
    print(f"{txn_id} goes on without what was lost")


def _end(txn_id: str, action_name: str) -> None:
    from magnetar import TransactionAction
    from magnetar.cli.session import with_client
    from magnetar_core.ids import TxnID

    action = TransactionAction[action_name]
    status = with_client(
        lambda client: client.end_transaction(TxnID.parse(txn_id), action, wait_finished=True)
    )
    print(f"{txn_id} is {status.name}")
