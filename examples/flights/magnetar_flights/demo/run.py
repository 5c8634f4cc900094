"""Runs the demo from beginning to end."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click

from magnetar import (
    Client,
    MagnetarError,
    PartitionName,
    SubscriptionName,
    TransactionDescription,
    TransactionStatus,
    TxnID,
    connect,
)
from magnetar_cli.link_options import new_transport
from magnetar_cli.pipeline.requirements import missing
from magnetar_flights.demo import verify
from magnetar_flights.demo.journal import Journal
from magnetar_flights.demo.killer import Kill, Killer
from magnetar_flights.demo.processes import Crew
from magnetar_flights.demo.report import Display, SparkTotals, Stage, Totals, print_report
from magnetar_flights.demo.servers import Cluster, Servers, Standalone
from magnetar_flights.demo.spark import WINDOWS, SparkPart
from magnetar_flights.demo.survey import Surveyor, check_cuts
from magnetar_flights.demo.verify import Check
from magnetar_flights.demo.watching import running_console
from magnetar_flights.demo.worker import CANCELLATIONS, DELAYS, INPUT, SUBSCRIPTION, Settings
from magnetar_flights.flights import Expected, as_messages, expected, expected_windows, read_lines

PARTITIONS = 4
TOPICS = {INPUT: PARTITIONS, DELAYS: PARTITIONS, CANCELLATIONS: 1, WINDOWS: PARTITIONS}
TRANSACTIONS_MIN = 1_000
FLIGHTS_PER_LOAD = 10_000
FLIGHTS_PER_TRANSACTION_MAX = 150
# A small input is worked off slowly, or it would be gone before the second kill.
PROCESS_S_MIN = 6.0
POLL_S = 0.2
STALL_S_MAX = 180.0
LIVE_STATUSES = (
    TransactionStatus.OPEN,
    TransactionStatus.COMMITTING,
    TransactionStatus.ABORTING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's options.

    Attributes:
        brokers: how many the demo starts.
        with_cluster: whether it starts servers whose shards change their owners.
        with_console: whether a console for browsers runs beside it.
        attached_to: a broker of the cluster to use; None: the demo starts servers.
        replace: whether to delete the topics of an earlier demo first.
        spark_master: where Spark runs; None: on this machine.
        directory: where the demo makes a directory; None: in the system's temporary directory.
        drawing: an SVG file for what the demo prints; None: no drawing.
    """

    flights: Path
    limit: int | None
    workers: int
    keep_data: bool
    seed: int
    with_spark: bool
    brokers: int = 1
    with_cluster: bool = False
    with_console: bool = False
    attached_to: str | None = None
    replace: bool = False
    spark_master: str | None = None
    directory: Path | None = None
    drawing: Path | None = None


async def run(options: Options) -> bool:
    """Run the demo, and return whether every check holds.

    Raises:
        click.ClickException: the demo failed.
        NotFlights: the file has something else.
    """
    _stop_on_sigterm()
    with (
        _directory(options.directory, options.keep_data) as directory,
        Display(is_drawn=options.drawing is not None) as display,
    ):
        display.say(f"seed {options.seed}; data and logs in {directory}")
        lines = await asyncio.to_thread(read_lines, options.flights, options.limit)
        async with (
            _running_servers(directory, options) as (servers, address),
            await connect(address, transport=new_transport()) as client,
            AsyncExitStack() as stack,
        ):
            which = f"{servers.title} serve" if servers else "using the cluster"
            display.say(f"{which} at {address}")
            if options.with_console:
                shown = await stack.enter_async_context(running_console(directory, address))
                display.say(f"to see it in a browser: {shown}")
            await _make_topics(client, options.replace)
            return await _Demo(options, display, directory, servers, address, client).run(lines)


class _Demo:
    def __init__(
        self,
        options: Options,
        display: Display,
        directory: Path,
        servers: Servers | None,
        address: str,
        client: Client,
    ) -> None:
        self._options = options
        self._display = display
        self._directory = directory
        self._servers = servers
        self._address = address
        self._client = client
        self._journal = Journal()
        self._kills: list[Kill] = []
        self._kill_count = 0
        self._surveyor = Surveyor(client, (DELAYS, CANCELLATIONS))

    async def run(self, lines: list[bytes]) -> bool:
        display = self._display
        count = len(lines)
        settings = self._settings(count)
        started_s = time.monotonic()
        with display.stage("Loading flights", count) as stage:
            load_txn_count = await self._load(lines, settings.messages_per_transaction, stage)
        load_s = time.monotonic() - started_s
        started_s = time.monotonic()
        with display.stage("Working, with kills", count) as stage:
            await self._work(settings, count, stage)
        process_s = time.monotonic() - started_s
        outcomes = await self._outcomes()
        committed = {txn_id for txn_id, done in outcomes.items() if done}
        async with self._spark_started(count) as spark:
            with display.stage("Comparing", count) as stage:
                direct = await asyncio.to_thread(
                    expected, self._options.flights, self._options.limit
                )
                checks, output_count = await self._checks(direct, committed, stage)
            with display.stage("Reading from cut to cut", output_count) as stage:
                checks.append(await self._check_cuts(committed, stage))
            if self._servers is not None:
                checks += await self._servers.checks()
            spark_checks, spark_totals = await self._spark(spark, count)
        entries = self._journal.entries
        killed = {kill.pid for kill in self._kills}
        aborted = outcomes.keys() - committed
        totals = Totals(
            flight_count=count,
            load_txn_count=load_txn_count,
            load_s=load_s,
            committed_count=len(committed),
            aborted_count=len(aborted),
            expired_count=sum(
                entries[one].undecided and entries[one].worker in killed for one in aborted
            ),
            output_count=output_count,
            process_s=process_s,
            spark=spark_totals,
            elapsed_s=display.elapsed_s,
        )
        display.stop()
        checks += spark_checks
        print_report(display.console, totals, self._kills, checks)
        if self._options.drawing is not None:
            display.draw(self._options.drawing)
        return all(check.holds for check in checks)

    def _settings(self, flight_count: int) -> Settings:
        per_transaction = flight_count // (TRANSACTIONS_MIN + TRANSACTIONS_MIN // 10)
        per_transaction = max(1, min(FLIGHTS_PER_TRANSACTION_MAX, per_transaction))
        each_ms = PROCESS_S_MIN * 1_000 * self._options.workers * per_transaction / flight_count
        return Settings(
            address=self._address,
            messages_per_transaction=per_transaction,
            pause_ms=round(each_ms) if per_transaction < FLIGHTS_PER_TRANSACTION_MAX else 0,
        )

    async def _load(self, lines: list[bytes], per_batch: int, stage: Stage) -> int:
        """Send the flights; returns the number of transactions."""
        # A shared subscription hands out whole batches: small ones spread well.
        producer = await self._client.create_producer(INPUT, batch_messages_max=per_batch)
        txn_count = 0
        for start in range(0, len(lines), FLIGHTS_PER_LOAD):
            messages = as_messages(lines[start : start + FLIGHTS_PER_LOAD])
            async with self._client.transaction() as txn:
                await producer.send_many(messages.values, messages.keys, txn=txn)
            txn_count += 1
            stage.advance(len(messages))
        await producer.close()
        return txn_count

    async def _work(self, settings: Settings, count: int, stage: Stage) -> None:
        """Run the workers, and kill, until all input is acknowledged and nothing is open."""
        crew = Crew(settings, self._journal, self._directory / "workers.log")
        killer = Killer(
            self._client, self._servers, crew, self._journal, Random(self._options.seed)
        )
        self._kill_count = killer.count
        killing = asyncio.create_task(killer.run(count, self._on_kill))
        surveying = asyncio.create_task(self._surveyor.run())
        try:
            for _ in range(self._options.workers):
                await crew.add()
            await self._until_done(crew, killing, stage)
            await killing
            if surveying.done():
                surveying.result()
        finally:
            killing.cancel()
            surveying.cancel()
            await asyncio.gather(killing, surveying, return_exceptions=True)
            await crew.stop()

    async def _until_done(self, crew: Crew, killing: asyncio.Task[None], stage: Stage) -> None:
        progress_at_s, progress = time.monotonic(), (0, 0)
        while True:
            await asyncio.sleep(POLL_S)
            crew.check()
            if killing.done():
                killing.result()
            stage.at(self._journal.message_count)
            now = (self._journal.message_count, len(self._kills))
            if now != progress:
                progress_at_s, progress = time.monotonic(), now
            elif time.monotonic() - progress_at_s > STALL_S_MAX:
                raise click.ClickException(
                    f"no progress for {STALL_S_MAX:.0f} s, after {now[0]:,} messages; "
                    "--keep-data keeps the logs"
                )
            if killing.done() and await self._is_done():
                return

    async def _is_done(self) -> bool:
        try:
            listed = await self._client.admin.transactions.list(LIVE_STATUSES)
            description = await self._client.admin.topics.describe(INPUT)
        except MagnetarError:
            return False
        # In a cluster that is not the demo's, transactions of other programs do not matter.
        live = any(one.topic in TOPICS for each in listed for one in _participants(each))
        return not live and verify.check_input(description, SUBSCRIPTION).holds

    async def _outcomes(self) -> dict[TxnID, bool]:
        """Every transaction of the workers: whether it was committed.

        What a killed worker could not tell, the coordinator knows.
        """
        outcomes: dict[TxnID, bool] = {}
        for txn_id, entry in self._journal.entries.items():
            if entry.undecided:
                description = await self._client.admin.transactions.describe(txn_id)
                outcomes[txn_id] = description.status is TransactionStatus.COMMITTED
            else:
                outcomes[txn_id] = entry.committed_at_s is not None
        return outcomes

    async def _checks(
        self, direct: Expected, committed: set[TxnID], stage: Stage
    ) -> tuple[list[Check], int]:
        client = self._client
        delays = await verify.read_topic(client, DELAYS, stage.advance)
        cancellations = await verify.read_topic(client, CANCELLATIONS, stage.advance)
        checks = [
            verify.compare("Delays by route, each flight once", direct.delays, delays.messages),
            verify.compare(
                "Cancellations by carrier, each flight once",
                direct.cancellations,
                cancellations.messages,
            ),
            verify.check_transactions(committed, (delays, cancellations)),
            verify.check_input(await client.admin.topics.describe(INPUT), SUBSCRIPTION),
            verify.check_minimum(
                f"At least {TRANSACTIONS_MIN:,} transactions", len(committed), TRANSACTIONS_MIN
            ),
            verify.check_minimum(
                "Killed: " + _and_so_on(self._kills), len(self._kills), self._kill_count
            ),
        ]
        return checks, delays.messages.total() + cancellations.messages.total()

    async def _check_cuts(self, committed: set[TxnID], stage: Stage) -> Check:
        await self._surveyor.take()
        pieces = await self._surveyor.read(stage.advance)
        entries = self._journal.entries.items()
        answered = {one: entry.committed_at_s for one, entry in entries if entry.committed_at_s}
        return check_cuts(pieces, committed, answered)

    @asynccontextmanager
    async def _spark_started(self, count: int) -> AsyncIterator[SparkPart | str]:
        """Spark's part, which has only begun to start; or why it is left out."""
        if not self._options.with_spark:
            yield "--no-spark"
            return
        without = await asyncio.to_thread(missing)
        if without is not None:
            self._display.say(f"[yellow]Spark is left out[/]: {without}")
            yield without
            return
        part = SparkPart(
            *(self._client, self._directory, self._address, self._options.spark_master, count),
            self._display.say,
        )
        self._display.say("Spark starts meanwhile: a driver, with a JVM and Python workers")
        try:
            await part.start()
            yield part
        finally:
            await part.stop()

    async def _spark(
        self, part: SparkPart | str, count: int
    ) -> tuple[list[Check], SparkTotals | None]:
        """Run Spark's part, or say why it is left out."""
        if isinstance(part, str):
            return [verify.left_out("Windows by route and day, from Spark", part)], None
        client = self._client
        self._display.say("Spark sums up the same flights, as soon as it has started")
        with self._display.stage("Spark, killed once", count) as stage:
            await part.run(stage, self._on_kill)
        elapsed_s = part.elapsed_s
        direct = await asyncio.to_thread(
            expected_windows, self._options.flights, self._options.limit
        )
        partitions = (await client.admin.topics.describe(WINDOWS)).partitions
        update_count = sum(
            partition.end_offset - partition.first_offset for partition in partitions
        )
        with self._display.stage("Comparing windows", update_count) as stage:
            updates = await verify.read_updates(client, WINDOWS, stage.advance)
        return verify.check_updates(direct, updates), SparkTotals(
            window_count=len(updates.last), batch_count=part.batch_count, elapsed_s=elapsed_s
        )

    def _on_kill(self, kill: Kill) -> None:
        self._kills.append(kill)
        self._display.kill(kill)


def _and_so_on(kills: list[Kill]) -> str:
    counts = Counter(kill.kind for kill in kills)
    return ", ".join(kind if count == 1 else f"{count} {kind}s" for kind, count in counts.items())


def _participants(
    one: TransactionDescription,
) -> tuple[PartitionName | SubscriptionName, ...]:
    return (*one.partitions, *one.subscriptions)


async def _make_topics(client: Client, replace: bool) -> None:
    """All topics of the demo, empty.

    Raises:
        click.ClickException: there are some already, and they are not to be replaced.
    """
    present = [topic for topic in TOPICS if topic in await _topic_names(client)]
    if present and not replace:
        raise click.ClickException(
            f"the cluster has {', '.join(present)} already; --replace deletes the demo's topics"
        )
    for topic in present:
        await client.admin.topics.delete(topic, force=True)
    for topic, partition_count in TOPICS.items():
        await client.admin.topics.create(topic, partitions=partition_count)


async def _topic_names(client: Client) -> set[str]:
    return {one.topic for one in await client.admin.topics.list()}


@contextmanager
def _directory(parent: Path | None, keep: bool) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="magnetar-demo-", dir=parent))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def _running_servers(
    directory: Path, options: Options
) -> AsyncIterator[tuple[Servers | None, str]]:
    if options.attached_to is not None:
        yield None, options.attached_to
        return
    servers: Servers
    if options.with_cluster:
        servers = Cluster(directory)
    else:
        servers = Standalone(directory, options.brokers)
    try:
        yield servers, await servers.start()
    finally:
        await servers.stop()


def _stop_on_sigterm() -> None:
    """End everything that was started, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
