"""deploy/compose/compose.yaml for real: servers are killed for good and added, all stays whole.

`make compose-test` runs it and shows what it tells. The tests are one story, in this order.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version

import pytest
from tests.deploy.cluster import STARTED_S, Cluster, in_mib, started, tell
from tests.deploy.queries import CLUSTER_DASHBOARD, of_dashboard, of_rules

from magnetar import MagnetarError, blocking

pytestmark = pytest.mark.compose

ETCD = ("etcd-0", "etcd-1", "etcd-2")
BROKERS = ("broker-a", "broker-b", "broker-c")
COORDINATORS = ("coordinator-a", "coordinator-b")
# Published: a client outside needs but one that answers.
OUTSIDE = ("BROKER_A_PORT", "BROKER_B_PORT", "BROKER_C_PORT")
TOPICS = ("debits", "credits")
MOVES_S_MAX = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from started("compose.yaml")


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[blocking.Client]:
    with blocking.connect([cluster.address(one) for one in OUTSIDE]) as connected:
        yield connected


def owners(cluster: Cluster) -> dict[str, str]:
    """Return the owner of each shard; an empty text for a shard without an owner."""
    told = cluster.compose("exec", "-T", "coordinator-a", "magnetar", "cluster", "shards", "--json")
    return {one["name"]: one["owner"] for one in json.loads(told)}


def until(cluster: Cluster, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Ask until the owners of shards are as they should be."""
    end_s = time.monotonic() + MOVES_S_MAX
    while True:
        try:
            now = owners(cluster)
        except AssertionError:  # It ends with status 1 while a shard lacks an owner.
            now = {}
        if now and holds(now):
            return now
        assert time.monotonic() < end_s, now


class Transfers:
    """Transactions that put a number into two topics each, while this lasts."""

    def __init__(self, client: blocking.Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._committed = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self.committed: list[int] = []
        # Their commit was not answered: they are there twice, or not at all.
        self.unknown: list[int] = []
        self.refused: list[int] = []
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def more(self, count: int) -> None:
        """Wait until so many more are committed."""
        with self._committed:
            wanted = len(self.committed) + count
            reached = self._committed.wait_for(
                lambda: len(self.committed) >= wanted or self.failure is not None, MOVES_S_MAX
            )
        assert reached, f"{len(self.committed)} of {wanted}; {self.refused=}; {self.unknown=}"
        assert self.failure is None, self.failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            producers = [self._client.create_producer(topic) for topic in TOPICS]
            number = 0
            while not self._stop.is_set():
                number += 1
                self._one(producers, number)
        except BaseException as error:
            self.failure = error
        finally:
            with self._committed:
                self._committed.notify_all()

    def _one(self, producers: list[blocking.Producer], number: int) -> None:
        try:
            txn = self._client.begin_transaction(timeout_s=60)
            for producer in producers:
                producer.send(b"%d" % number, key=b"%d" % number, txn=txn)
        except MagnetarError:
            self.refused.append(number)
            return
        try:
            txn.commit()
        except MagnetarError:
            self.unknown.append(number)
            return
        with self._committed:
            self.committed.append(number)
            self._committed.notify_all()


@pytest.fixture(scope="module")
def transfers(client: blocking.Client) -> Iterator[Transfers]:
    for topic in TOPICS:
        client.admin.topics.create(topic, partitions=6)
    running = Transfers(client)
    running.start()
    yield running
    running.stop()


def test_every_server_has_a_part(cluster: Cluster) -> None:
    each = until(
        cluster, lambda now: {*BROKERS, *COORDINATORS} == {one for one in now.values()} - {""}
    )
    assert len(each) == 10
    assert "" not in each.values()
    memory = cluster.memory_bytes()
    tell(f"memory at rest: {in_mib(memory)}")
    assert memory.keys() >= {*ETCD, *BROKERS, *COORDINATORS, "object-server"}


@pytest.mark.parametrize("service", ["etcd-0", "object-server", "broker-a", "coordinator-a"])
def test_containers_run_unprivileged(cluster: Cluster, service: str) -> None:
    told = cluster.compose(
        *("exec", "-T", service, "sh", "-c"),
        "id -u; touch /usr/local/bin/x 2>&1; cat /proc/1/status /proc/self/status",
    )
    assert told.splitlines()[0] == "10001"
    assert "Read-only file system" in told
    assert told.count("CapEff:\t0000000000000000") == 2
    assert told.count("NoNewPrivs:\t1") == 2


@pytest.mark.parametrize("image", ["server", "etcd", "object-server"])
def test_images_cannot_install_build_or_fetch(cluster: Cluster, image: str) -> None:
    """An intruder in a container finds no tool that installs others."""
    absent = "pip pip3 apt apt-get dpkg gcc cc g++ make ld as curl wget nc ssh git gdb strace sudo"
    told = cluster.engine.docker(
        *("run", "--rm", "--user", "0", "--network", "none", "--entrypoint", "sh"),
        f"magnetar/{image}:{version('magnetar')}",
        "-c",
        f"for one in {absent}; do command -v $one; done; "
        "python3 -c 'import pip' 2>/dev/null && echo module pip; "
        "python3 -c 'import ensurepip' 2>/dev/null && echo module ensurepip; "
        "find / -xdev -type f -perm /6000; echo searched",
    )
    assert told == "searched"


def test_a_broker_is_killed_for_good_and_another_one_added(
    cluster: Cluster, transfers: Transfers
) -> None:
    transfers.more(20)
    at_s = time.monotonic()
    cluster.compose("kill", "broker-b")
    tell("killed broker-b for good")
    until(cluster, lambda now: "" not in now.values() and "broker-b" not in now.values())
    tell(f"others have its shards, {time.monotonic() - at_s:.1f} s after the kill")
    transfers.more(20)
    tell(f"transactions go on, {time.monotonic() - at_s:.1f} s after the kill")
    cluster.compose("--profile", "more", "up", "--wait", "--no-build", "broker-d")
    until(cluster, lambda now: "" not in now.values() and "broker-d" in now.values())
    tell("broker-d was added, and has shards")
    transfers.more(20)


def test_a_coordinator_and_a_member_of_etcd_are_killed(
    cluster: Cluster, transfers: Transfers
) -> None:
    cluster.compose("kill", "etcd-2", "coordinator-b")
    until(cluster, lambda now: "" not in now.values() and "coordinator-b" not in now.values())
    transfers.more(20)
    tell("transactions go on without a member of etcd and a coordinator")
    cluster.compose("up", "--wait", "--no-build", "etcd-2", "coordinator-b")
    until(cluster, lambda now: "" not in now.values() and "coordinator-b" in now.values())
    transfers.more(20)


def test_a_server_that_is_stopped_hands_over_in_its_grace_period(
    cluster: Cluster, transfers: Transfers
) -> None:
    cluster.compose("stop", "broker-c")
    (line,) = cluster.compose("ps", "--all", "--format", "json", "broker-c").splitlines()
    # Not 137: it was not killed.
    assert json.loads(line)["ExitCode"] == 0
    until(cluster, lambda now: "" not in now.values() and "broker-c" not in now.values())
    transfers.more(20)
    cluster.compose("up", "--wait", "--no-build", "broker-c")


def test_every_transaction_is_whole(cluster: Cluster, transfers: Transfers) -> None:
    """A committed transaction is in both topics, once; any other is in both or in neither."""
    transfers.stop()
    assert transfers.failure is None
    end_s = time.monotonic() + MOVES_S_MAX
    while True:
        debits, credits = (
            Counter(
                map(int, cluster.run("tools", "magnetar", "consume", topic, "--until-end").split())
            )
            for topic in TOPICS
        )
        # What is decided is carried out soon, in one topic before the other.
        if debits == credits and debits.keys() >= set(transfers.committed):
            break
        assert time.monotonic() < end_s, (debits - credits, credits - debits)
    assert set(debits.values()) == {1}
    assert not debits.keys() & set(transfers.refused)
    assert debits.keys() <= {*transfers.committed, *transfers.unknown}
    tell(
        f"{len(transfers.committed)} transactions are whole; {len(transfers.unknown)} of unknown"
        f" outcome, {len(transfers.refused)} refused"
    )


def test_example_producer_and_job(cluster: Cluster, client: blocking.Client) -> None:
    cluster.compose("--profile", "producer", "up", "--detach", "--no-build", "producer")
    cluster.compose("--profile", "job", "up", "--detach", "--no-build", "job")
    end_s = time.monotonic() + 240
    while "squares" not in {one.topic for one in client.admin.topics.list()}:
        assert time.monotonic() < end_s
        assert "producer" in "".join(cluster.names())
    consumer = client.subscribe("squares", "audit", initial_position="earliest")
    squares = sorted(int(consumer.receive(timeout_s=240).value) for _ in range(20))
    consumer.close()
    assert all(round(one**0.5) ** 2 == one for one in squares)
    assert len(set(squares)) == 20
    tell("a Spark job squares what the example producer sends")


def test_every_panel_and_rule_is_answered(cluster: Cluster) -> None:
    """Each query of the dashboard of the cluster has data; no rule is wrong."""
    end_s = time.time()
    queries = list(of_dashboard(CLUSTER_DASHBOARD))
    for query in queries:
        values = [
            value
            for series in cluster.query_range(query.expr, STARTED_S, end_s)
            for _, value in series["values"]
            if value != "NaN"
        ]
        assert values, f"{query.place}: nothing for {query.expr}"
    for query in of_rules():
        cluster.query_range(query.expr, STARTED_S, end_s)
    # What the rule about failing puts asks for is what stores count.
    assert cluster.query_range(
        'magnetar_broker_object_store_requests_total{operation="put"}', STARTED_S, end_s
    )
    tell(f"Prometheus has data for each of the {len(queries)} queries about the cluster")
