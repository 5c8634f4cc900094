"""Real servers that ask for certificates and tokens, of clients and of each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.order_service import open_store
from tests.system.programs import run, values
from tests.system.secured import AUDIENCE, Secured, secured_servers
from tests.tokens import Maker

import magnetar
from magnetar import (
    AuthenticationFailed,
    AuthorizationFailed,
    Client,
    ClientConfig,
    OutcomeUnknown,
    blocking,
)
from magnetar.dual_write import DualWriter
from magnetar.messaging.sending.transaction_sender import TransactionSender


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_servers(tmp_path_factory.mktemp("secured")) as servers:
        yield servers


def test_transactions_over_several_servers(secured: Secured) -> None:
    async def work() -> None:
        async with await secured.connect() as client:
            await client.admin.topics.create("secured", partitions=4)
            producer = await client.create_producer("secured")
            txn = await client.begin_transaction()
            for partition in range(4):
                await producer.send(b"one", partition=partition, txn=txn)
            await txn.commit(wait_finished=True)
            for partition in range(4):
                assert await values(client, "secured", partition) == [b"one"]

    run(work())


def test_the_command_line(secured: Secured, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(secured.token("alice"))
    options = secured.console_options(token)
    secured.standalone.run(*options, "topics", "create", "by-command")
    found = json.loads(secured.standalone.run(*options, "health", "--json").stdout)
    assert {one["status"] for one in found} == {"SERVING"}
    assert len(found) == 3
    token.write_text(Maker().token("alice", aud=AUDIENCE))
    done = secured.standalone.run(*options, "topics", "list", status=1)
    assert "its signature is wrong" in done.stderr.decode()
    assert "is it running?" not in done.stderr.decode()


def test_a_backup(secured: Secured, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(secured.token("alice"))
    options = secured.console_options(token)
    backup = str(tmp_path / "backup")
    secured.standalone.run(*options, "topics", "create", "kept")
    secured.standalone.run(*options, "backup", backup)
    secured.standalone.run("restore", "--verify", backup)
    # Without a token nobody gets anything.
    token.write_text(secured.token("alice", lasts_s=-5))
    done = secured.standalone.run(*options, "backup", str(tmp_path / "none"), status=1)
    assert "token expired" in done.stderr.decode()


def test_a_probe_of_a_pod(secured: Secured) -> None:
    """As deploy/kubernetes has it: the command, in the environment of the server."""
    pair = secured.authority.sign("probe")
    pod = {
        "MAGNETAR_TLS_CA_FILE": secured.authority.ca_file,
        "MAGNETAR_TLS_CLIENT_CERTIFICATE_FILE": pair.certificate_file,
        "MAGNETAR_TLS_CLIENT_KEY_FILE": pair.key_file,
    }
    ready = secured.standalone.ready()
    for server in ("broker", "coordinator"):
        port = ready[server]["address"].rpartition(":")[2]

        def probe(environ: dict[str, str], port: str = port) -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [sys.executable, "-m", "magnetar_cli", "health", "--port", port],
                env=secured.standalone.environ | environ,
                capture_output=True,
                timeout=30,
                check=False,
            )

        # It shows no token: the health service asks for none.
        done = probe(pod)
        assert done.returncode == 0, done.stderr
        without = {key: value for key, value in pod.items() if "CLIENT" not in key}
        assert probe(without).returncode != 0


@pytest.mark.parametrize(
    ("claims", "said"),
    [({"lasts_s": -60}, "expired"), ({"aud": "other"}, "audience"), ({"sub": None}, "'sub'")],
)
def test_the_sdk_hears_at_once_that_a_token_does_not_count(
    claims: dict[str, Any], said: str, secured: Secured
) -> None:
    token = secured.maker.token("alice", **({"aud": AUDIENCE} | claims))

    async def work() -> None:
        with pytest.raises(AuthenticationFailed, match=said):
            await magnetar.connect(secured.address, tls=secured.tls(), token=token)

    run(work(), timeout_s=10)


def test_a_client_whose_token_expires_comes_again_with_a_fresh_one(secured: Secured) -> None:
    given: list[str] = []

    def fresh() -> str:
        given.append(secured.token("alice", lasts_s=3))
        return given[-1]

    async def work() -> None:
        async with await magnetar.connect(
            secured.address, tls=secured.tls(), token=fresh
        ) as client:
            await client.admin.topics.create("renewed")
            producer = await client.create_producer("renewed")
            # It outlives its links, and so does the proof that it is alice's.
            txn = await client.begin_transaction()
            await producer.send(b"first", txn=txn)
            at_first = len(given)
            sent = 0
            # Each link of the beginning has ended meanwhile.
            while len(given) <= at_first:
                await producer.send(b"%d" % sent)
                sent += 1
            await producer.send(b"last", txn=txn)
            await txn.commit(wait_finished=True)
            plain = [b"%d" % one for one in range(sent)]
            assert await values(client, "renewed") == [*plain, b"first", b"last"]

    run(work())


async def ask_until_refused(client: Client) -> None:
    while True:
        await client.admin.topics.list()


def test_a_client_whose_token_is_revoked_is_told_so(secured: Secured) -> None:
    token = secured.token("mallory", jti="stolen")

    async def work() -> None:
        async with await magnetar.connect(
            secured.address,
            tls=secured.tls(),
            token=token,
            config=ClientConfig(operation_timeout_ms=3_000),
        ) as client:
            await client.admin.topics.list()
            secured.revoke("token stolen")
            # A question that was under way when its conversation ended may have been answered.
            with pytest.raises((AuthenticationFailed, OutcomeUnknown), match="token is revoked"):
                await ask_until_refused(client)
        with pytest.raises(AuthenticationFailed, match="the token is revoked"):
            await magnetar.connect(secured.address, tls=secured.tls(), token=token)

    run(work())


# Sends and acks in transactions carry proofs here, whoever begins them.


def test_a_client_that_carries_no_proof_on_writes_in_no_transaction(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a client that has guessed a TxnID."""
    begin = TransactionSender.begin

    async def work() -> None:
        async with await secured.connect() as client:
            await client.admin.topics.create("proofs")
            producer = await client.create_producer("proofs")
            with monkeypatch.context() as patch:
                patch.setattr(
                    TransactionSender,
                    "begin",
                    lambda self, begun: begin(self, begun._replace(txn_proof=b"")),
                )
                txn = await client.begin_transaction()
                with pytest.raises(AuthorizationFailed, match="txn_proof_keys_file"):
                    await producer.send(b"never", txn=txn)
                await txn.abort()
                await producer.send(b"plain")
            txn = await client.begin_transaction()
            await producer.send(b"one", txn=txn)
            await txn.commit(wait_finished=True)
            assert await values(client, "proofs") == [b"plain", b"one"]

    run(work())


def test_a_group_acknowledges_in_transactions(secured: Secured) -> None:
    async def work() -> None:
        async with await secured.connect() as client:
            for topic in ("inputs", "outputs"):
                await client.admin.topics.create(topic, partitions=2)
            inputs = await client.create_producer("inputs")
            for number in range(10):
                await inputs.send(b"%d" % number, partition=number % 2)
            consumer = await client.consumer_group("proved", "inputs", initial_position="earliest")
            producer = client.transactional_producer()
            await producer.init_transactions(consumer)
            stop, left = asyncio.Event(), set(range(10))

            def transform(message: magnetar.Message) -> list[magnetar.Output]:
                left.discard(int(message.value))
                if not left:
                    stop.set()
                return [magnetar.Output("outputs", message.value)]

            summary = await magnetar.process(
                consumer, transform, producer, stop=stop, handle_signals=False
            )
            assert summary.aborted == 0
            await consumer.close()
            found = [one for number in range(2) for one in await values(client, "outputs", number)]
            assert sorted(map(int, found)) == list(range(10))

    run(work())


def test_a_dual_writer_and_the_blocking_client(secured: Secured, tmp_path: Path) -> None:
    with blocking.connect(
        secured.address, tls=secured.tls(), token=secured.token("alice")
    ) as client:
        client.admin.topics.create("numbers")
        store = open_store(f"sqlite:{tmp_path / 'numbers.db'}")
        producer = client.transactional_producer("dual", two_phase_commit=True)
        writer = DualWriter(producer, store)
        writer.start()
        for number in range(3):
            with writer.unit() as unit:
                unit.send("numbers", b"%d" % number)
        assert [one.value for one in client.read("numbers", 0)] == [b"0", b"1", b"2"]


def test_tasks_of_several_principals_write_in_the_transaction_of_their_work(
    secured: Secured, tmp_path: Path
) -> None:
    """A task joins the transaction by its name, and so gets the proof that it carries on."""
    pyarrow = pytest.importorskip("pyarrow")
    sink = pytest.importorskip("magnetar_spark.sink")
    clients = pytest.importorskip("magnetar_spark.clients")
    options = pytest.importorskip("magnetar_spark.options.sink")
    works = pytest.importorskip("magnetar_spark.work")
    tls = secured.tls("executor")

    def options_of(name: str) -> Any:
        token = tmp_path / name
        token.write_text(secured.token(name))
        return options.sink_options(
            {**secured.spark_options(tls, token), "topic": "tasks"}, streaming=True
        )

    with blocking.connect(secured.address, tls=tls, token=secured.token("alice")) as client:
        client.admin.topics.create("tasks")
        try:
            work = works.Work("spark/proofs", 0, "run")
            messages = [
                sink.write_task(
                    options_of(name),
                    work,
                    iter([pyarrow.RecordBatch.from_pylist([{"value": name.encode()}])]),
                )
                for name in ("alice", "bob")
            ]
            sink.commit_tasks(options_of("alice"), messages)
        finally:
            clients.close_all()
        assert {one.value for one in client.read("tasks", 0)} == {b"alice", b"bob"}


def test_spark_takes_the_same_files_as_options(secured: Secured, tmp_path: Path) -> None:
    clients = pytest.importorskip("magnetar_spark.clients")
    options = pytest.importorskip("magnetar_spark.options.sink")
    tls, token = secured.tls("executor"), tmp_path / "token"
    token.write_text(secured.token("alice"))
    read = options.sink_options(secured.spark_options(tls, token), streaming=False)
    try:
        client = clients.client_of(read.servers, read.links)
        assert len(client.admin.cluster_info().brokers) == 2
    finally:
        clients.close_all()
