"""`magnetar cut`, and `magnetar consume --at`, with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.running import Standalone

from magnetar import blocking
from magnetar_cli.errors import STATUS_OF_KIND
from magnetar_cli.program import cli
from magnetar_core.error_kinds import ErrorKind

FIX = STATUS_OF_KIND[ErrorKind.FIX]


def test_what_a_cut_has_is_printed_again_and_again(standalone: Standalone, tmp_path: Path) -> None:
    standalone.run("topics", "create", "accounts", "--partitions", "3")
    address = standalone.ready()["broker"]["address"]
    with blocking.connect(address) as client:
        producer = client.create_producer("accounts")

        def transfer(amount: int) -> None:
            with client.transaction() as txn:
                producer.send(b"%d" % amount, partition=0, txn=txn)
                producer.send(b"%d" % -amount, partition=2, txn=txn)

        transfer(5)
        cut = client.cut(["accounts"])
        values = [
            message.value
            for partition in range(cut.partition_count("accounts"))
            for message in client.read("accounts", partition, at=str(cut))
        ]
        assert sorted(values) == [b"-5", b"5"]
        (first,) = standalone.lines("cut", "accounts")
        transfer(7)
        (second,) = standalone.lines("cut", "accounts", "--timeout", "10s")
        transfer(9)
    file = tmp_path / "cut"
    file.write_text(f"{second}\n")
    for _ in range(2):
        assert sorted(standalone.lines("consume", "accounts", "--at", first)) == ["-5", "5"]
        whole = standalone.lines("consume", "accounts", "--at", f"@{file}")
        assert sorted(whole) == ["-5", "-7", "5", "7"]
        between = standalone.lines("consume", "accounts", "--at", second, "--since", first)
        assert sorted(between) == ["-7", "7"]
    assert len(standalone.lines("consume", "accounts", "--at", second, "--count", "3")) == 3
    standalone.run("consume", "numbers-of-nobody", "--at", second, status=FIX)
    standalone.run("consume", "accounts", "--at", second[:-5], status=FIX)
    standalone.run("consume", "accounts", "--at", first, "--since", second, status=FIX)
    standalone.run("cut", "numbers-of-nobody", status=FIX)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--since", "cut1-A"], "--at"),
        (["--at", "cut1-A", "--subscription", "s"], "without a subscription"),
        (["--at", "cut1-A", "--from", "latest"], "from its beginning"),
        (["--at", "@/nowhere/cut"], "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(
    arguments: list[str], reason: str
) -> None:
    done = CliRunner().invoke(cli, ["consume", "accounts", *arguments])
    assert done.exit_code == 2
    assert reason in done.output
