"""deploy/compose/compose.laptop.yaml for real: built, started, used, hurt, and taken down again.

`make compose-test` runs it and shows what it tells. The tests are one story, in this order.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.deploy import picture
from tests.deploy.cluster import ROOT, STARTED_S, Cluster, in_mib, started, tell
from tests.deploy.queries import of_dashboard, of_rules

from magnetar import MagnetarError, TopicNotFound, TransactionStatus, TxnID, blocking

pytestmark = pytest.mark.compose

# Where to draw the dashboard; nowhere when not set.
PICTURE = os.environ.get("MAGNETAR_DASHBOARD_PICTURE")
SERVERS = ("broker", "coordinator-0", "coordinator-1")
# Of an image, beyond the base that it stands on.
SERVER_BYTES_MAX = 200 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from started("compose.laptop.yaml")


@pytest.fixture
def client(cluster: Cluster) -> Iterator[blocking.Client]:
    """On this machine, outside of the containers' network."""
    with blocking.connect(cluster.address("BROKER_PORT")) as connected:
        yield connected


def test_memory_at_rest(cluster: Cluster) -> None:
    """Each container is far below its limit, where the kernel would end it."""
    memory = cluster.memory_bytes()
    tell(f"memory at rest: {in_mib(memory)}")
    assert memory.keys() >= {*SERVERS, "spark-master", "spark-worker", "spark-connect"}
    for server in SERVERS:
        assert memory[server] < 128 << 20


def test_images_are_small_and_run_unprivileged(cluster: Cluster) -> None:
    base = int(
        cluster.engine.docker(
            "image", "inspect", "--format", "{{.Size}}", cluster.environ["BASE_IMAGE"]
        )
    )
    sizes = {}
    for name in ("server", "tools", "spark", "demo"):
        (found,) = json.loads(
            cluster.engine.docker("image", "inspect", f"magnetar/{name}:{version()}")
        )
        sizes[name] = found["Size"]
        assert found["Config"]["User"] == "10001:10001"
        assert found["Config"]["Labels"]["org.opencontainers.image.version"] == version()
    assert sizes["server"] - base < SERVER_BYTES_MAX
    tell(
        f"images: base {base / 1e6:.0f} MB; beyond it "
        + ", ".join(f"{name} {(size - base) / 1e6:.0f}" for name, size in sizes.items())
    )
    told = cluster.compose(
        *("exec", "-T", "broker", "sh", "-c"),
        "id -u; touch /opt/magnetar/x 2>&1; grep CapEff /proc/self/status;"
        " which pip || echo no pip",
    )
    assert told.splitlines()[0] == "10001"
    assert "Read-only file system" in told
    assert "CapEff:\t0000000000000000" in told
    assert "no pip" in told


def version() -> str:
    from importlib.metadata import version as of

    return of("magnetar")


def test_the_second_of_three_commands(cluster: Cluster) -> None:
    """deploy/README.md, See a transaction from outside; the fixture was the first."""
    page = (ROOT / "deploy" / "README.md").read_text()
    prefix = "docker compose --file compose.laptop.yaml --profile tools run --rm tools "
    (line,) = [one for one in page.splitlines() if one.startswith(prefix + "bash -c")]
    cluster.run("tools", *shlex.split(line.removeprefix(prefix)))
    read = cluster.run("tools", "magnetar", "consume", "orders", "--until-end")
    assert sorted(map(int, read.split())) == list(range(1, 1_001))
    tell("the README's command has produced a thousand messages in a transaction")


def test_a_client_on_this_machine(cluster: Cluster, client: blocking.Client) -> None:
    """Through the published ports, with nothing to configure."""
    info = client.admin.cluster_info()
    assert {one.address for one in info.coordinators} == {
        cluster.address("COORDINATOR_0_PORT"),
        cluster.address("COORDINATOR_1_PORT"),
    }
    client.admin.topics.create("purchases", partitions=2)
    client.admin.topics.create("invoices", partitions=2)
    purchases, invoices = client.create_producer("purchases"), client.create_producer("invoices")
    coordinators = set()
    for number in range(8):
        with client.transaction() as txn:
            purchases.send(b"purchase %d" % number, txn=txn)
            invoices.send(b"invoice %d" % number, txn=txn)
        coordinators.add(txn.txn_id.tcid)
    assert coordinators == {0, 1}
    connected = {one.raddr.port for one in psutil.Process().net_connections() if one.raddr}
    for name in SERVERS:
        stream_port = cluster.ports[f"{name.upper().replace('-', '_')}_STREAM_PORT"]
        assert stream_port in connected, f"the frames of {name} are left in gRPC"
    aborted = client.begin_transaction()
    purchases.send(b"never seen", txn=aborted)
    aborted.abort()
    group = client.consumer_group("billing", "purchases", initial_position="earliest")
    values = {group.receive().value for _ in range(8)}
    assert values == {b"purchase %d" % number for number in range(8)}
    # Left unacknowledged: the lag of the group is on the dashboard.
    group.close()
    with pytest.raises(TopicNotFound):
        client.admin.topics.describe("none")
    with pytest.raises(MagnetarError):
        client.admin.transactions.describe(TxnID.of(1, 1, 10**9))
    tell("a client outside has made transactions with both coordinators")


def test_the_console(cluster: Cluster) -> None:
    address = f"http://{cluster.address('CONSOLE_PORT')}/"
    with urllib.request.urlopen(address, timeout=30) as page:
        assert "asks the brokers at broker:6650" in page.read().decode()
    # Other names are refused, also on the published port.
    stranger = urllib.request.Request(address, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(stranger, timeout=30)
    with urllib.request.urlopen(f"{address}events?view=cluster", timeout=30) as events:
        rows = next(one for one in (line.decode() for line in events) if '"shards"' in one)
    assert "coordinator-1" in rows
    tell(f"the console is at {address}")


def test_the_tools(cluster: Cluster) -> None:
    listed = cluster.run("tools", "magnetar", "topics", "list")
    assert "purchases" in listed
    services = cluster.run("tools", "grpcurl", "-plaintext", "broker:6650", "list")
    assert "magnetar.v1.Broker" in services
    produced = cluster.run("tools", "magnetar", "produce", "purchases", stdin="by hand\n")
    assert "Traceback" not in produced
    tell("tools: the command line and grpcurl work in a container")


def test_a_query_over_spark_connect(cluster: Cluster) -> None:
    """A client without Java; reading happens where Spark runs."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(f"sc://{cluster.address('SPARK_CONNECT_PORT')}").create()
    try:
        frame = (
            spark.read.format("magnetar")
            .option("magnetar.bootstrap.servers", "broker:6650")
            .option("subscribe", "purchases")
            .load()
        )
        values = sorted(bytes(row.value) for row in frame.select("value").collect())
    finally:
        spark.stop()
    assert values == sorted([b"by hand", *(b"purchase %d" % number for number in range(8))])
    tell("Spark Connect: a query over a topic from this machine")


def test_the_demo_while_the_broker_is_killed(cluster: Cluster) -> None:
    cluster.demo_started_s = time.time()
    with cluster.watching_memory() as peaks:
        process = subprocess.Popen(
            cluster.command("--profile", "demo", "run", "--rm", "-T", "demo"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=cluster.environ,
        )
        assert process.stdout is not None
        output, killed = "", False
        for line in process.stdout:
            output += line
            if " s  " in line:
                tell("demo: " + line.strip())
            if "Working" in line and not killed:
                killed = True
                at_s = time.time()
                cluster.compose("kill", "broker")
                tell("killed the broker's container")
                cluster.compose("up", "--wait", "--no-build", "broker")
                tell(f"the broker serves again, {time.time() - at_s:.1f} s after the kill")
        status = process.wait()
    assert status == 0, output
    assert killed
    verdicts = [line for line in output.splitlines() if line.rstrip().endswith("holds   │")]
    assert len(verdicts) == 9, output
    assert "FAILS" not in output
    tell("demo: all nine checks hold")
    tell(f"memory, most under the demo: {in_mib(peaks)}")


def test_every_panel_and_rule_is_answered(cluster: Cluster) -> None:
    """Over the demo's time each query of the dashboard has data; no rule is wrong."""
    end_s = time.time()

    def answers(expr: str) -> list[dict[str, object]]:
        return cluster.query_range(expr, STARTED_S, end_s)

    queries = list(of_dashboard())
    for query in queries:
        values = [
            value
            for series in answers(query.expr)
            for _, value in series["values"]  # type: ignore[attr-defined]
            if value != "NaN"
        ]
        assert values, f"{query.place}: nothing for {query.expr}"
    for query in of_rules():
        answers(query.expr)
    tell(f"Prometheus has data for each of the dashboard's {len(queries)} queries")
    if PICTURE:
        start_s = cluster.demo_started_s

        def of_the_demo(expr: str) -> list[dict[str, object]]:
            return cluster.query_range(expr, start_s, end_s)

        picture.draw(of_the_demo, start_s, end_s, Path(PICTURE))
        tell(f"the dashboard is drawn: {PICTURE}")


def test_a_dead_coordinator_leaves_the_other_one(cluster: Cluster, client: blocking.Client) -> None:
    producer = client.create_producer("purchases")
    # A transaction that is open at the coordinator that is about to die.
    while (open_one := client.begin_transaction(timeout_s=600)).txn_id.tcid != 1:
        open_one.abort()
    producer.send(b"decided after all", txn=open_one)
    cluster.compose("kill", "coordinator-1")
    for number in range(4):
        with client.transaction() as txn:
            producer.send(b"without the other, %d" % number, txn=txn)
        assert txn.txn_id.tcid == 0
    cluster.compose("up", "--wait", "--no-build", "coordinator-1")
    open_one.commit()
    described = client.admin.transactions.describe(open_one.txn_id)
    assert described.status in (TransactionStatus.COMMITTING, TransactionStatus.COMMITTED)
    tell("transactions go on without one of the coordinators; it came back with what it knew")
