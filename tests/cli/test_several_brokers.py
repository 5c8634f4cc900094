"""The command line with two broker processes: where partitions are, and one that is stopped."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from tests.cli.running import Standalone, running_standalone, stop


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    directory = tmp_path_factory.mktemp("two")
    with running_standalone(directory, "--brokers", "2") as running:
        yield running


def test_messages_of_a_transaction_lie_at_both_brokers(two: Standalone) -> None:
    lines = "".join(f"key-{number}:{number}\n" for number in range(100)).encode()
    two.run(
        *("produce", "orders", "--partitions", "4", "--key-separator", ":"),
        *("--transactional", "--messages-per-transaction", "50"),
        stdin=lines,
    )
    described = two.json("topics", "describe", "orders")
    keepers = [one["broker_name"] for one in described["partitions"]]
    assert sorted(keepers) == ["broker-0", "broker-0", "broker-1", "broker-1"]
    assert all(one["end_offset"] > 0 for one in described["partitions"])
    table = two.run("topics", "describe", "orders").stdout.decode()
    assert "broker-0" in table
    assert "broker-1" in table
    printed = two.lines("consume", "orders", "--until-end")
    assert sorted(map(int, printed)) == list(range(100))
    offsets = two.json("topics", "offsets", "orders")
    assert [one["partition"] for one in offsets["partitions"]] == [0, 1, 2, 3]
    assert sum(one["end_offset"] for one in offsets["partitions"]) == 100
    two.run("topics", "skip-damaged", "orders", "--dry-run")
    assert two.lines("transactions", "find-hanging") == []


def test_the_health_shows_all_servers_also_while_one_hangs(two: Standalone) -> None:
    found = two.json("health")
    assert [(one["name"], one["status"]) for one in found] == [
        ("broker-0", "SERVING"),
        ("broker-1", "SERVING"),
        ("coordinator-0", "SERVING"),
    ]
    two.run("topics", "create", "halves", "--partitions", "2")
    second = two.ready()["brokers"][1]
    process = psutil.Process(second["pid"])
    stop([process])
    try:
        done = two.run("health", "--timeout-s", "1", status=1)
        rows = {line.split()[1]: line for line in done.stdout.decode().splitlines()}
        assert "NO ANSWER" in rows["broker-1"]
        assert rows["broker-0"].split()[-1] == "SERVING"
        assert "halves" in {one["topic"] for one in two.json("topics", "list")}
    finally:
        process.resume()


def test_either_address_finds_the_whole_cluster(two: Standalone) -> None:
    two.run("topics", "create", "whole", "--partitions", "4")
    for one in two.ready()["brokers"]:
        done = two.run("--broker", one["address"], "topics", "describe", "whole", "--json")
        assert done.stdout.count(b'"broker-1"') == 2
