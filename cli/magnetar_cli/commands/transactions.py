"""`magnetar transactions`: find and end transactions by hand (KIP-664)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from magnetar_cli.confirmation import confirm, yes_option
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import Duration, TxnIdType, json_option, watch_option

if TYPE_CHECKING:
    from magnetar import ParticipantHistory, TransactionDescription, TransactionHistory
    from magnetar_core.errors import MagnetarError
    from magnetar_core.ids import TxnID

# The exit status of find-hanging when it finds something: neither success nor failure.
HANGING_STATUS = 3
# How many topics or subscriptions a row of the list names.
NAMES_SHOWN_MAX = 3
STATUSES = click.Choice(
    ["open", "committing", "aborting", "committed", "aborted"], case_sensitive=False
)


@click.group()
def transactions() -> None:
    """List, describe and end transactions and transactional ids."""


@transactions.command(name="list")
@click.option(
    "--status",
    "statuses",
    type=STATUSES,
    multiple=True,
    help="Only this status.  [default: all that have not ended]",
)
@click.option("--all", "all_statuses", is_flag=True, help="Also transactions that have ended.")
@click.option(
    "--min-age", type=Duration(), default=0, help="Only transactions older than this, such as 10m."
)
@click.option(
    "--id", "pattern", default="", help="Only transactional ids that match, such as app-*."
)
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True, help="Only this producer id."
)
@click.option(
    "--coordinator", "tcid", type=click.IntRange(0), help="Only this coordinator's, by its TCID."
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="How many transactions to show at most.",
)
@watch_option
@json_option
def list_transactions(
    statuses: tuple[str, ...],
    all_statuses: bool,
    min_age: int,
    pattern: str,
    producer_ids: tuple[int, ...],
    tcid: int | None,
    limit: int,
    watch: bool,
    as_json: bool,
) -> None:
    """List transactions that have not ended, the oldest first.

    With --all, those that have ended follow, the latest first; their age is the time since their
    end. Coordinators remember them for a while.

    If a coordinator does not answer, the command names it and shows the transactions of the others.
    The exit status is then 1.
    """
    from magnetar import TransactionStatus
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.watching import watched
    from magnetar_cli.with_client import with_client

    if all_statuses and statuses:
        raise click.UsageError("--all shows every status; leave out --status")
    wanted = [TransactionStatus[one.upper()] for one in statuses]
    if all_statuses:
        wanted = list(TransactionStatus)
    empty = "no such transactions"
    if not wanted:
        empty = "no transactions but those that have ended, which --all shows"
    unanswered: dict[int, MagnetarError] = {}
    truncated: list[int] = []

    def show() -> None:
        unanswered.clear()
        truncated.clear()
        found = with_client(
            lambda client: client.admin.transactions.list(
                wanted,
                age_ms_min=min_age,
                transactional_id_pattern=pattern,
                producer_ids=producer_ids,
                tcid=tcid,
                limit=limit,
                on_unanswered=unanswered.__setitem__,
                on_truncated=truncated.append,
            )
        )
        for missing, error in sorted(unanswered.items()):
            click.echo(
                f"Warning: coordinator {missing} does not answer, so its transactions are missing:"
                f" {error}",
                err=True,
            )
        if truncated:
            click.echo(
                f"Warning: there are more than these {len(found):,} transactions: raise --limit, or"
                " narrow the search",
                err=True,
            )
        if as_json:
            print_json(found)
            return
        columns, rows = _informative(LIST_COLUMNS, [_row(one) for one in found])
        print_table(columns, rows, empty=empty, folds=True)

    watched(show) if watch else show()
    if unanswered:
        raise SystemExit(1)


LIST_COLUMNS = (
    *("TXNID", "STATE", "AGE", "DEADLINE", "TWO-PHASE", "CLIENT", "PRINCIPAL"),
    *("TRANSACTIONALID", "PRODUCERID", "PARTITIONS", "SUBSCRIPTIONS", "UNFINISHED"),
)
# Columns that the list has whatever they say.
COLUMNS_SHOWN_MIN = 4


def _row(one: TransactionDescription) -> tuple[object, ...]:
    from magnetar_cli.commands.transaction_timeline import deadline_of, whose_of
    from magnetar_cli.output import duration

    identity = one.identity
    return (
        one.txn_id,
        one.status.name,
        duration(one.age_ms),
        deadline_of(one),
        "may be prepared" if one.may_be_prepared else "yes" if one.two_phase_commit else "-",
        whose_of(one.client) if one.client else "-",
        one.principal or "-",
        identity.transactional_id if identity else "-",
        identity.producer_id if identity else "-",
        _counted(name.topic for name in one.partitions),
        _counted(f"{name.topic}/{name.subscription}" for name in one.subscriptions),
        len(one.unfinished) or "-",
    )


def _informative(
    columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Return a table without the columns in which no row has anything, for narrow terminals."""
    told = [
        place
        for place in range(len(columns))
        if place < COLUMNS_SHOWN_MIN or any(row[place] != "-" for row in rows)
    ]
    return [columns[place] for place in told], [[row[place] for place in told] for row in rows]


def _counted(names: Iterable[str]) -> str:
    """Return each name with how often it is there, such as 'orders x3, payments'."""
    counts = Counter(names)
    shown = [f"{name} x{count}" if count > 1 else name for name, count in counts.items()]
    if len(shown) > NAMES_SHOWN_MAX:
        shown[NAMES_SHOWN_MAX:] = [f"{len(shown) - NAMES_SHOWN_MAX} more"]
    return ", ".join(shown) or "-"


def _status(one: TransactionDescription) -> str:
    return one.status.name + (" (two-phase, may be prepared)" if one.may_be_prepared else "")


def _timeout(one: TransactionDescription) -> str:
    from magnetar_cli.output import duration

    if one.details_missing:
        return "-"
    return "never" if one.two_phase_commit else duration(one.timeout_ms)


@transactions.command()
@click.argument("txn_id", metavar="TXNID", type=TxnIdType(), required=False)
@click.option("--transactional-id", help="Show this transactional id and its transaction instead.")
@json_option
def describe(txn_id: str | None, transactional_id: str | None, as_json: bool) -> None:
    """Show a transaction, or a transactional id."""
    from magnetar_cli.output import print_json
    from magnetar_cli.with_client import with_client
    from magnetar_core.ids import TxnID

    if (txn_id is None) == (transactional_id is None):
        raise click.UsageError("give a TXNID, or a transactional id with --transactional-id")
    if transactional_id is not None:
        _describe_id(transactional_id, as_json)
        return
    assert txn_id is not None
    wanted = TxnID.parse(txn_id)
    found = with_client(lambda client: client.admin.transactions.describe(wanted))
    if as_json:
        print_json(found)
    else:
        _show(found)


def _describe_id(transactional_id: str, as_json: bool) -> None:
    from magnetar_cli.output import duration, print_facts, print_json
    from magnetar_cli.with_client import with_client

    found = with_client(lambda client: client.admin.transactional_ids.describe(transactional_id))
    if as_json:
        print_json(found)
        return
    print_facts(
        (
            ("transactional id", found.transactional_id),
            ("state", found.state.name),
            ("producer id, epoch", f"{found.producer_id}, {found.producer_epoch}"),
            ("previous producer id", found.prev_producer_id),
            ("next producer id, epoch", f"{found.next_producer_id}, {found.next_producer_epoch}"),
            ("timeout", "never" if found.two_phase_commit else duration(found.timeout_ms)),
            ("transaction", found.txn_id or "-"),
        )
    )
    if found.txn_id is not None and found.state.name in ("ONGOING", *_ENDING_STATES):
        wanted = found.txn_id
        print()
        _show(with_client(lambda client: client.admin.transactions.describe(wanted)))


_ENDING_STATES = ("PREPARE_COMMIT", "PREPARE_ABORT")


def _show(found: TransactionDescription) -> None:
    from magnetar_cli.commands.transaction_timeline import whose_of
    from magnetar_cli.output import duration, print_facts, print_table

    print_facts(
        (
            ("transaction", found.txn_id),
            ("status", _status(found)),
            ("opened", _local_moment(found.opened_at_ms)),
            ("ended", _local_moment(found.ended_at_ms)),
            ("since it ended" if found.ended_at_ms else "age", duration(found.age_ms)),
            ("timeout", _timeout(found)),
            ("client", whose_of(found.client) if found.client else "-"),
            ("principal", found.principal or "-"),
            ("transactional id", found.identity.transactional_id if found.identity else "-"),
            ("prepared state", found.prepared_state if found.may_be_prepared else "-"),
            ("stamp", found.stamp or "-"),
        )
    )
    unfinished = {
        (one.partition, one.subscription or ""): one.last_error or "under way"
        for one in found.unfinished
    }
    ending = found.status.name != "OPEN"
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
@json_option
def history(txn_id: str, as_json: bool) -> None:
    """Show what became of a transaction, moment by moment.

    MISSING lines say what has not happened, or is not known: brokers of participants are asked as
    well, and one may not answer. The exit status is then 1. Coordinators remember participants and
    times of the newest thousands that have ended, until they are started again.
    """
    from magnetar_cli.output import print_json
    from magnetar_cli.with_client import with_client
    from magnetar_core.ids import TxnID

    wanted = TxnID.parse(txn_id)
    found = with_client(lambda client: client.admin.transactions.history(wanted))
    if as_json:
        print_json(found)
    else:
        _show_history(found)
    if found.is_partial:
        raise SystemExit(1)


def _show_history(found: TransactionHistory) -> None:
    from magnetar_cli.commands.transaction_timeline import (
        MISSING,
        clock_of,
        missing,
        moments,
        name_of,
    )
    from magnetar_cli.output import duration, print_facts, print_table

    one = found.transaction
    facts: list[tuple[str, object]] = [
        ("transaction", one.txn_id),
        ("status", _status(one)),
        ("begun", _local_moment(one.opened_at_ms)),
        ("timeout", _timeout(one)),
    ]
    if one.principal:
        facts.append(("principal", one.principal))
    if one.identity is not None:
        facts.append(("transactional id", one.identity.transactional_id))
    if one.may_be_prepared:
        facts.append(("prepared state", one.prepared_state))
    if one.trace_id:
        facts.append(("trace", one.trace_id))
    print_facts(facts)
    print()
    began_ms = one.opened_at_ms
    rows = [
        (clock_of(at.time_ms), f"+{duration(max(0, at.time_ms - began_ms))}", at.text)
        for at in moments(found)
    ]
    rows += [(MISSING, "", text) for text in missing(found)]
    print_table(("TIME", "AFTER", "WHAT HAPPENED"), rows, empty="", folds=True)
    if found.participants:
        print()
        print_table(
            ("PARTICIPANT", "STATE THERE", "CONFIRMED", "FOUND", "BYTES"),
            [
                (
                    name_of(part),
                    "no answer" if part.unanswered else part.status.name if part.status else "-",
                    "-" if part.confirmed is None else part.confirmed,
                    _found(part.count, part) if part.status else "-",
                    _found(part.bytes, part) if part.bytes else "-",
                )
                for part in found.participants
            ],
            empty="",
            folds=True,
        )


def _found(count: int, part: ParticipantHistory) -> object:
    return f"over {count}" if part.counted_partly else count


def _local_moment(time_ms: int) -> str:
    if not time_ms:
        return "-"
    moment = datetime.fromtimestamp(time_ms / 1_000, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="seconds")


@transactions.command()
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
def commit(txn_id: str) -> None:
    """Commit a transaction by hand.

    The participants do not check the counts of its messages and acks. A transaction of a
    transactional id is refused: `complete` commits one that is prepared.
    """
    _end(txn_id, "COMMIT")


@transactions.command()
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
@click.option(
    "--topic",
    type=TopicName(),
    help="The topic where it hangs, with --partition and --start-offset.",
)
@click.option("--partition", type=click.IntRange(0))
@click.option("--subscription", default="", help="The subscription where its acks hang.")
@click.option("--start-offset", type=click.IntRange(0))
@click.option("--producer-epoch", type=int, default=-1, show_default=True)
@yes_option
def abort(
    txn_id: str,
    topic: str | None,
    partition: int | None,
    subscription: str,
    start_offset: int | None,
    producer_epoch: int,
    yes: bool,
) -> None:
    """Abort a transaction by hand.

    Its client gets an error for its next command. A hanging transaction is open at a partition and
    at no coordinator. To abort it there, give the topic, partition, start offset and epoch that
    find-hanging shows. The broker refuses unless all of them match.
    """
    place = (topic, partition, start_offset)
    question = f"Abort {txn_id}, and lose its messages and acks?"
    if all(one is None for one in place):
        confirm(question, yes=yes)
        _end(txn_id, "ABORT")
        return
    if topic is None or partition is None or start_offset is None:
        raise click.UsageError("--topic, --partition and --start-offset belong together")
    confirm(question, yes=yes)
    _abort_hanging(txn_id, topic, partition, subscription, start_offset, producer_epoch)


def _abort_hanging(
    txn_id: str,
    topic: str,
    partition: int,
    subscription: str,
    start_offset: int,
    producer_epoch: int,
) -> None:
    from magnetar import Client, ProducerDescription
    from magnetar_cli.with_client import with_client
    from magnetar_core.ids import PartitionName, TxnID

    async def work(client: Client) -> None:
        described = await client.admin.topics.describe(topic)
        hanging = ProducerDescription(
            PartitionName(topic, partition, described.topic_id),
            subscription,
            0,
            producer_epoch,
            0,
            0,
            TxnID.parse(txn_id),
            start_offset,
            0,
        )
        await client.admin.transactions.abort_hanging(hanging)

    with_client(work)
    where = f"{topic}-partition-{partition}" + (f"/{subscription}" if subscription else "")
    print(f"{txn_id} is aborted on {where}")


@transactions.command(name="describe-producers")
@click.argument("topic", type=TopicName())
@click.argument("partition", type=click.IntRange(0))
@json_option
def describe_producers(topic: str, partition: int, as_json: bool) -> None:
    """Show the producers that write to a partition.

    The command also shows the transactions that are open there and at its subscriptions.
    """
    from magnetar_cli.output import print_json, print_table
    from magnetar_cli.with_client import with_client

    found = with_client(
        lambda client: client.admin.transactions.describe_producers(topic, partition)
    )
    if as_json:
        print_json(found)
        return
    print_table(
        (
            *("PRODUCERID", "PRODUCEREPOCH", "LASTSEQUENCE", "LASTTIMESTAMP"),
            *("TXNID", "STARTOFFSET", "SUBSCRIPTION"),
        ),
        [
            (
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                _moment(one.last_time_ms),
                one.txn_id or "-",
                one.start_offset if one.txn_id else "-",
                one.subscription or "-",
            )
            for one in found
        ],
        empty="no producers and no open transactions",
    )


@transactions.command(name="find-hanging")
@click.option("--topic", type=TopicName())
@click.option("--partition", type=click.IntRange(0))
@click.option(
    "--max-transaction-timeout",
    type=Duration(),
    default=0,
    help="Only transactions that are open for longer, such as 15m.",
)
@json_option
def find_hanging(
    topic: str | None, partition: int | None, max_transaction_timeout: int, as_json: bool
) -> None:
    """Find transactions that no coordinator will end.

    They are open at a partition or subscription, and at no coordinator. A prepared transaction is
    not hanging. The exit status is 3 if the command finds any.
    """
    from magnetar_cli.output import duration, print_json, print_table
    from magnetar_cli.with_client import with_client
    from magnetar_core.clock import SystemClock

    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    found = with_client(
        lambda client: client.admin.transactions.find_hanging(
            topic, partition, age_ms_min=max_transaction_timeout
        )
    )
    if as_json:
        print_json(found)
    else:
        now_ms = SystemClock().wall_ms()
        print_table(
            (
                *("TOPIC", "PARTITION", "SUBSCRIPTION", "TXNID", "PRODUCERID", "PRODUCEREPOCH"),
                *("STARTOFFSET", "LASTTIMESTAMP", "DURATION", "REASON"),
            ),
            [
                (
                    one.producer.partition.topic,
                    one.producer.partition.partition,
                    one.producer.subscription or "-",
                    one.producer.txn_id,
                    one.producer.producer_id,
                    one.producer.producer_epoch,
                    one.producer.start_offset,
                    _moment(one.producer.last_time_ms),
                    duration(one.producer.open_ms(now_ms)),
                    one.reason,
                )
                for one in found
            ],
            empty="no hanging transactions",
        )
    if found:
        raise SystemExit(HANGING_STATUS)


@transactions.command()
@click.argument("transactional_id")
@click.option(
    "--state",
    "text",
    required=True,
    help="What the database's table magnetar_transaction_state has for the id, as it stands there.",
)
@yes_option
def complete(transactional_id: str, text: str, yes: bool) -> None:
    """Commit the prepared transaction that a database has committed.

    For a transactional id whose program never comes back, while its database names the transaction.
    The command commits this transaction only. It aborts nothing: any other state is refused. If the
    program still runs, it is fenced.
    """
    from magnetar import PreparedTxnState
    from magnetar_cli.with_client import with_client

    prepared = PreparedTxnState.parse(text.strip())
    opened = _open_transactions(transactional_id, prepared.txn_id)
    for one in opened:
        _show(one)
        print()
        if one.prepared_state == prepared:
            confirm(
                f"Commit {one.txn_id}? If the program of {transactional_id} still runs, it is"
                " fenced.",
                yes=yes,
            )
    did = with_client(
        lambda client: client.admin.transactional_ids.complete(transactional_id, prepared)
    )
    print(f"{prepared.txn_id} is committed" if did else f"{prepared.txn_id} was committed before")
    for one in opened:
        if one.prepared_state != prepared:
            print(f"{one.txn_id} is still open: the state does not name it")


@transactions.command(name="force-terminate")
@click.argument("transactional_id")
@click.option(
    "--abort-prepared",
    is_flag=True,
    help="Abort a transaction of two-phase commit, too. If its database has committed, it keeps the"
    " rows, and the messages are lost.",
)
@yes_option
def force_terminate(transactional_id: str, abort_prepared: bool, yes: bool) -> None:
    """Abort the open transaction of a transactional id, and fence its program.

    If the program lives and has gone on to its next transaction meanwhile, nothing is aborted.

    A transaction of two-phase commit may be prepared, and then the database decides: look into its
    table first. If the table names the transaction, use `complete`; if not, --abort-prepared.
    """
    from magnetar import InvalidTxnState
    from magnetar_cli.with_client import with_client

    found = with_client(lambda client: client.admin.transactional_ids.describe(transactional_id))
    opened = _open_transactions(transactional_id, found.txn_id)
    if not opened:
        raise InvalidTxnState(f"{transactional_id} has no open transaction: nothing was done")
    (one,) = opened
    _show(one)
    print()
    if abort_prepared or not one.may_be_prepared:  # Otherwise it is refused.
        loss = " If its database has committed, it keeps the rows, and the messages are lost."
        confirm(
            f"Fence the program of {transactional_id}, and abort {one.txn_id}?"
            f"{loss if one.may_be_prepared else ''}",
            yes=yes,
        )
    with_client(
        lambda client: client.admin.transactional_ids.force_terminate(
            transactional_id, one.txn_id, abort_prepared=abort_prepared
        )
    )
    print(f"{one.txn_id} is aborted, and the program of {transactional_id} is fenced")


def _open_transactions(transactional_id: str, txn_id: TxnID | None) -> list[TransactionDescription]:
    """Return the open transaction of a transactional id, if there is one.

    Args:
        txn_id: any transaction of the id: its coordinator is asked, and no other. None: all are.
    """
    from magnetar import TransactionStatus
    from magnetar_cli.with_client import with_client

    found = with_client(
        lambda client: client.admin.transactions.list(
            [TransactionStatus.OPEN],
            # It may match other ids, too.
            transactional_id_pattern=re.sub(r"[*?\[\]]", "?", transactional_id),
            tcid=None if txn_id is None else txn_id.tcid,
        )
    )
    return [
        one for one in found if one.identity and one.identity.transactional_id == transactional_id
    ]


@transactions.command(name="describe-name")
@click.argument("name")
@json_option
def describe_name(name: str, as_json: bool) -> None:
    """Show a named sequence, and its open transaction."""
    from magnetar_cli.output import print_facts, print_json
    from magnetar_cli.with_client import with_client

    found = with_client(lambda client: client.admin.named_sequences.describe(name))
    if as_json:
        print_json(found)
        return
    print_facts(
        (
            ("name", found.name),
            ("committed sequence", found.committed_sequence),
            ("its fingerprint", found.committed_fingerprint),
            ("open sequence", found.open_sequence),
            ("open transaction", found.open_txn_id),
        )
    )


@transactions.command(name="remove-name")
@click.argument("name")
@yes_option
def remove_name(name: str, yes: bool) -> None:
    """Remove a named sequence.

    The same numbers could then be committed again. Remove a name only when its work is over for
    ever.
    """
    from magnetar_cli.with_client import with_client

    confirm(f"Remove {name}? Its numbers could then be committed again.", yes=yes)
    with_client(lambda client: client.admin.named_sequences.remove(name))
    print(f"{name} is forgotten")


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(sep=" ", timespec="seconds")


@transactions.command(name="accept-loss")
@click.argument("txn_id", metavar="TXNID", type=TxnIdType())
@yes_option
def accept_loss(txn_id: str, yes: bool) -> None:
    """Finish a commit without the messages that were lost.

    A participant has lost them, and answers TxnIncomplete.
    """
    from magnetar_cli.with_client import with_client
    from magnetar_core.ids import TxnID

    confirm(f"Finish {txn_id} without the messages and acks that are lost?", yes=yes)
    with_client(lambda client: client.admin.transactions.accept_loss(TxnID.parse(txn_id)))
    print(f"{txn_id} goes on without what was lost")


def _end(txn_id: str, action_name: str) -> None:
    from magnetar import TransactionAction
    from magnetar_cli.with_client import with_client
    from magnetar_core.ids import TxnID

    action = TransactionAction[action_name]
    status = with_client(
        lambda client: client.admin.transactions.end(
            TxnID.parse(txn_id), action, wait_finished=True
        )
    )
    print(f"{txn_id} is {status.name}")
