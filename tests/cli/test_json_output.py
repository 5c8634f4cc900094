"""`--json`: each command prints what its schema describes."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, ValidationError
from tests.cli.running import Standalone
from tests.json_output import WITHOUT_SCHEMA

import magnetar
import magnetar.blocking
from magnetar_cli.commands.json_shapes.installed import installed_shapes
from magnetar_cli.json_schema import schema_of
from magnetar_cli.output import print_json
from magnetar_cli.program import cli
from magnetar_core.errors import PartitionMoved
from magnetar_core.ids import PartitionName, TxnID

# Nothing is damaged, and nothing hangs.
NOTHING_FOUND = {"skip-damaged", "find-hanging"}


def with_json(group: click.Group, path: tuple[str, ...] = ()) -> set[str]:
    """Return the paths of the commands that have --json."""
    found: set[str] = set()
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            found |= with_json(command, (*path, name))
        elif command is not None and any("--json" in one.opts for one in command.params):
            found.add(" ".join((*path, name)))
    return found


def test_each_command_that_prints_json_has_a_schema() -> None:
    assert isinstance(cli, click.Group)
    shapes, missing = installed_shapes()
    assert not missing
    assert with_json(cli) == {*shapes, *WITHOUT_SCHEMA}


class Colour(Enum):
    RED = 1
    BLUE = 2


class Place(NamedTuple):
    row: int
    column: int


@dataclasses.dataclass
class Everything:
    """All that has a form.

    Attributes:
        place: where it is.
    """

    place: Place
    txn_id: TxnID
    colour: Colour
    kind: Literal["new", "old"]
    pair: tuple[int, str]
    many: tuple[Place, ...]
    by_name: dict[str, float]
    error: magnetar.MagnetarError | None
    partition: PartitionName | None = None
    listed: list[bool] = dataclasses.field(default_factory=list)


def printed(value: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    print_json(value)
    return json.loads(capsys.readouterr().out)


def test_a_schema_has_the_form_in_which_values_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = Everything(
        *(Place(1, 2), TxnID.of(0, 1, 7), Colour.RED, "new", (1, "a"), (Place(3, 4),), {"a": 1.5}),
        error=PartitionMoved("of another broker"),
        partition=PartitionName("orders", 0, 7),
        listed=[True],
    )
    shown = printed(value, capsys)
    assert shown["txn_id"] == "0:1:7"
    assert shown["error"] == {"code": "PARTITION_MOVED", "message": "of another broker"}
    schema = schema_of(Everything)
    assert schema["properties"]["place"]["description"] == "Where it is."
    validator = Draft202012Validator(schema)
    validator.validate(shown)
    validator.validate(printed(dataclasses.replace(value, error=None, partition=None), capsys))
    for name, other in (
        ("txn_id", 7),
        ("colour", "GREEN"),
        ("kind", "used"),
        ("pair", [1]),
        ("pair", [1, "a", 2]),
        ("many", [{"row": 1}]),
        ("by_name", {"a": "b"}),
        ("listed", [1]),
        ("added", 1),
    ):
        with pytest.raises(ValidationError):
            validator.validate({**shown, name: other})
    del shown["pair"]
    with pytest.raises(ValidationError):
        validator.validate(shown)


def test_a_type_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no JSON for"):
        schema_of(Path)


def test_the_command_prints_a_schema() -> None:
    done = CliRunner().invoke(cli, ["json-schema", "topics", "list"])
    assert done.exit_code == 0
    schema = json.loads(done.output)
    Draft202012Validator.check_schema(schema)
    assert schema["items"]["required"] == ["topic", "topic_id", "partitions"]
    done = CliRunner().invoke(cli, ["json-schema", "topics"])
    assert done.exit_code == 2
    assert "there is no schema of 'topics'; there are: access check, backup" in done.output


def test_what_is_printed_has_the_form_of_its_schema(standalone: Standalone, tmp_path: Path) -> None:
    """Each command prints something with rows in it."""
    address = standalone.environ["MAGNETAR_BROKER"]
    with magnetar.blocking.connect(address) as client:
        client.admin.topics.create("orders", partitions=2)
        client.admin.topics.create("copies")
        client.admin.subscriptions.create("orders", "billing", initial_position="earliest")
        producer = client.create_producer("orders")
        producer.send(b"plain")
        with client.consumer_group("workers", ["orders"]) as member:
            writer = client.transactional_producer("shop")
            writer.init()
            writer.begin()
            writer.send("copies", b"in it")
            txn = client.begin_transaction()
            producer.send(b"open", txn=txn)
            for arguments in (
                ("topics", "list"),
                ("topics", "describe", "orders"),
                ("topics", "offsets", "orders"),
                ("topics", "alter", "orders", "--retention", "7d"),
                ("topics", "skip-damaged", "orders", "--dry-run"),
                ("subscriptions", "list", "orders"),
                ("groups", "list"),
                ("groups", "describe", "workers"),
                ("cluster", "members"),
                ("cluster", "shards", "--lag"),
                ("health",),
                ("transactions", "list"),
                ("transactions", "describe", str(txn.txn_id)),
                ("transactions", "describe", "--transactional-id", "shop"),
                ("transactions", "describe-name", "nightly"),
                ("transactions", "describe-producers", "copies", "0"),
                ("transactions", "find-hanging"),
                ("transactions", "history", str(txn.txn_id)),
                ("config", "show"),
                ("backup", str(tmp_path / "backup")),
            ):
                found = standalone.json(*arguments)
                assert found or NOTHING_FOUND.intersection(arguments), arguments
            txn.abort()
            writer.abort()
            member.close()
        earliest = ("--to", "earliest", "--dry-run")
        assert standalone.json("groups", "reset-offsets", "workers", *earliest)
