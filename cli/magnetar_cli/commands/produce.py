"""`magnetar produce`: sends the lines of a file or of standard input as messages."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar import Client, Producer, Transaction

READ_BYTES_MAX = 1 << 20
# The coordinator's own limit: one transaction for a whole input may take its time.
TXN_TIMEOUT_S = 15 * 60.0


@click.command()
@click.argument("topic")
@click.option(
    "--file",
    type=click.File("rb"),
    default="-",
    help="The file to send.  [default: standard input]",
)
@click.option(
    "--key-separator", metavar="TEXT", help="The text between key and value in each line."
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
    """
    from magnetar_cli.session import with_client

    separator = options["key_separator"]
    if separator == "":
        raise click.UsageError("--key-separator is empty; give it a text, as ':'")
    if options["messages_per_transaction"] and not options["transactional"]:
        raise click.UsageError("--messages-per-transaction needs --transactional")
    lines = LineReader(file, separator.encode() if separator else None)

    async def work(client: Client) -> None:
        if not options["no_create"]:
            await _create_if_absent(client, topic, options["partitions"])
        await _produce(client, topic, lines, options)

    with_client(work)


class LineReader:
    """Reads the lines that have arrived, without waiting for more."""

    def __init__(self, file: BinaryIO, separator: bytes | None) -> None:
        self._file = file
        self._separator = separator
        self._rest = b""
        self._line_count = 0
        self.ended = False

    def read(self) -> tuple[list[bytes], list[bytes] | None]:
        """Return values and, with a separator, keys. Blocks until there is a line or the end.

        Raises:
            click.ClickException: a line has no key.
        """
        lines: list[bytes] = []
        while not lines and not self.ended:
            read_some: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
            data = read_some(READ_BYTES_MAX)
            self.ended = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
        if self.ended and self._rest:
            lines.append(self._rest)
            self._rest = b""
        if self._separator is None:
            self._line_count += len(lines)
            return lines, None
        keys, values = [], []
        for line in lines:
            self._line_count += 1
            key, found, value = line.partition(self._separator)
            if not found:
                raise click.ClickException(
                    f"line {self._line_count} has no {self._separator.decode()!r}; "
                    "correct it, or name another --key-separator"
                )
            keys.append(key)
            values.append(value)
        return values, keys


async def _create_if_absent(client: Client, topic: str, partitions: int) -> None:
    from magnetar_core.errors import TopicExists

    try:
        await client.admin.topics.create(topic, partitions=partitions)
    except TopicExists:
        pass


async def _produce(client: Client, topic: str, lines: LineReader, options: dict[str, Any]) -> None:
    producer = await client.create_producer(
        topic, codec=options["codec"], batching=options["batching"], linger_ms=5
    )
    per_transaction: int | None = options["messages_per_transaction"]
    transactions = _Transactions(client, per_transaction) if options["transactional"] else None
    count = byte_count = 0
    started_s = time.monotonic()
    with _progress() as show:
        try:
            while not lines.ended:
                values, keys = await asyncio.to_thread(lines.read)
                if transactions is None:
                    await producer.send_many(values, keys)
                else:
                    await transactions.send(producer, values, keys)
                count += len(values)
                byte_count += sum(map(len, values))
                show(count)
            await producer.flush()
            if transactions is not None:
                await transactions.commit()
        except BaseException:
            if transactions is not None:
                await transactions.abort()
            raise
    elapsed_s = max(time.monotonic() - started_s, 1e-9)
    text = f"{count:,} messages, {byte_count / 1e6:,.1f} MB in {elapsed_s:,.2f} s"
    text += f": {count / elapsed_s:,.0f} messages/s"
    if transactions is not None:
        text += f", {transactions.count:,} transaction{'s' * (transactions.count != 1)}"
    print(text, file=sys.stderr)


class _Transactions:
    """Consecutive transactions; each takes a number of messages, or all."""

    def __init__(self, client: Client, messages_max: int | None) -> None:
        self._client = client
        self._messages_max = messages_max
        self._current: Transaction | None = None
        self._room = 0
        self.count = 0

    async def send(self, producer: Producer, values: list[bytes], keys: list[bytes] | None) -> None:
        at = 0
        while at < len(values):
            if self._current is None:
                self._current = await self._client.begin_transaction(timeout_s=TXN_TIMEOUT_S)
                self._room = self._messages_max or sys.maxsize
            end = min(len(values), at + self._room)
            await producer.send_many(
                values[at:end], None if keys is None else keys[at:end], txn=self._current
            )
            self._room -= end - at
            at = end
            if self._room == 0:
                await self.commit()

    async def commit(self) -> None:
        """Commit the open transaction; its messages are visible when this returns."""
        if self._current is not None:
            await self._current.commit(wait_finished=True)
            self._current = None
            self.count += 1

    async def abort(self) -> None:
        if self._current is not None:
            transaction, self._current = self._current, None
            await transaction.abort()


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
