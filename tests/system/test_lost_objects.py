"""Objects of stopped servers are lost in the object store, and another cluster comes to it.

Source: docs/design/0021-durable-marks.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from tests import fork_server
from tests.etcd_server import EtcdServer
from tests.fork_server import ForkedProcess
from tests.object_server import BUCKET, ObjectServer
from tests.system.members import Members, started
from tests.system.processes import BROKER, COORDINATOR, Servers
from tests.system.programs import run, values
from tests.waiting import wait_until

import magnetar

COUNT = 20
DAMAGED = 16


def magnetar_command(*arguments: str, environ: dict[str, str], status: int = 0) -> str:
    done = fork_server.run(*arguments, environ=environ, timeout_s=120)
    assert done.returncode == status, done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    return (done.stdout + done.stderr).decode()


def checked(store: str, environ: dict[str, str], *options: str, status: int) -> list[Any]:
    """What `magnetar check` says of the first broker's store."""
    said = magnetar_command("check", store, "--json", *options, environ=environ, status=status)
    report = json.loads(said)
    assert report["whole"] == (status == 0)
    (broker,) = (one for one in report["stores"] if one["place"].endswith("/broker-0"))
    return [(one["check"], one["is_damage"]) for one in broker["findings"]]


def lose_newest_objects(server: ObjectServer, store: str, count: int) -> None:
    """Remove the newest objects of the first broker's log."""
    objects = server.objects(store.removeprefix(f"s3://{BUCKET}/") + "/brokers/broker-0")
    log = sorted(one["path"] for one in obstore.list(objects, "wal/").collect())
    for name in log[-count:]:
        obstore.delete(objects, name)


async def send(address: str, first: int) -> int:
    """Send numbers, and return the ledger id."""
    async with await magnetar.connect(address) as client:
        if not first:
            await client.admin.topics.create("t")
        producer = await client.create_producer("t")
        for number in range(first, first + COUNT):
            message_id = await producer.send(b"%d" % number)
        assert isinstance(message_id, magnetar.MessageId)
        return message_id.ledger_id


async def read(address: str) -> list[int]:
    async with await magnetar.connect(address) as client:
        return [int(value) for value in await values(client, "t")]


def test_a_broker_that_lost_the_end_of_its_log_starts_when_a_person_accepts_that(
    object_server: ObjectServer, tmp_path: Path
) -> None:
    store = f"s3://{BUCKET}/lost/list"
    place = f"{store}/brokers/broker-0"
    servers = Servers(
        tmp_path,
        {**object_server.environment(), "MAGNETAR_STORE": store},
        {BROKER: 1, COORDINATOR: 1},
    )
    environ = dict(servers.environ)
    servers.start()
    ledger_id = run(send(servers.address, 0))
    servers.stop()
    assert checked(store, environ, status=0) == []

    lose_newest_objects(object_server, store, 5)
    assert checked(store, environ, status=DAMAGED) == [("durable", True)]
    with pytest.raises(AssertionError, match=r"group commits missing at its end: 5 .*put back"):
        servers.start(BROKER)
    said = magnetar_command("storage", "accept-loss", place, "--dry-run", environ=environ)
    assert "group commits missing at its end: 5 " in said
    assert checked(store, environ, status=DAMAGED) == [("durable", True)]
    said = magnetar_command("storage", "accept-loss", place, "--yes", environ=environ)
    assert "given up" in said
    said = magnetar_command("storage", "accept-loss", place, "--yes", environ=environ)
    assert "nothing is missing" in said
    assert checked(store, environ, status=0) == []

    servers.start()
    found = run(read(servers.address))
    assert 0 < len(found) < COUNT
    assert found == list(range(len(found)))
    assert run(send(servers.address, COUNT)) > ledger_id
    servers.stop()
    assert checked(store, environ, status=0) == []


def test_a_second_cluster_at_the_same_address_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    store = f"file://{tmp_path}/objects"
    first, second = (
        Servers(
            tmp_path / name,
            {"MAGNETAR_STORE": store, "MAGNETAR_CLUSTER_ID": name},
            {BROKER: 1, COORDINATOR: 1},
        )
        for name in ("orders", "invoices")
    )
    with first.running():
        run(send(first.address, 0))
        for kind in (BROKER, COORDINATOR):
            with pytest.raises(AssertionError, match=f"{store} belongs to the cluster 'orders'"):
                second.start(kind)
        run(send(first.address, COUNT))
        assert run(read(first.address)) == list(range(2 * COUNT))
        first.stop()


@pytest.fixture
def members(
    tmp_path: Path, etcd_server: EtcdServer, object_server: ObjectServer
) -> Iterator[Members]:
    shards = {"MAGNETAR_BROKER_SHARDS": "1", "MAGNETAR_COORDINATOR_SHARDS": "1"}
    yield from started(tmp_path, etcd_server, object_server, shards, a=BROKER, x=COORDINATOR)


def test_a_shard_that_lost_the_end_of_its_log_is_not_opened_before_a_person_accepts_that(
    members: Members, object_server: ObjectServer, tmp_path: Path
) -> None:
    environ = dict(members.environ)
    store = environ["MAGNETAR_STORE"]
    place = f"{store}/brokers/broker-0"
    without_etcd = {name: value for name, value in environ.items() if name != "MAGNETAR_ETCD"}
    ledger_id = run(send(members.address("a"), 0))
    members.stop("a")
    members.stop("x")
    assert checked(store, environ, status=0) == []
    assert checked(store, without_etcd, status=0) == [("durable", False)]

    lose_newest_objects(object_server, store, 5)
    assert checked(store, environ, status=DAMAGED) == [("durable", True)]
    said = magnetar_command(
        "storage", "accept-loss", place, "--yes", environ=without_etcd, status=1
    )
    assert "with --etcd" in said
    members.start_again(a=BROKER, x=COORDINATOR)
    wait_until(lambda: "missing at its end: 5 " in members.log("a"))
    said = magnetar_command("storage", "accept-loss", place, "--yes", environ=environ)
    assert "given up" in said

    # It is opened at the next attempt.
    assert run(send(members.address("a"), COUNT)) > ledger_id
    found = run(read(members.address("a")))
    kept = len(found) - COUNT
    assert 0 < kept < COUNT
    assert found == [*range(kept), *range(COUNT, 2 * COUNT)]


def test_a_member_of_another_cluster_is_refused(members: Members, tmp_path: Path) -> None:
    """Both have the same id, and etcds of their own; so have most clusters made by mistake."""
    environ = {**members.environ, "MAGNETAR_CLUSTER_ID": f"{members.cluster_id}-2"}
    with (tmp_path / "other.log").open("wb") as log:
        other = ForkedProcess(
            *("broker", "--name", "z", "--port", "0"), stdout=log, stderr=log, environ=environ
        )
    assert other.wait(60) == 1
    said = (tmp_path / "other.log").read_text()
    assert f"belongs to the cluster '{members.cluster_id}' of etcd at" in said
    assert run(send(members.address("a"), 0))
