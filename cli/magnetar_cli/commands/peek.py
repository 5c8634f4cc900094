"""`magnetar peek`: prints the messages of open transactions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from magnetar_cli.output import text_or_base64
from magnetar_cli.types import TxnIdType

if TYPE_CHECKING:
    from magnetar import UncommittedMessage


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True)
@click.option("--txn", "txn_id", metavar="TXNID", type=TxnIdType(), help="Only this transaction.")
@click.option("--skip", type=click.IntRange(0), default=0, help="How many to skip.")
@click.option("--count", type=click.IntRange(1, 1_000), default=100, show_default=True)
def peek(topic: str, partition: int, txn_id: str | None, skip: int, count: int) -> None:
    """Print uncommitted messages of TOPIC, for debugging.

    Each message is a line of JSON. Uncommitted messages have no offset yet, and disappear when
    their transaction aborts.
    """
    from magnetar_cli.session import with_client
    from magnetar_core.ids import TxnID

    wanted = TxnID.parse(txn_id) if txn_id is not None else None
    found = with_client(
        lambda client: client.admin.topics.peek_uncommitted(
            topic, partition, wanted, skip=skip, messages_max=count
        )
    )
    for message in found:
        print(json.dumps(_facts(message)))
    if not found:
        click.echo(f"no open transaction has written to {topic}, partition {partition}", err=True)


def _facts(message: UncommittedMessage) -> dict[str, object]:
    facts: dict[str, object] = {"txn_id": str(message.txn_id)}
    if message.event_time_ms is not None:
        facts["event_time_ms"] = message.event_time_ms
    if message.properties:
        facts["properties"] = dict(message.properties)
    if message.key is not None:
        facts |= text_or_base64("key", message.key)
    return facts | text_or_base64("value", message.value)
