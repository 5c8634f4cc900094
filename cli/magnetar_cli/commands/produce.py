"""`magnetar produce`: sends the lines of a file or of standard input as messages."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click

from magnetar_cli.message_lines import (
    JSON_EXPANSION_MAX,
    BadLine,
    Decoder,
    Lines,
    LineSplitter,
    decode_json,
    decode_values,
    decoder_of_keys,
)
from magnetar_cli.standard_streams import read_some
from magnetar_cli.topic_name import TopicName
from magnetar_cli.types import Separator, message_format_option

if TYPE_CHECKING:
    from magnetar import Client, Producer, Transaction

READ_BYTES_MAX = 1 << 20
# The coordinator's own limit: one transaction for a whole input may take its time.
TXN_TIMEOUT_S = 15 * 60.0
# After a failure or an interrupt, to end in order.
GIVE_UP_S = 5.0


@click.command()
@click.argument("topic", type=TopicName())
@click.option(
    "--file",
    type=click.File("rb"),
    default="-",
    help="The file to send.  [default: standard input]",
)
@message_format_option
@click.option(
    "--key-separator",
    type=Separator(),
    help=f"The text between key and value in each line. {Separator.HELP}",
)
@click.option("--codec", type=click.Choice(["none", "zstd", "lz4"]), default="none")
@click.option(
    "--batching",
    type=click.Choice(["mixed", "by_key"]),
    default="mixed",
    show_default=True,
    help="Whether a batch may have several keys; by_key suits key_shared consumers.",
)
@click.option("--transactional", is_flag=True, help="All lines become visible, or none.")
@click.option(
    "--messages-per-transaction",
    type=click.IntRange(1),
    help="How many lines a transaction has.  [default: all lines]",
)
@click.option(
    "--partitions", type=click.IntRange(1), default=1, help="How many partitions a new topic gets."
)
@click.option("--no-create", is_flag=True, help="Fail when the topic does not exist.")
def produce(topic: str, file: BinaryIO, **options: Any) -> None:
    """Send lines to TOPIC, which is created if needed.

    seq 1000 | magnetar produce numbers

    With --json, each line describes a message as `magnetar consume --json` prints it: value or
    value_base64, and if there are any key or key_base64, properties and event_time_ms. Fields that
    the log added, such as offsets, are ignored, and the key decides the partition anew.

    Ctrl-C ends the command after what was read is sent; a transaction is aborted. Ctrl-C again ends
    it at once.
    """
    from magnetar.config import ProducerConfig
    from magnetar_cli.with_client import with_client

    message_bytes_max = ProducerConfig().message_bytes_max
    separator: bytes | None = options["key_separator"]
    decode: Decoder = decode_values if separator is None else decoder_of_keys(separator)
    line_bytes_max = message_bytes_max + len(separator or b"")
    if options["message_format"] == "json":
        if separator is not None:
            raise click.UsageError("--key-separator is for --format value; JSON names the key")
        decode, line_bytes_max = decode_json, JSON_EXPANSION_MAX * message_bytes_max
    if options["messages_per_transaction"] and not options["transactional"]:
        raise click.UsageError("--messages-per-transaction needs --transactional")

    async def work(client: Client) -> None:
        if not options["no_create"]:
            await _create_if_absent(client, topic, options["partitions"])
        producer = await client.create_producer(
            topic, codec=options["codec"], batching=options["batching"], linger_ms=5
        )
        sends: _Sends = _PlainSends(producer)
        if options["transactional"]:
            sends = _TransactionalSends(producer, client, options["messages_per_transaction"])
        await _produce(file.fileno(), LineSplitter(line_bytes_max), decode, sends)

    with_client(work)


async def _create_if_absent(client: Client, topic: str, partitions: int) -> None:
    from magnetar_core.errors import TopicExists

    try:
        await client.admin.topics.create(topic, partitions=partitions)
    except TopicExists:
        pass


async def _produce(descriptor: int, splitter: LineSplitter, decode: Decoder, sends: _Sends) -> None:
    """Send the lines that can be read from a descriptor, and print their number and size.

    Raises:
        click.ClickException: a line is not a message.
    """
    number, byte_count, ended = 1, 0, False
    started_s = time.monotonic()
    with _progress() as show:
        try:
            while not ended:
                data = await read_some(descriptor, READ_BYTES_MAX)
                ended = not data
                some = splitter.split(data)
                lines = decode(some, number)
                await sends.send(lines)
                if lines.bad is not None:
                    raise lines.bad
                number += len(some)
                byte_count += lines.byte_count
                show(sends.count)
            await sends.finish()
        except BaseException as error:
            text = await sends.give_up()
            if isinstance(error, asyncio.CancelledError):
                text = f"interrupted: {text}"
                if splitter.rest_bytes:
                    text += f"; {splitter.rest_bytes:,} bytes without an end of line are not sent"
            click.echo(text, err=True)
            if isinstance(error, BadLine):
                raise click.ClickException(str(error)) from error
            raise
    elapsed_s = max(time.monotonic() - started_s, 1e-9)
    plural = "s" * (sends.count != 1)
    click.echo(
        f"{sends.count:,} message{plural}, {byte_count / 1e6:,.1f} MB in {elapsed_s:,.2f} s:"
        f" {sends.count / elapsed_s:,.0f} messages/s{sends.remark}",
        err=True,
    )


class _Sends(Protocol):
    """Sends messages, in transactions or outside.

    Attributes:
        count: messages that the producer has.
    """

    count: int

    @property
    def remark(self) -> str:
        """Further text for the line at the end."""
        ...

    async def send(self, lines: Lines) -> None:
        """Hand messages to the producer."""
        ...

    async def finish(self) -> None:
        """Wait until all messages are stored."""
        ...

    async def give_up(self) -> str:
        """Stop sending, after a failure or an interrupt. Returns what became of the messages."""
        ...


class _PlainSends:
    def __init__(self, producer: Producer) -> None:
        self.count = 0
        self.remark = ""
        self._producer = producer
        self._under_way = 0

    async def send(self, lines: Lines) -> None:
        self._under_way = len(lines)
        await lines.send(self._producer, None)
        self.count += self._under_way
        self._under_way = 0

    async def finish(self) -> None:
        await self._producer.flush()

    async def give_up(self) -> str:
        from magnetar_core.errors import MagnetarError

        every = self.count + self._under_way
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._producer.flush()
        except TimeoutError:
            return f"of {every:,} messages, the last may not be stored: the broker does not answer"
        except MagnetarError as error:
            return f"of {every:,} messages, not all are stored: {error}"
        text = f"{_messages(self.count)} sent"
        return text + (f", and some of the next {self._under_way:,}" if self._under_way else "")


class _TransactionalSends:
    """Sends in consecutive transactions; each takes a number of messages, or all."""

    def __init__(self, producer: Producer, client: Client, messages_max: int | None) -> None:
        self.count = 0
        self._producer = producer
        self._client = client
        self._messages_max = messages_max or sys.maxsize
        self._current: Transaction | None = None
        self._is_ending = False
        self._room = 0
        self._committed_count = 0
        self._transaction_count = 0

    @property
    def remark(self) -> str:
        return f", {self._transaction_count:,} transaction{'s' * (self._transaction_count != 1)}"

    async def send(self, lines: Lines) -> None:
        at = 0
        while at < len(lines):
            if self._current is None:
                self._current = await self._client.begin_transaction(timeout_s=TXN_TIMEOUT_S)
                self._room = self._messages_max
            end = min(len(lines), at + self._room)
            await lines.part(at, end).send(self._producer, self._current)
            self.count += end - at
            self._room -= end - at
            at = end
            if self._room == 0:
                await self.finish()

    async def finish(self) -> None:
        """Commit the open transaction; its messages are visible when this returns."""
        if self._current is not None:
            self._is_ending = True
            await self._current.commit(wait_finished=True)
            self._current, self._is_ending = None, False
            self._committed_count = self.count
            self._transaction_count += 1

    async def give_up(self) -> str:
        from magnetar_core.errors import MagnetarError

        text = ""
        if self._current is not None:
            text = f"; the transaction after them, {self._current.txn_id}, "
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    if self._is_ending:
                        # Asking once more tells the outcome.
                        await self.finish()
                        text = ""
                    else:
                        await self._current.abort()
                        text += "is aborted"
            except TimeoutError:
                text += "may be open until its time is up: the servers do not answer"
            except MagnetarError as error:
                text += f"did not end in order: {error}"
        return f"{_messages(self._committed_count)} committed{text}"


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show a count on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} messages"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.update(task, completed=count)
