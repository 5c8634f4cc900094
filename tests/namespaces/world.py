"""A run, inside of its namespaces: the cluster, its clients, the faults, and what is read at last.

Started by tests.namespaces.run. It writes records beside those of the clients, and report.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.namespaces.chaos import Chaos
from tests.namespaces.crew import (
    ACCOUNT_PARTITIONS,
    ACCOUNTS,
    ORDER_PARTITIONS,
    ORDERS,
    TELLERS,
)
from tests.namespaces.faults import plan
from tests.namespaces.load import note_delivery, read_to_end
from tests.namespaces.machines import CLIENTS, Machines
from tests.namespaces.records import Recorder, read_records
from tests.namespaces.services import ROOT, environment, read_services
from tests.namespaces.survey import rows_at
from tests.waiting import pace, until

import magnetar
from magnetar import Client, TransactionStatus
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import TxnID

# From the end of the faults until the load ends: what is under way may come to its end.
AFTERWARDS_S = 10.0
POLL_S = 0.1
STATUS_S = 300.0
QUIET_S = 2.0
ROLES = {"c1": "tellers", "c2": "tellers", "c3": "tellers", "c4": "readers", "c5": "surveyor"}
# Of all cuts, so many are read again when everything is over.
CUTS_AGAIN = 10
ENDING = (TransactionStatus.COMMITTING, TransactionStatus.ABORTING)


@dataclass
class Report:
    """Figures of a run.

    Attributes:
        answered_s: from the moment at which all servers ran again until all shards answered.
        settled_s: from then until none of the transactions that were COMMITTING or ABORTING was.
        longest_ending_s: the longest that any transaction was seen COMMITTING or ABORTING since.
    """

    seed: int
    seconds: float
    faults: dict[str, int]
    restarted: int
    answered_s: float
    settled_s: float
    longest_ending_s: float


class Clients:
    """The processes of clients, all on one machine."""

    def __init__(
        self, machines: Machines, directory: Path, servers: str, seed: int, pause_s: float
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        for name, role in ROLES.items():
            arguments = [
                *(sys.executable, "-m", "tests.namespaces.load", role, "--name", name),
                *("--servers", servers, "--history", str(directory / f"{name}.jsonl")),
                *("--seed", str(seed), "--pause-s", str(pause_s)),
            ]
            with (directory / f"{name}.log").open("ab") as log:
                self._processes.append(
                    subprocess.Popen(
                        machines.network.at(CLIENTS, *arguments),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=environment(),
                        cwd=ROOT,
                    )
                )

    def stop(self) -> None:
        """Have them come to their end; they meet no error that they do not expect."""
        for one in self._processes:
            one.send_signal(signal.SIGTERM)
        statuses = [process.wait(STATUS_S) for process in self._processes]
        assert not any(statuses), f"clients failed, see c1.log to c5.log: {statuses}"


class Ending:
    """Watches which transactions are COMMITTING or ABORTING, and since when."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._seen: dict[TxnID, tuple[float, float]] = {}
        self.first: set[TxnID] | None = None
        self.settled_at: float | None = None

    async def look(self) -> bool:
        """Whether none is left."""
        now = self._loop.time()
        found = {one.txn_id for one in await self._client.admin.transactions.list(ENDING)}
        for txn_id in found:
            self._seen[txn_id] = (self._seen.get(txn_id, (now, now))[0], self._loop.time())
        if self.first is None:
            self.first = set(found)
        if self.settled_at is None and not self.first & found:
            self.settled_at = self._loop.time()
        return not found

    @property
    def longest_s(self) -> float:
        return max((last - first for first, last in self._seen.values()), default=0.0)


async def answers(client: Client) -> bool:
    """Whether all shards answer."""
    try:
        await client.admin.transactions.list()
        for topic in (ACCOUNTS, ORDERS):
            await client.admin.topics.list_offsets(topic)
    except MagnetarError:
        return False
    return True


async def run(directory: Path, seed: int, seconds: float, pause_s: float) -> None:
    machines = Machines(directory, read_services())
    try:
        machines.take_precedence()
        machines.start_all()
        servers = ",".join(f"{name}:6650" for name in machines.of_kind("broker"))
        client = await magnetar.connect(servers)
        await client.admin.topics.create(ACCOUNTS, partitions=ACCOUNT_PARTITIONS)
        await client.admin.topics.create(ORDERS, partitions=ORDER_PARTITIONS)
        clients = Clients(machines, directory, servers, seed, pause_s)
        planned = plan(
            seed,
            seconds,
            machines.of_kind("broker", "coordinator"),
            machines.of_kind("etcd"),
            *machines.of_kind("object-server"),
        )
        (directory / "plan.json").write_text(json.dumps([one.as_json() for one in planned]))
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + seconds
        with Recorder(directory / "faults.jsonl") as recorder:
            chaos = Chaos(machines, planned, recorder)
            await chaos.run()
        answered_s = await until(lambda: answers(client), patience_s=STATUS_S)
        back_s = loop.time()
        ending = Ending(client)
        while not await ending.look() or loop.time() < max(ends_s, back_s + AFTERWARDS_S):
            assert loop.time() < back_s + STATUS_S, "transactions do not end"
            await pace(POLL_S)
        stopping = asyncio.create_task(asyncio.to_thread(clients.stop))
        while not stopping.done():
            await ending.look()
            await pace(POLL_S)
        await stopping
        await until(lambda: none_live(client, ending), patience_s=STATUS_S)
        assert ending.settled_at is not None
        with Recorder(directory / "final.jsonl") as recorder:
            await read_everything(recorder, client, directory)
        await client.close()
    finally:
        machines.close()
    report = Report(
        seed=seed,
        seconds=seconds,
        faults=dict(sorted(chaos.counts.items())),
        restarted=chaos.restarted,
        answered_s=round(answered_s, 2),
        settled_s=round(ending.settled_at - back_s, 2),
        longest_ending_s=round(ending.longest_s, 2),
    )
    (directory / "report.json").write_text(json.dumps(asdict(report)))


async def none_live(client: Client, ending: Ending) -> bool:
    """Whether everything has ended, and what was left open has been aborted by its timeout."""
    return await ending.look() and not await client.admin.transactions.list()


async def read_everything(recorder: Recorder, client: Client, directory: Path) -> None:
    """Write down what there is in the end: outcomes, logs, cuts, what subscriptions have left."""
    records = await asyncio.to_thread(lambda: read_records(directory.glob("c*.jsonl")))
    begun = [TxnID.parse(record["txn"]) for record in records if record["kind"] == "begun"]
    statuses = await client.admin.transactions.statuses(begun)
    for txn_id, status in zip(begun, statuses, strict=True):
        recorder.note("status", txn=str(txn_id), status=None if status is None else int(status))
    for topic in (ACCOUNTS, ORDERS):
        for one in (await client.admin.topics.list_offsets(topic)).partitions:
            await read_to_end(recorder, client, topic, one.partition, one.first_offset)
            recorder.note(
                "log",
                topic=topic,
                partition=one.partition,
                first=one.first_offset,
                end=one.end_offset,
            )
    tokens = [record["token"] for record in records if record["kind"] == "cut"]
    for token in tokens[:: -(-len(tokens) // CUTS_AGAIN) or 1]:
        recorder.note("cut again", token=token, rows=await rows_at(client, token))
    await drain(recorder, client)
    for partition in (await client.admin.topics.describe(ORDERS)).partitions:
        for cursor in partition.subscriptions:
            recorder.note(
                "cursor",
                topic=ORDERS,
                partition=partition.partition,
                subscription=cursor.subscription,
                mark_delete=cursor.mark_delete_offset,
                backlog=cursor.backlog,
                pending=cursor.pending_ack_count,
            )


async def drain(recorder: Recorder, client: Client) -> None:
    """Receive all orders that nobody has carried out, without acknowledging them."""
    session = "auditor"
    recorder.note("attach", session=session, topic=ORDERS, subscription=TELLERS)
    described = (await client.admin.topics.describe(ORDERS)).partitions
    left = sum(cursor.backlog for one in described for cursor in one.subscriptions)
    async with await client.subscribe(ORDERS, TELLERS, type="shared") as consumer:
        for _ in range(left):
            note_delivery(recorder, session, await consumer.receive(STATUS_S))
        # One more would be one too many.
        try:
            note_delivery(recorder, session, await consumer.receive(QUIET_S))
        except TimeoutError:
            pass
    recorder.note("drained", session=session, topic=ORDERS, subscription=TELLERS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--seconds", required=True, type=float)
    parser.add_argument("--pause-s", required=True, type=float)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}, {time.monotonic():.3f}", flush=True)
    asyncio.run(run(chosen.directory, chosen.seed, chosen.seconds, chosen.pause_s))


if __name__ == "__main__":
    main()
