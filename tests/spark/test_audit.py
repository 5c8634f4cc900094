"""The audit finds damages that were made on purpose, and nothing where there are none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from tests.json_output import read_json
from tests.spark.conftest import ROOT
from tests.spark.damages import Store, damage
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.waiting import wait_until

from magnetar import TransactionStatus, blocking
from magnetar_cli.program import cli
from magnetar_core.errors import TopicNotFound
from magnetar_core.ids import TxnID
from magnetar_spark.clients import close_all
from magnetar_spark.jobs.auditing.audit import Request, audit
from magnetar_spark.jobs.auditing.audit_checks import (
    DAMAGED,
    DUPLICATE,
    GAP,
    KINDS,
    ORPHAN,
    TRANSACTION,
)

pytestmark = pytest.mark.chaos

UNIQUE = "key"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audited")


class Damaged:
    """A cluster with a topic for each damage, audited before and after."""

    def __init__(self, spark: SparkSession, servers: Servers, directory: Path) -> None:
        self.servers = servers
        self.topics: dict[str, int] = {}
        self.request = Request((servers.address,), unique=UNIQUE)
        self._number = 0
        with blocking.connect(servers.address) as client:
            for name in (
                *("clean", "gap", "copied", "over", "left", "right", "half", "again"),
                *("refused", "changed", "alone", "orphan", "empty"),
            ):
                self.topics[name] = client.admin.topics.create(name, partitions=2)
                if name != "empty":
                    for _ in range(3):
                        self._send(client, name, 0)
            lost = self._commit(client, ("left", 0), ("right", 1))
            self._send(client, "right", 1)
            half = self._commit(client, ("half", 0), ("half", 1), ("half", 1))
            again = self._commit(client, ("again", 0), ("clean", 1))
            alone = self._commit(client, ("alone", 1))
            self._send(client, "alone", 1)
            self._commit(client, ("orphan", 1), ("clean", 1))
            aborted = self._abort(client, "orphan", "clean")
            waiting = client.begin_transaction(600)
            self._send(client, "clean", 0, txn=waiting)
            self.before = audit(spark, self.request)
            waiting.commit()
            refused = client.begin_transaction(600)
            for partition in (0, 1):
                self._send(client, "refused", partition, txn=refused)
            self.txns = {
                "lost": str(lost),
                "alone": str(alone),
                "aborted": str(aborted),
                "half": str(half),
                "again": str(again),
                "refused": str(refused.txn_id),
            }
            servers.stop()

            async def change(store: Store) -> None:
                of = self.topics
                await store.remove_entry(of["gap"], 0, 1)
                await store.copy_entry(of["copied"], 0, 0)
                await store.copy_entry(of["over"], 0, 0, offset=2)
                await store.remove_entry(of["right"], 1, 0)
                await store.remove_entry(of["alone"], 1, 0)
                await store.revive_in_sidecar(of["orphan"], 1, aborted)
                await store.remove_from_sidecar(of["half"], 1)
                await store.copy_entry(of["again"], 0, 3)
                await store.remove_from_index(refused.txn_id, of["refused"], 1)
                await store.change_entry(of["changed"], 0, 1)

            damage(directory / BROKER, change)
            servers.start()
            refused.commit()
            self._wait_for_refusal(client)
        self.after = audit(spark, self.request)

    def _send(self, client: blocking.Client, topic: str, partition: int, **more: object) -> None:
        """A batch of four, an entry of its own."""
        producer = client.create_producer(topic, linger_ms=60_000, batch_messages_max=4)
        for _ in range(4):
            self._number += 1
            producer.enqueue(b"value", b"k%d" % self._number, partition=partition, **more)  # type: ignore[arg-type]
        producer.flush()
        producer.close()

    def _commit(self, client: blocking.Client, *places: tuple[str, int]) -> TxnID:
        with client.transaction() as txn:
            for topic, partition in places:
                self._send(client, topic, partition, txn=txn)
        return txn.txn_id

    def _abort(self, client: blocking.Client, *topics: str) -> TxnID:
        with client.transaction() as txn:
            for topic in topics:
                self._send(client, topic, 1, txn=txn)
            txn.abort()
        return txn.txn_id

    def _wait_for_refusal(self, client: blocking.Client) -> None:
        wait_until(
            lambda: any(
                part.last_error
                for one in client.admin.transactions.list([TransactionStatus.COMMITTING])
                for part in one.unfinished
            )
        )

    def found(self, topic: str) -> list[tuple[str, int | None, int | None, int | None]]:
        return [
            (finding.kind, finding.partition, finding.first_offset, finding.last_offset)
            for finding in self.after.findings
            if finding.topic == topic
        ]

    def names(self, topic: str) -> set[str]:
        return {
            finding.txn_id
            for finding in self.after.findings
            if finding.topic == topic and finding.txn_id
        }


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, directory: Path) -> Iterator[Damaged]:
    servers = Servers(directory)
    servers.start()
    yield Damaged(spark, servers, directory)
    close_all()
    servers.stop()


def test_without_damage_it_is_clean(damaged: Damaged) -> None:
    report = damaged.before
    assert report.is_clean, report.findings
    # Twelve topics with three batches, then ten of transactions and two plain ones.
    assert (report.topics, report.partitions, report.messages) == (13, 26, 4 * (36 + 12))
    assert report.transactions == 5
    assert report.counts == dict.fromkeys(KINDS, 0)


def test_a_removed_row_is_a_gap(damaged: Damaged) -> None:
    assert damaged.found("gap") == [(GAP, 0, 4, 7)]


def test_a_message_under_a_new_offset_is_a_duplicate(damaged: Damaged) -> None:
    """Offsets say nothing of it: the expression does, here the key."""
    assert damaged.found("copied") == [(DUPLICATE, 0, offset, offset) for offset in range(12, 16)]


def test_one_offset_of_two_entries_is_a_duplicate(damaged: Damaged) -> None:
    assert (DUPLICATE, 0, 2, 3) in damaged.found("over")


def test_a_marker_removed_at_one_partition_is_a_transaction_seen_in_part(
    damaged: Damaged,
) -> None:
    assert damaged.found("right") == [(GAP, 1, 0, 3), (TRANSACTION, 1, None, None)]
    assert damaged.names("right") == {damaged.txns["lost"]}
    assert damaged.found("left") == []


def test_so_it_is_where_it_was_in_one_partition_only(damaged: Damaged) -> None:
    """Its coordinator knows that it was committed."""
    assert damaged.found("alone") == [(GAP, 1, 0, 3), (TRANSACTION, 1, None, None)]
    assert damaged.names("alone") == {damaged.txns["alone"]}


def test_rows_of_an_aborted_transaction_that_came_back_are_an_orphan(damaged: Damaged) -> None:
    assert damaged.found("orphan") == [(ORPHAN, 1, None, None)]
    assert damaged.names("orphan") == {damaged.txns["aborted"]}


def test_a_batch_removed_from_the_sidecar_names_its_transaction(damaged: Damaged) -> None:
    assert damaged.found("half") == [(TRANSACTION, 1, 4, 7)]
    assert damaged.names("half") == {damaged.txns["half"]}


def test_a_marker_that_stands_twice(damaged: Damaged) -> None:
    kinds = {finding.detail for finding in damaged.after.findings if finding.topic == "again"}
    assert any("stand at offset 12 already" in detail for detail in kinds), kinds
    assert damaged.names("again") == {damaged.txns["again"]}


def test_a_sidecar_without_its_index_makes_its_partition_refuse(damaged: Damaged) -> None:
    assert damaged.found("refused") == [(TRANSACTION, 1, None, None)]
    assert damaged.names("refused") == {damaged.txns["refused"]}


def test_a_changed_bit_is_damage(damaged: Damaged) -> None:
    assert damaged.found("changed") == [(DAMAGED, 0, 4, 7)]


def test_what_is_whole_stays_clean(damaged: Damaged) -> None:
    assert damaged.found("clean") == []
    assert damaged.found("empty") == []


def test_findings_are_counted_beyond_those_that_are_told(
    damaged: Damaged, spark: SparkSession
) -> None:
    request = Request(damaged.request.servers, ("copied",), UNIQUE, findings_max=1)
    report = audit(spark, request)
    assert len(report.findings) == 1
    assert report.counts[DUPLICATE] == 4
    with pytest.raises(TopicNotFound):
        audit(spark, Request(damaged.request.servers, ("nowhere",)))


def test_a_person_gets_a_table_and_the_exit_status(damaged: Damaged) -> None:
    done = _invoke(damaged.servers, "right", "clean", status=3)
    facts, _, table = done.stdout.partition("KIND")
    counts = dict(re.split(r"  +", line) for line in facts.splitlines())
    assert (counts["topics"], counts["gap findings"], counts["orphan findings"]) == ("2", "1", "0")
    # A topic of its own: the other partition of the transaction is not read.
    gap, transaction = (re.split(r"  +", line.strip()) for line in table.splitlines()[1:])
    assert gap == ["gap", "right", "1", "0 to 3", "-", gap[-1]]
    assert transaction[:5] == ["transaction", "right", "1", "-", damaged.txns["lost"]]
    assert "its coordinator has it COMMITTED" in transaction[-1]
    report = read_json(
        "pipeline audit", _invoke(damaged.servers, "clean", "--json", status=0).stdout
    )
    assert (report["messages"], report["findings"]) == (4 * 6, [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "TopicNotFound: there is no topic 'nowhere'"),
        (("--unique", "key +"), "--unique 'key +': [PARSE_SYNTAX_ERROR]"),
        (("--unique", "nokey"), "--unique 'nokey': [UNRESOLVED_COLUMN"),
        (("--unique", "count(*)"), "--unique 'count(*)': [MISSING_GROUP_BY]"),
        (("clean", "--unique", "cast(cast(value as string) as int)"), "[CAST_INVALID_INPUT]"),
    ],
)
def test_what_goes_wrong_is_one_line(
    damaged: Damaged, arguments: tuple[str, ...], told: str
) -> None:
    done = _invoke(damaged.servers, *arguments, status=1)
    assert done.stdout == ""
    *steps, error = done.stderr.splitlines()
    assert told in error
    assert error.startswith("Error: ")
    assert all(re.match("listing|reading|bringing|looking", line) for line in steps), steps


def test_without_a_broker_nobody_waits_for_spark() -> None:
    done = CliRunner().invoke(cli, ["--broker", "127.0.0.1:1", "pipeline", "audit"])
    assert done.exit_code == 10
    (error,) = done.stderr.splitlines()
    assert error.startswith("Error: no broker answers at 127.0.0.1:1; is it running?")


def test_a_cluster_in_use_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    """Transactions that are open, end and expire, and retention, while the audit looks."""
    servers = Servers(tmp_path, {"MAGNETAR_RETENTION_CHECK_INTERVAL_MS": "100"})
    servers.start()
    try:
        with blocking.connect(servers.address) as client, Traffic(client) as traffic:
            report = audit(spark, Request((servers.address,), unique="value"))
            assert report.is_clean, report.findings
        assert traffic.ended > 50
        report = audit(spark, Request((servers.address,), ("kept",), orphan_ms=0))
        assert report.is_clean, report.findings
        assert (report.messages, report.transactions) == (traffic.messages, traffic.committed)
        assert report.partitions == 3
    finally:
        close_all()
        servers.stop()


class Traffic:
    """Commits and aborts all the time over two topics, one of which is trimmed at once."""

    def __init__(self, client: blocking.Client) -> None:
        self.committed = self.ended = self.messages = 0
        self._client = client
        client.admin.topics.create("kept", partitions=3)
        client.admin.topics.create("trimmed", partitions=2, retention_ms=1)
        self._producers = {
            topic: client.create_producer(topic, linger_ms=0) for topic in ("kept", "trimmed")
        }
        self._stopping = threading.Event()
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._open = [self._client.begin_transaction(600) for _ in range(3)]
        for txn in self._open:
            self._write(txn, 0)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        for txn in self._open:
            txn.abort()
        assert not self._failures, self._failures

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                number += 1
                txn = self._client.begin_transaction(600)
                count = self._write(txn, number)
                if number % 5 == 0:
                    txn.abort()
                else:
                    txn.commit()
                    self.messages += count
                    self.committed += 1
                self.ended += 1
        except Exception as error:
            self._failures.append(error)

    def _write(self, txn: blocking.Transaction, number: int) -> int:
        """Returns how many went to "kept"."""
        partitions = {number % 3, (number + 1) % 3}
        for topic, places in (("kept", partitions), ("trimmed", {number % 2})):
            for partition in places:
                value = b"%d-%s-%d" % (number, str(txn.txn_id).encode(), partition)
                self._producers[topic].send(value, partition=partition, txn=txn)
        return len(partitions)


def test_an_orphan_and_the_program_for_spark_submit(
    java: None, servers: Servers, tmp_path: Path
) -> None:
    """The coordinator's data are thrown away: what it had open is open for ever at the broker."""
    with blocking.connect(servers.address) as client:
        client.admin.topics.create("out")
        client.create_producer("out").send(b"plain")
        consumer = client.subscribe("out", "s", initial_position="earliest")
        txn = client.begin_transaction()
        client.create_producer("out").send(b"hangs", txn=txn)
        consumer.ack(consumer.receive(), txn=txn)
        servers.kill(COORDINATOR)
        shutil.rmtree(tmp_path / COORDINATOR)
        servers.start(COORDINATOR)
        report = json.loads(_submitted(servers))
    written, acknowledged = report["findings"]
    for found in (written, acknowledged):
        assert (found["kind"], found["topic"]) == (ORPHAN, "out")
        assert (found["txn_id"], found["first_offset"]) == (str(txn.txn_id), 1)
        assert "its coordinator does not know it" in found["detail"]
    assert acknowledged["detail"].startswith("acks of s: ")
    assert report["counts"] == {**dict.fromkeys(KINDS, 0), ORPHAN: 2}


def _invoke(servers: Servers, *arguments: str, status: int) -> Result:
    """In this process, with the session that there is."""
    done = CliRunner().invoke(cli, ["--broker", servers.address, "pipeline", "audit", *arguments])
    assert done.exit_code == status, (done.output, done.exception)
    return done


def _submitted(servers: Servers) -> str:
    """As spark-submit runs it."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "magnetar_cli.pipeline", "audit", "--min-open", "0s"),
            *("--broker", servers.address, "--json", "--master", "local[1]"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr[-2000:])
    return done.stdout
