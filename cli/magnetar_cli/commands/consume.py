"""`magnetar consume`: prints messages as lines on standard output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from magnetar_cli.commands.cut import token_of
from magnetar_cli.message_lines import encode_json, encode_values, encoder_of_keys
from magnetar_cli.standard_streams import STDOUT, write_all
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import Separator, message_format_option

if TYPE_CHECKING:
    from magnetar import Client, Consumer, MessageColumns

# With --until-end: nothing came for this long, so ask whether anything is left.
IDLE_S = 0.2
FOLLOW_PERIOD_S = 0.1

Encoder = Callable[["MessageColumns"], bytes]


@click.command()
@click.argument("topic", type=TopicName())
@click.option(
    "--subscription", "-s", help="Acknowledge on this subscription.  [default: only read]"
)
@click.option(
    "--type",
    "subscription_type",
    type=click.Choice(["exclusive", "shared", "failover", "key_shared"]),
    default="exclusive",
    show_default=True,
    help="How the consumers of the subscription share it.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where to begin without a subscription, or with a new subscription.",
)
@click.option("--count", type=click.IntRange(1), help="End after this number of messages.")
@click.option("--follow/--until-end", default=True, help="Wait for more, or end after the last.")
@message_format_option
@click.option(
    "--at",
    metavar="TOKEN",
    help="Print what a cut has, and end: the token of `magnetar cut`, or @FILE with it.",
)
@click.option(
    "--since", metavar="TOKEN", help="With --at: leave out what this earlier cut has, or @FILE."
)
@click.option(
    "--key-separator", type=Separator(), help=f"Print KEY, TEXT and VALUE. {Separator.HELP}"
)
def consume(topic: str, **options: Any) -> None:
    """Print the committed messages of TOPIC, line by line.

    magnetar consume numbers --until-end | wc -l
    """
    from magnetar_cli.with_client import with_client

    if options["at"] is None:
        if options["since"] is not None:
            raise click.UsageError("--since names an earlier cut: name the later one with --at")
    elif options["subscription"] is not None or options["start"] != "earliest":
        raise click.UsageError("--at reads a cut from its beginning, without a subscription")
    at, since = token_of(options["at"]), token_of(options["since"])

    separator: bytes | None = options["key_separator"]
    encode: Encoder = encode_values if separator is None else encoder_of_keys(separator)
    if options["message_format"] == "json":
        if separator is not None:
            raise click.UsageError("--key-separator is for --format value; JSON names the key")
        encode = encode_json
    limit = options["count"] or sys.maxsize

    async def work(client: Client) -> None:
        if at is not None:
            await _print(_columns_at(client, topic, at, since), limit, encode)
        elif options["subscription"] is None:
            source = _columns_of_all(client, topic, options["start"], options["follow"])
            await _print(source, limit, encode)
        else:
            await _receive(client, topic, options, limit, encode)

    with_client(work)


async def _receive(
    client: Client, topic: str, options: dict[str, Any], limit: int, encode: Encoder
) -> None:
    consumer = await client.subscribe(
        topic,
        options["subscription"],
        type=options["subscription_type"],
        initial_position=options["start"],
    )
    timeout_s = None if options["follow"] else IDLE_S
    while limit > 0:
        pieces = await consumer.receive_columns(min(limit, 10_000), timeout_s)
        for columns in pieces:
            await write_all(STDOUT, encode(columns))
            # Only now: messages that were not written are delivered to the next consumer.
            consumer.ack_nowait(columns)
            limit -= len(columns)
        if not pieces and await _nothing_left(client, consumer):
            break
    await consumer.flush_acks()


async def _nothing_left(client: Client, consumer: Consumer) -> bool:
    """Whether the subscription has no message to deliver now.

    Messages that are pending in a transaction belong to that transaction.
    """
    await consumer.flush_acks()
    description = await client.admin.topics.describe(consumer.topic)
    return all(
        one.backlog <= one.pending_ack_count
        for partition in description.partitions
        for one in partition.subscriptions
        if one.subscription == consumer.subscription
    )


async def _print(
    columns_of: AsyncGenerator[MessageColumns, None], limit: int, encode: Encoder
) -> None:
    from magnetar import MessageColumns

    async with aclosing(columns_of) as source:
        async for columns in source:
            stop = min(columns.stop, columns.start + limit)
            piece = MessageColumns(columns.batch, columns.start, stop)
            await write_all(STDOUT, encode(piece))
            limit -= len(piece)
            if limit == 0:
                return


async def _columns_of_all(
    client: Client, topic: str, start: str, follow: bool
) -> AsyncGenerator[MessageColumns, None]:
    """Yield the messages of all partitions at once, each partition in its order."""
    description = await client.admin.topics.describe(topic)
    sources = [
        client.read_columns(
            topic,
            one.partition,
            start=one.first_offset if start == "earliest" else one.end_offset,
            end=None if follow else one.end_offset,
            follow_period_s=FOLLOW_PERIOD_S if follow else None,
        )
        for one in description.partitions
    ]
    async with aclosing(_merged(sources)) as merged:
        async for columns in merged:
            yield columns


async def _columns_at(
    client: Client, topic: str, at: str, since: str | None
) -> AsyncGenerator[MessageColumns, None]:
    """Yield the messages of a cut in all partitions, each partition in its order."""
    from magnetar import Cut

    later, earlier = Cut.parse(at), None if since is None else Cut.parse(since)
    sources = [
        client.read_columns(topic, partition, at=later, since=earlier)
        for partition in range(later.partition_count(topic))
    ]
    async with aclosing(_merged(sources)) as merged:
        async for columns in merged:
            yield columns


async def _merged(
    sources: Sequence[AsyncGenerator[MessageColumns, None]],
) -> AsyncGenerator[MessageColumns, None]:
    """Yield the messages of several partitions as they come."""
    queue: asyncio.Queue[MessageColumns | BaseException | None] = asyncio.Queue(16)

    async def pump(source: AsyncGenerator[MessageColumns, None]) -> None:
        try:
            async for columns in source:
                await queue.put(columns)
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    pumps = [asyncio.ensure_future(pump(one)) for one in sources]
    running = len(pumps)
    try:
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
