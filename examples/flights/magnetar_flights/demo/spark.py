"""The last part of the demo: Spark sums up the same flights, and its driver is killed meanwhile.

The driver is the job of `examples/flights` in a separate process, as a user would start it, so that
this process needs neither Java nor a fork. Spark takes seconds to start, mostly on a single core.
So both drivers start while the demo is busy elsewhere, and the second waits until the first is
killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

import click

from magnetar import Client, MagnetarError, TransactionStatus
from magnetar_cli.log_end import end_of_log
from magnetar_flights.demo.killer import ASK_S_MAX, DRIVER, RETRY_S, Kill
from magnetar_flights.demo.processes import STOP_S_MAX
from magnetar_flights.demo.report import Stage
from magnetar_flights.demo.worker import INPUT

JOB = (sys.executable, "-m", "magnetar_flights")
WINDOWS = "delays-by-route-and-day"
BATCHES = 5
# The file's months are in no order, so that no window may close before its end.
LATE_BY = "366d"
# Share of the flights after which the driver is killed even if no open transaction was found.
SHARE_LAST = 0.75
# A stop for good, not a slow machine: a start takes what it takes.
STALL_S_MAX = 600.0
JVM_S_MAX = 5.0
# It runs for seconds: what the second compiler gains comes too late.
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Driver:
    """A run of the job: Python and its JVM, in a process group."""

    def __init__(
        self, directory: Path, address: str, master: str | None, flight_count: int
    ) -> None:
        self._directory = directory
        self._is_local = master is None
        self._log = directory / "spark.log"
        self._arguments = (
            *("--broker", address, "--input", INPUT, "--output", WINDOWS),
            *("--checkpoint", str(directory / "checkpoint"), "--late-by", LATE_BY),
            *("--rows-per-batch", str(-(-flight_count // BATCHES))),
            *("--available-now", "--json", "--supervised", "--standby"),
            *(() if master is None else ("--master", master)),
        )
        self._process: Process | None = None
        self._is_killed = False

    @property
    def pid(self) -> int:
        """The process id of Python."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start Spark; the job reads and writes nothing before `begin`."""
        from magnetar_spark.jobs.spark_home import home_without_archive

        # What a killed JVM leaves behind goes with the demo's directory.
        temporary = self._directory / "spark"
        temporary.mkdir(exist_ok=True)
        java_options = " ".join(
            (os.environ.get("JAVA_TOOL_OPTIONS", ""), *JVM_OPTIONS, f"-Djava.io.tmpdir={temporary}")
        )
        environ = {
            # Executors on other machines must find the driver, and have a Spark of their own.
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if self._is_local else {}),
            **(home_without_archive(self._directory) if self._is_local else {}),
            **os.environ,
            "SPARK_LOCAL_DIRS": str(temporary),
            "TMPDIR": str(temporary),
            "JAVA_TOOL_OPTIONS": java_options.strip(),
        }
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *JOB,
                *self._arguments,
                # Its end tells the driver that the demo has gone.
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=environ,
                # Ctrl-C is for the demo.
                start_new_session=True,
            )

    def begin(self) -> None:
        """Let the job work as soon as it is ready."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def follow(
        self, on_ready: Callable[[], None], on_batch: Callable[[int, int], None]
    ) -> None:
        """Call back when the job is ready, and with each batch, until the job ends.

        Raises:
            click.ClickException: it stopped making progress, or failed; the message has the end of
            its log.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        while True:
            try:
                async with asyncio.timeout(STALL_S_MAX):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                raise self._failed(f"did not report anything for {STALL_S_MAX:.0f} s") from None
            if not line.endswith(b"\n"):
                break
            told = json.loads(line)
            if "ready" in told:
                on_ready()
            elif "batch" in told:
                on_batch(told["batch"]["number"], told["batch"]["rows"])
        status = await self._process.wait()
        if status != 0 and not self._is_killed:
            raise self._failed(f"ended with status {status}")

    def kill(self) -> None:
        """Kill the process group."""
        self._is_killed = True
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process is not None and self._process.returncode is not None

    async def stop(self) -> None:
        """Ask it to end, and wait until nothing of it is left."""
        if self._process is None:
            return
        try:
            self.send(signal.SIGCONT)
            if not self.has_ended:
                self._process.terminate()
            async with asyncio.timeout(STOP_S_MAX):
                await self._process.wait()
            if self._process.returncode == 0:
                await self._until_group_gone()
        except TimeoutError:
            pass
        finally:
            self.send(signal.SIGKILL)
            await self._process.wait()

    async def _until_group_gone(self) -> None:
        """The JVM ends a moment after its Python."""
        for _ in range(int(JVM_S_MAX / RETRY_S)):
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(RETRY_S)

    def _failed(self, what: str) -> click.ClickException:
        return click.ClickException(f"the {DRIVER} {what}:\n{end_of_log(self._log)}")


class SparkPart:
    """Runs the job twice: until it is killed, and from there to the end.

    Args:
        master: where Spark's tasks run; None: in each driver. A cluster may give everything to the
            driver that comes first, so no second driver waits then.
        say: prints a line for the user.
    """

    def __init__(
        self,
        client: Client,
        directory: Path,
        address: str,
        master: str | None,
        flight_count: int,
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._flight_count = flight_count
        self._say = say
        self._stage: Stage | None = None
        self._rows: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._first, self._second = (
            Driver(directory, address, master, flight_count) for _ in range(2)
        )
        self._stands_by = master is None
        self._started_s = 0.0

    @property
    def batch_count(self) -> int:
        """The number of batches that both runs have done."""
        return len(self._rows)

    @property
    def elapsed_s(self) -> float:
        """The time since the start, in seconds."""
        return time.monotonic() - self._started_s

    async def start(self) -> None:
        """Start the drivers."""
        self._started_s = time.monotonic()
        await self._first.start()
        if self._stands_by:
            await self._second.start()

    async def stop(self) -> None:
        """Stop the drivers."""
        await self._first.stop()
        await self._second.stop()

    async def run(self, stage: Stage, on_kill: Callable[[Kill], None]) -> None:
        """Run the job twice, and report the kill when the second run has gone on.

        Raises:
            click.ClickException: a driver failed.
        """
        self._stage = stage
        self._first.begin()
        following = asyncio.create_task(
            self._first.follow(
                lambda: self._say(
                    f"Spark has started in {self.elapsed_s:.1f} s; its first batch is the"
                    " slowest: it compiles the plan and starts Python"
                ),
                self._on_batch,
            )
        )
        try:
            open_count = await self._until_open(self._first, following)
            at_s = time.monotonic()
            self._first.kill()
            await following
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

        def on_recovery(recovery_s: float) -> None:
            on_kill(
                Kill(
                    kind=DRIVER,
                    pid=self._first.pid,
                    at_s=at_s,
                    open_count=open_count,
                    recovery_s=recovery_s,
                )
            )

        who = "which has stood by" if self._stands_by else "which starts"
        self._say(f"the {DRIVER} is killed; waiting for the first batch of another, {who}")
        await self._go_on(at_s, on_recovery)

    async def _until_open(self, driver: Driver, following: asyncio.Task[None]) -> int:
        """Stop the driver while a batch's transaction is open; return how many are open.

        The first batch ends before, so that the next driver has a state to continue from.
        """
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((changed, following), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        while not following.done():
            driver.send(signal.SIGSTOP)
            open_count = await self._open_count()
            if open_count or self._row_count >= SHARE_LAST * self._flight_count:
                return open_count
            driver.send(signal.SIGCONT)
            await asyncio.sleep(RETRY_S)
        await following
        raise click.ClickException(f"the {DRIVER} ended before it could be killed")

    async def _open_count(self) -> int:
        """Return the number of the job's open transactions."""
        try:
            async with asyncio.timeout(ASK_S_MAX):
                listed = await self._client.admin.transactions.list([TransactionStatus.OPEN])
        except (MagnetarError, TimeoutError):
            return 0
        return sum(any(one.topic == WINDOWS for one in each.partitions) for each in listed)

    async def _go_on(self, since_s: float, on_recovery: Callable[[float], None]) -> None:
        """Let the second driver go on, and end."""
        has_gone_on = False

        def on_batch(number: int, rows: int) -> None:
            nonlocal has_gone_on
            if not has_gone_on:
                on_recovery(time.monotonic() - since_s)
            has_gone_on = True
            self._on_batch(number, rows)

        if not self._stands_by:
            await self._second.start()
        self._second.begin()
        await self._second.follow(lambda: None, on_batch)
        if not has_gone_on:
            # The last batch was done, and only not yet told of.
            on_recovery(time.monotonic() - since_s)

    @property
    def _row_count(self) -> int:
        return sum(self._rows.values())

    def _on_batch(self, number: int, rows: int) -> None:
        self._rows[number] = rows
        if self._stage is not None:
            self._stage.at(min(self._row_count, self._flight_count))
        self._changed.set()
