"""`magnetar peek`: prints the messages of open transactions."""

from __future__ import annotations

import json

import click

from magnetar_cli.message_lines import content_of
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import TxnIdType


@click.command()
@click.argument("topic", type=TopicName())
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True)
@click.option("--txn", "txn_id", metavar="TXNID", type=TxnIdType(), help="Only this transaction.")
@click.option("--skip", type=click.IntRange(0), default=0, help="How many messages to skip.")
@click.option("--count", type=click.IntRange(1, 1_000), default=100, show_default=True)
def peek(topic: str, partition: int, txn_id: str | None, skip: int, count: int) -> None:
    """Print uncommitted messages of TOPIC, for debugging.

    Each message is a line of JSON. Uncommitted messages have no offset yet, and disappear when
    their transaction aborts.
    """
    from magnetar_cli.with_client import with_client
    from magnetar_core.ids import TxnID

    wanted = TxnID.parse(txn_id) if txn_id is not None else None
    found = with_client(
        lambda client: client.admin.topics.peek_uncommitted(
            topic, partition, wanted, skip=skip, messages_max=count
        )
    )
    for message in found:
        print(json.dumps({"txn_id": str(message.txn_id)} | content_of(message)))
    if not found:
        click.echo(f"no open transaction has written to {topic}, partition {partition}", err=True)
