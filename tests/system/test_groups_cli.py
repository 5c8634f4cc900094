"""`magnetar groups` and docs/groups.md, with real servers."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.system.processes import CommandLine, Servers

from magnetar import blocking

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"


@pytest.fixture
def magnetar(servers: Servers) -> CommandLine:
    return CommandLine(servers)


@contextmanager
def member(servers: Servers, group: str = "billing") -> Iterator[blocking.GroupConsumer]:
    with (
        blocking.connect(servers.address) as client,
        client.consumer_group(group, "orders", initial_position="earliest") as consumer,
    ):
        yield consumer


def test_a_group_from_its_first_member_to_its_deletion(
    servers: Servers, magnetar: CommandLine
) -> None:
    magnetar.run("topics", "create", "orders", "--partitions", "2")
    assert magnetar.json("groups", "list") == []
    with blocking.connect(servers.address) as client:
        producer = client.create_producer("orders")
        for number in range(10):
            producer.send(b"%d" % number, partition=number % 2)
    with member(servers) as consumer:
        taken = consumer.receive_batch(3)
        consumer.ack_many(taken)
        (listed,) = magnetar.json("groups", "list")
        assert (listed["group"], listed["state"], listed["lag"]) == (
            "billing",
            "STABLE",
            10 - len(taken),
        )
        shown = magnetar.run("groups", "describe", "billing")
        assert consumer.member_id in shown
        assert re.search(r"orders +1 ", shown)
        described = magnetar.json("groups", "describe", "billing")
        assert [one["member_id"] for one in described["partitions"]] == [consumer.member_id] * 2
        refused = magnetar.run("groups", "delete", "billing", "--yes", status=15)
        assert "1 members" in refused
        refused = magnetar.run(
            "groups", "reset-offsets", "billing", "--to", "earliest", "--yes", status=15
        )
        assert "stop them" in refused
    assert magnetar.json("groups", "list")[0]["state"] == "EMPTY"
    dry = magnetar.json("groups", "reset-offsets", "billing", "--to", "latest", "--dry-run")
    assert [one["new_offset"] for one in dry] == [5, 5]
    assert magnetar.json("groups", "describe", "billing")["summary"]["lag"] == 10 - len(taken)
    magnetar.run("groups", "reset-offsets", "billing", "--to", "earliest", "--yes")
    with member(servers) as consumer:
        values: list[bytes] = []
        while len(values) < 10:
            values += [one.value for one in consumer.receive_batch(10, timeout_s=10)]
        assert sorted(values) == [b"%d" % number for number in range(10)]
    magnetar.run("groups", "delete", "billing", "--yes")
    assert magnetar.json("groups", "list") == []


def test_bad_input(servers: Servers, magnetar: CommandLine) -> None:
    magnetar.run("topics", "create", "orders")
    with member(servers):
        pass
    assert "no group 'nobody'" in magnetar.run("groups", "describe", "nobody", status=1)
    assert "no group 'nobody'" in magnetar.run("groups", "delete", "nobody", "--yes", status=1)
    reset = ("groups", "reset-offsets", "billing", "--yes", "--to")
    assert "--topic NAME --partition N" in magnetar.run(*reset, "7", status=2)
    beyond = magnetar.run(*reset, "7", "--topic", "orders", "--partition", "0", status=1)
    assert "outside" in beyond
    assert "reads no such topic" in magnetar.run(*reset, "latest", "--topic", "tea", status=1)
    assert "earliest, latest" in magnetar.run(*reset, "yesterday", status=2)


def test_the_program_and_the_commands_of_the_page(
    servers: Servers, magnetar: CommandLine, tmp_path: Path
) -> None:
    page = PAGE.read_text()
    program = page.split("```python\n")[1].split("```")[0]
    script = tmp_path / "billing.py"
    script.write_text(program.replace("127.0.0.1:6650", servers.address))
    for topic in ("orders", "invoices"):
        magnetar.run("topics", "create", topic)
    with blocking.connect(servers.address) as client:
        client.create_producer("orders").send(b"tea")
        running = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
        try:
            invoices = client.subscribe("invoices", "test", initial_position="earliest")
            assert invoices.receive(timeout_s=20).value == b"invoice for tea"
            running.send_signal(signal.SIGTERM)
            output, _ = running.communicate(timeout=20)
        finally:
            running.kill()
            running.wait()
    assert running.returncode == 0
    assert "messages_in=1" in output
    commands = page.split("```sh\nmagnetar groups")[1].split("```")[0]
    for line in ("magnetar groups" + commands).strip().splitlines():
        magnetar.run(*line.split()[1:])
