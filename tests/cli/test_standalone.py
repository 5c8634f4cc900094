"""The whole program: real servers, and commands in real pipes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.cli.running import MAGNETAR, Standalone, running_standalone
from tests.core.ports import free_ports
from tests.waiting import wait_until

import magnetar
from magnetar_cli.program import COMPLETION_VARIABLE

for needed in ("magnetar_broker.broker", "magnetar_coordinator.coordinator"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not there", allow_module_level=True)


def test_a_pipe_in_and_a_pipe_out(standalone: Standalone) -> None:
    numbers = "".join(f"{number}\n" for number in range(1, 1_001)).encode()
    done = standalone.run("produce", "numbers", stdin=numbers)
    assert done.stdout == b""
    assert b"1,000 messages" in done.stderr
    assert standalone.run("consume", "numbers", "--until-end").stdout == numbers


def test_a_subscription_remembers_what_was_printed(standalone: Standalone) -> None:
    standalone.run("produce", "words", stdin=b"one\ntwo\nthree\n")
    consume = ("consume", "words", "--subscription", "reader")
    assert standalone.lines(*consume, "--count", "2") == ["one", "two"]
    assert standalone.lines(*consume, "--until-end") == ["three"]
    assert standalone.lines(*consume, "--until-end") == []
    standalone.run("subscriptions", "seek", "words", "reader", "--to", "earliest", "--yes")
    assert standalone.lines(*consume, "--until-end") == ["one", "two", "three"]
    (row,) = standalone.json("subscriptions", "list", "words")
    assert row["subscription"]["backlog"] == 0
    standalone.run("subscriptions", "delete", "words", "reader", "--yes")
    assert standalone.json("subscriptions", "list", "words") == []


def test_transactional_lines_become_visible_together(standalone: Standalone) -> None:
    lines = "".join(f"key-{number}:{number}\n" for number in range(100)).encode()
    done = standalone.run(
        *("produce", "orders", "--partitions", "3", "--key-separator", ":", "--codec", "zstd"),
        *("--transactional", "--messages-per-transaction", "30"),
        stdin=lines,
    )
    assert b"4 transactions" in done.stderr
    messages = [
        json.loads(line)
        for line in standalone.lines("consume", "orders", "--until-end", "--format", "json")
    ]
    assert sorted(int(message["value"]) for message in messages) == list(range(100))
    assert all(message["key"] == f"key-{message['value']}" for message in messages)
    assert len({message["partition"] for message in messages}) == 3
    assert len({message["txn_id"] for message in messages}) == 4
    printed = standalone.lines("consume", "orders", "--until-end", "--key-separator", ":")
    assert sorted(printed) == sorted(lines.decode().splitlines())


def test_a_failed_input_aborts_its_transaction(standalone: Standalone) -> None:
    done = standalone.run(
        *("produce", "halves", "--transactional", "--key-separator", ":"),
        stdin=b"a:1\nno separator\n",
        status=1,
    )
    assert b"line 2 has no ':'" in done.stderr
    assert standalone.lines("consume", "halves", "--until-end") == []
    assert standalone.json("transactions", "list") == []


def test_topics(standalone: Standalone) -> None:
    standalone.run("topics", "create", "flights", "--partitions", "2", "--retention", "7d")
    done = standalone.run("topics", "create", "flights", status=13)
    assert b"TopicExists" in done.stderr
    again = ("topics", "create", "flights", "--exist-ok", "--partitions", "2")
    assert standalone.lines(*again, "--retention", "7d")[0].startswith("flights exists: 2 ")
    done = standalone.run(*again, status=13)
    assert b"'flights' exists with retention_ms 604800000, not 0" in done.stderr
    described = standalone.json("topics", "describe", "flights")
    assert described["retention_ms"] == 7 * 24 * 60 * 60 * 1000
    assert [one["partition"] for one in described["partitions"]] == [0, 1]
    assert "flights" in {one["topic"] for one in standalone.json("topics", "list")}
    assert any(line.startswith("flights ") for line in standalone.lines("topics", "list"))
    standalone.run("topics", "delete", "flights", "--yes")
    done = standalone.run("topics", "describe", "flights", status=1)
    assert b"TopicNotFound" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def completions(environ: dict[str, str], *words: str) -> list[str]:
    """Return what bash is told while a line is typed."""
    asked = {
        COMPLETION_VARIABLE: "bash_complete",
        "COMP_WORDS": " ".join(("magnetar", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = fork_server.run(environ=environ | asked, timeout_s=20)
    assert (done.returncode, done.stderr) == (0, b"")
    return [line.partition(",")[2] for line in done.stdout.decode().splitlines() if line]


def test_a_shell_completes_the_names_of_topics(standalone: Standalone) -> None:
    for name in ("oranges", "oranges-2", "lemons"):
        standalone.run("topics", "create", name)
    environ = standalone.environ
    assert completions(environ, "topics", "describe", "orange") == ["oranges", "oranges-2"]
    assert completions(environ, "produce", "--no-create", "lem") == ["lemons"]
    assert completions(environ, "cut", "lemons", "orange") == ["oranges", "oranges-2"]
    assert completions(environ, "topics", "desc") == ["describe"]
    # It may not exist yet.
    assert completions(environ, "topics", "create", "orange") == []
    nowhere = environ | {"MAGNETAR_BROKER": "127.0.0.1:1"}
    assert completions(nowhere, "consume", "orange") == []
    named = ("--broker", environ["MAGNETAR_BROKER"], "consume", "orange")
    assert completions(nowhere, *named) == ["oranges", "oranges-2"]
    assert completions(environ | {"MAGNETAR_BROKER": "nonsense"}, "consume", "orange") == []


def test_offsets_of_a_topic(standalone: Standalone) -> None:
    standalone.run("produce", "counted", stdin=b"one\ntwo\n")
    (found,) = standalone.json("topics", "offsets", "counted")["partitions"]
    assert (found["first_offset"], found["end_offset"], found["time_offset"]) == (0, 2, None)
    heading, row = standalone.lines("topics", "offsets", "counted", "--at", "2020-01-31T12:00:00")
    assert heading.split() == ["PARTITION", "LEDGER", "FIRST", "END", "AT", "THAT", "TIME"]
    assert row.split() == ["0", "1", "0", "2", "0"]
    assert standalone.lines("topics", "offsets", "counted")[1].split() == ["0", "1", "0", "2"]
    done = standalone.run("topics", "offsets", "counted", "--at", "noon", status=2)
    assert b"'noon' is not a time; write 2026-01-31T12:00:00" in done.stderr


def test_a_hanging_transaction_is_found_and_ended(standalone: Standalone) -> None:
    producing = subprocess.Popen(
        [*MAGNETAR, "produce", "stuck", "--transactional"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=standalone.environ,
    )
    assert producing.stdin is not None
    producing.stdin.write(b"open\n")
    producing.stdin.flush()
    listed: list[dict[str, Any]] = []
    while not (listed and listed[0]["partitions"]):
        listed = standalone.json("transactions", "list", "--status", "open")
    txn_id = listed[0]["txn_id"]
    assert standalone.json("transactions", "describe", txn_id)["status"] == "OPEN"
    assert standalone.lines("transactions", "abort", txn_id, "--yes") == [f"{txn_id} is ABORTED"]
    _, log = producing.communicate(timeout=20)
    assert producing.returncode == 12
    assert b"Error" in log
    assert standalone.lines("consume", "stuck", "--until-end") == []


def test_whoever_closes_the_pipe_ends_the_consumer_quietly(standalone: Standalone) -> None:
    standalone.run("produce", "many", stdin=b"x" * 99 + b"\n" + b"y\n" * 200_000)
    consuming = subprocess.Popen(
        [*MAGNETAR, "consume", "many", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=standalone.environ,
    )
    assert consuming.stdout is not None
    assert consuming.stderr is not None
    assert consuming.stdout.readline() == b"x" * 99 + b"\n"
    consuming.stdout.close()
    assert consuming.wait(20) == 0
    assert consuming.stderr.read() == b""


def test_both_servers_recover_from_a_kill(standalone: Standalone) -> None:
    standalone.run("produce", "durable", "--transactional", stdin=b"kept\n")
    before = standalone.ready()
    for kind in ("broker", "coordinator"):
        os.kill(before[kind]["pid"], signal.SIGKILL)
    wait_until(
        lambda: all(
            standalone.ready()[kind]["pid"] != before[kind]["pid"]
            for kind in ("broker", "coordinator")
        )
    )
    assert standalone.lines("consume", "durable", "--until-end") == ["kept"]
    standalone.run("produce", "durable", "--transactional", stdin=b"more\n")
    assert standalone.lines("consume", "durable", "--until-end") == ["kept", "more"]


def warnings(directory: Path) -> list[str]:
    """Return the messages above INFO in the log of a standalone."""
    lines = map(json.loads, (directory / "log").read_text().splitlines())
    return [line["message"] for line in lines if line["level"] not in ("debug", "info")]


def test_a_cluster_starts_with_several_of_each_and_grows(tmp_path: Path) -> None:
    """Whoever began with one broker goes on with three, and keeps what there is."""
    with running_standalone(tmp_path) as running:
        running.run("produce", "before", "--transactional", stdin=b"kept\n")
        assert warnings(tmp_path) == [], "nothing is wrong with a first start"
    with running_standalone(tmp_path, "--brokers", "3", "--coordinators", "2") as running:
        ready = running.ready()
        names = [one["name"] for one in (*ready["brokers"], *ready["coordinators"])]
        assert names == ["broker-0", "broker-1", "broker-2", "coordinator-0", "coordinator-1"]
        assert warnings(tmp_path) == []
        for one in (*ready["brokers"], *ready["coordinators"]):
            with urllib.request.urlopen(one["metrics"], timeout=10) as page:
                assert b"magnetar_build_info" in page.read()
        assert running.lines("consume", "before", "--until-end") == ["kept"]
        running.run("produce", "before", "--transactional", stdin=b"more\n")
        running.run("topics", "create", "after", "--partitions", "3")
        keyed = b"".join(b"%d:%d\n" % (number, number) for number in range(100))
        produce = ("produce", "after", "--transactional", "--key-separator", ":")
        running.run(*produce, stdin=keyed)
        assert len(running.lines("consume", "after", "--until-end")) == 100
        described = running.json("topics", "describe", "after")
        brokers = [one["broker_name"] for one in described["partitions"]]
        assert sorted(brokers) == ["broker-0", "broker-1", "broker-2"]
        assert all(one["end_offset"] for one in described["partitions"]), "all have messages"
        found = {one.name for one in (tmp_path / "data").iterdir() if one.is_dir()}
        assert found == {"broker", "broker-1", "broker-2", "coordinator-0", "coordinator-1"}
    done = subprocess.run(
        [*MAGNETAR, "standalone", "--data-dir", str(tmp_path / "data"), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1
    assert "start with --brokers 3 --coordinators 2" in done.stderr
    with running_standalone(tmp_path, "--brokers", "3", "--coordinators", "2") as running:
        assert running.lines("consume", "before", "--until-end") == ["kept", "more"]
        assert len(running.lines("consume", "after", "--until-end")) == 100


def test_a_client_goes_on_while_the_cluster_grows(tmp_path: Path) -> None:
    """It knew the earlier list, and was refused for the rest of its life."""
    port = str(free_ports(1)[0])

    async def use(client: magnetar.Client, topic: str) -> None:
        await client.admin.topics.create(topic, partitions=2)
        producer = await client.create_producer(topic)
        async with client.transaction() as txn:
            for partition in range(2):
                await producer.send(b"%d" % partition, partition=partition, txn=txn)

    async def scenario() -> None:
        client = None
        for brokers, topic in ((1, "first"), (2, "second")):
            counts = ("--brokers", str(brokers), "--broker-port", port)
            with running_standalone(tmp_path, *counts) as running:
                client = client or await magnetar.connect(f"127.0.0.1:{port}")
                await use(client, topic)
                assert sorted(running.lines("consume", topic, "--until-end")) == ["0", "1"]
                info = await client.admin.cluster_info()
                assert len(info.brokers) == brokers
                assert info.cluster_id.startswith("standalone-")
        assert client is not None
        await client.close()

    asyncio.run(scenario())


def test_uncommitted_messages_can_be_peeked_at(standalone: Standalone) -> None:
    standalone.run("topics", "create", "secrets")

    async def write(client: magnetar.Client) -> magnetar.Transaction:
        producer = await client.create_producer("secrets")
        txn = await client.begin_transaction()
        await producer.send(b"one", b"k", properties={"a": "b"}, event_time_ms=7, txn=txn)
        await producer.send(b"\xff", txn=txn)
        return txn

    async def scenario() -> str:
        async with await magnetar.connect(standalone.environ["MAGNETAR_BROKER"]) as client:
            txn = await write(client)
            other = await write(client)
            await asyncio.to_thread(peek, str(txn.txn_id), str(other.txn_id))
            await txn.abort()
            await other.commit(wait_finished=True)
            return str(txn.txn_id)

    def peek(txn_id: str, other: str) -> None:
        first = {
            "txn_id": txn_id,
            "event_time_ms": 7,
            "properties": {"a": "b"},
            "key": "k",
            "value": "one",
        }
        second = {"txn_id": txn_id, "value_base64": "/w=="}
        printed = [json.loads(line) for line in standalone.lines("peek", "secrets")]
        assert printed == [first, second, first | {"txn_id": other}, second | {"txn_id": other}]
        lines = standalone.lines("peek", "secrets", "--txn", txn_id, "--skip", "1", "--count", "5")
        assert [json.loads(line) for line in lines] == [second]
        assert standalone.run("consume", "secrets", "--until-end").stdout == b""
        shown = "\n".join(standalone.lines("topics", "describe", "secrets"))
        assert f"{txn_id} {other}" in shown

    txn_id = asyncio.run(scenario())
    done = standalone.run("peek", "secrets", "--txn", txn_id)
    assert done.stdout == b""
    assert b"no open transaction has written to secrets" in done.stderr
    assert standalone.lines("consume", "secrets", "--until-end", "--count", "1") == ["one"]


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    """The servers of a standalone get it too, and `config show` says where each comes from."""
    config = tmp_path / "magnetar.toml"
    config.write_text("[broker]\npartitions_max = 3\n[coordinator]\ntxn_timeout_ms_max = 90_000\n")
    with running_standalone(tmp_path, "--config", str(config)) as running:
        done = running.run("topics", "create", "wide", "--partitions", "4", status=1)
        assert b"at most 3 partitions" in done.stderr
        running.run("topics", "create", "narrow", "--partitions", "3")
        show = ("config", "show", "--config", str(config))
        (changed,) = (one for one in running.json(*show, "--changed") if one["section"] == "broker")
        assert changed == {
            "section": "broker",
            "setting": "partitions_max",
            "value": 3,
            "origin": "file",
        }
        printed = running.run(*show, "--toml").stdout
        assert b"\npartitions_max = 3\n" in printed
        assert b"\n# topics_max = 10000\n" in printed
        (tmp_path / "again.toml").write_bytes(printed)
        again = ("config", "show", "--config", str(tmp_path / "again.toml"))
        assert running.json(*again) == running.json(*show), "what is printed can be read"
        config.write_text("[broker]\npartition_max = 3\n")
        done = running.run(*show, status=1)
        assert b"did you mean partitions_max?" in done.stderr
        (tmp_path / "bad.toml").write_text("[broker]\npartitions_max = 0\n")
        new = tmp_path / "new"
        flags = ("--config", str(tmp_path / "bad.toml"), "--data-dir", str(new))
        done = running.run("broker", *flags, status=1)
        assert b"partitions_max must be positive" in done.stderr
        assert not new.exists(), "nothing is touched before everything is checked"
