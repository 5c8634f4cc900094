"""docs/design/0001-protocol.md says what a late copy of each command does, and names its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar_core.transport.columns.kinds import COLUMNS
from magnetar_core.wire import service_pb2

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/broker/test_ends_together.py",
    "tests/broker/test_late_copies.py",
    "tests/coordinator/test_late_copies.py",
    "tests/coordinator/test_init_producer.py",
    "tests/cli/test_membership.py",
    "tests/kafka_clients/test_administration.py",
    "tests/kafka_clients/test_delete_records.py",
    "tests/kafka_clients/test_groups.py",
    "tests/kafka_clients/test_produce.py",
    "tests/kafka_clients/test_topics.py",
    "tests/kafka_clients/test_transactions.py",
)
# What servers say unasked.
PUSHES = {"error", "deliver", "consumer_change", "group_change", "owners_changed"}
# The first row: what changes nothing.
HARMLESS = ("hello", "lookup", "get_cluster_info", "list_", "describe_", "read", "peek")
COMMANDS = [
    one.name
    for one in service_pb2.Command.DESCRIPTOR.oneofs_by_name["body"].fields
    if not one.name.endswith("_response") and one.name not in PUSHES | COLUMNS.keys()
]


def table() -> str:
    text = (ROOT / "docs/design/0001-protocol.md").read_text()
    return text.partition("### Late copies")[2].partition("\nA *token*")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_row(command: str) -> None:
    if command.startswith(HARMLESS):
        return
    shown = {"add_partition_to_txn": "AddPartition", "add_subscription_to_txn": "AddSubscription"}
    name = shown.get(command) or "".join(part.capitalize() for part in command.split("_"))
    first_cells = "\n".join(line.split("|")[1] for line in table().splitlines() if "|" in line)
    assert re.search(rf"\b{name}\b", first_cells), f"{name} is missing"


def test_the_tests_it_names_exist() -> None:
    code = "".join((ROOT / test).read_text() for test in TESTS)
    named = re.findall(r"`(test_\w+)(\.\.\.)?`", table())
    assert len(named) > 20
    for name, has_more in named:
        assert re.search(rf"def {name}{'' if has_more else '[(]'}", code), name
