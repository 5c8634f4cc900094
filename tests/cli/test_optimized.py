"""Servers, command line and SDK under `python -OO`, which drops assertions and docstrings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.running import MAGNETAR, Standalone, running_standalone

from magnetar_cli.program import cli, help_in_source

PROGRAM = """
import asyncio, sys
import magnetar

async def main() -> None:
    assert False, "there are no assertions"
    async with await magnetar.connect(sys.argv[1]) as client:
        await client.admin.topics.create("there", partitions=2)
        consumer = await client.subscribe("there", "s", initial_position="earliest")
        producer = await client.create_producer("there")
        async with client.transaction() as txn:
            for number in range(10):
                await producer.send(b"%d" % number, b"%d" % number, txn=txn)
        messages = [await consumer.receive() for _ in range(10)]
        async with client.transaction() as txn:
            for one in messages:
                await consumer.ack(one, txn=txn)
        print(sorted(int(one.value) for one in messages) == list(range(10)))
        try:
            await client.admin.transactions.describe(magnetar.TxnID(1, 10**9))
        except magnetar.TxnNotFound as error:
            print(error.kind.name, magnetar.TxnNotFound().args[0])

print(main.__doc__, magnetar.connect.__doc__)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONOPTIMIZE", "2")
        with running_standalone(tmp_path_factory.mktemp("optimized")) as running:
            yield running


def test_servers_and_sdk_do_a_transaction(optimized: Standalone, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), optimized.environ["MAGNETAR_BROKER"]],
        env=optimized.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None None",
        "True",
        "FIX This coordinator never issued that TxnID. No effect; check where the id comes from.",
    ]


def test_commands_work_and_errors_say_what_to_do(optimized: Standalone) -> None:
    optimized.run("topics", "create", "lines")
    optimized.run("produce", "lines", "--transactional", stdin=b"one\ntwo\n")
    assert optimized.lines("consume", "lines", "--until-end") == ["one", "two"]
    done = optimized.run("topics", "describe", "nowhere", status=1)
    assert b"create it, or correct the name" in done.stderr


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from commands(found, (*path, name))


EVERY = sorted(commands(cli))


def test_every_help_text_is_as_ever() -> None:
    """One process asks for all of them."""
    code = (
        "import sys; from click.testing import CliRunner; from magnetar_cli.program import cli\n"
        "for line in sys.stdin:\n"
        "    print(CliRunner().invoke(cli, [*line.split(), '--help']).output)\n"
    )
    asked = "".join(" ".join(path) + "\n" for path in EVERY)
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            input=asked,
            env={**os.environ, "PYTHONOPTIMIZE": level},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for level in ("0", "2")
    ]
    assert told[0].count("Usage:") == len(EVERY) > 40
    assert told[1] == told[0]


def test_the_program_itself_has_its_help() -> None:
    done = subprocess.run(
        [MAGNETAR[0], "-OO", *MAGNETAR[1:], "--help"], capture_output=True, text=True, check=True
    )
    assert "a transactional log broker" in done.stdout
    assert "Exit status:" in done.stdout


def test_a_function_without_source_has_no_help() -> None:
    namespace: dict[str, object] = {}
    exec("def made(): 'text'", namespace)
    assert help_in_source(namespace["made"]) is None
