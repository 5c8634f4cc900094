"""The command line without a server."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from magnetar_cli.commands.produce import LineReader
from magnetar_cli.commands.transactions import HANGING_STATUS
from magnetar_cli.errors import STATUS_OF_KIND, explain
from magnetar_cli.output import duration
from magnetar_cli.program import EXIT_STATUS, cli
from magnetar_cli.types import Duration, Size
from magnetar_core.config import InvalidConfig
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import ERROR_OF_CODE, LogUnavailable, TopicNotFound
from magnetar_core.transport import LinkClosed

COMMANDS = [
    [],
    ["standalone"],
    ["broker"],
    ["coordinator"],
    ["health"],
    ["demo"],
    ["cluster"],
    ["cluster", "members"],
    ["cluster", "shards"],
    ["cluster", "drain"],
    ["cluster", "move"],
    ["cluster", "rebalance"],
    ["cluster", "up"],
    ["topics"],
    ["topics", "create"],
    ["topics", "list"],
    ["topics", "describe"],
    ["topics", "offsets"],
    ["topics", "delete"],
    ["subscriptions"],
    ["subscriptions", "list"],
    ["subscriptions", "delete"],
    ["subscriptions", "seek"],
    ["produce"],
    ["consume"],
    ["cut"],
    ["transactions"],
    ["transactions", "list"],
    ["transactions", "describe"],
    ["transactions", "commit"],
    ["transactions", "abort"],
    ["transactions", "accept-loss"],
    ["pipeline"],
    ["pipeline", "audit"],
    ["pipeline", "offload"],
    ["pipeline", "restore"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage: " in result.output


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["fly"], "No such command"),
        (["topics", "create"], "Missing argument"),
        (["topics", "create", "a", "--partitions", "0"], "--partitions"),
        (["topics", "create", "a", "--retention", "soon"], "write 500ms"),
        (["produce", "a", "--key-separator", ""], "give it a text"),
        (["produce", "a", "--messages-per-transaction", "5"], "needs --transactional"),
        (["consume", "a", "--format", "json", "--key-separator", ":"], "JSON names the key"),
        (["subscriptions", "seek", "a", "s", "--to", "5"], "add --partition"),
        (["subscriptions", "seek", "a", "s", "--to", "noon"], "neither earliest"),
        (["transactions", "abort", "xyz"], "transactions list"),
        (["standalone", "--port", "65535"], "choose a lower port"),
        (["--broker", "a:1,b:2", "coordinator"], "--cluster-file"),
        (["demo", "--flights", __file__, "--cluster", "--attach"], "servers of its own"),
        (["cluster", "drain", "a"], "with --etcd HOST:PORT"),
        (["cluster", "move", "broker-0"], "Missing argument"),
    ],
)
def test_wrong_usage_is_told_with_status_2(arguments: list[str], advice: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2, result.output
    assert advice in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--broker", "nonsense", "topics", "list"], "HOST:PORT"),
        (["standalone", "--host", "0.0.0.0"], "--allow-remote"),
    ],
)
def test_what_cannot_work_is_one_line_with_status_1(arguments: list[str], advice: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1, result.output
    assert advice in result.output
    assert "Traceback" not in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_errors_say_what_to_do_next() -> None:
    def text(error: Exception) -> str:
        return explain(error).message

    assert "magnetar standalone" in text(LinkClosed("cannot talk to 127.0.0.1:1"))
    assert text(TopicNotFound("no topic 'a'")) == (
        "TopicNotFound: no topic 'a' (No topic or partition of this name. No effect; create it, "
        "or correct the name)"
    )
    assert text(TopicNotFound()) == (
        "TopicNotFound: No topic or partition of this name. No effect; create it, or correct the"
        " name"
    )
    assert text(InvalidConfig("choose another port")) == "choose another port"
    unavailable = LogUnavailable("no answer")
    unavailable.__cause__ = LinkClosed("cannot talk to 127.0.0.1:1")
    assert "magnetar standalone" in text(unavailable)
    assert "--debug" in text(KeyError("x"))
    assert "magnetar[server]" in text(ModuleNotFoundError("No module named 'rocksdict'"))


def test_the_exit_status_says_the_kind() -> None:
    assert set(STATUS_OF_KIND) == set(ErrorKind)
    assert not {0, 2, HANGING_STATUS} & set(STATUS_OF_KIND.values()), "these mean something else"
    for error in ERROR_OF_CODE.values():
        assert explain(error("why")).exit_code == STATUS_OF_KIND[error.kind]
    assert explain(LinkClosed("nobody")).exit_code == STATUS_OF_KIND[ErrorKind.RETRY]
    assert explain(InvalidConfig("choose another port")).exit_code == 1
    assert explain(KeyError("x")).exit_code == STATUS_OF_KIND[ErrorKind.BUG]


def test_the_help_tells_every_exit_status() -> None:
    told = {int(one) for one in re.findall(r"\b\d+\b", EXIT_STATUS)}
    assert told == {0, 2, *STATUS_OF_KIND.values()}
    output = CliRunner().invoke(cli, ["--help"]).output
    assert EXIT_STATUS in " ".join(output.split())


def test_the_help_imports_neither_grpc_nor_a_server() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from magnetar_cli.program import cli; "
        "CliRunner().invoke(cli, ['standalone', '--help'], catch_exceptions=False); "
        "print(sorted({'rocksdict', 'prometheus_client', 'uvloop', 'magnetar_broker'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_durations_and_sizes() -> None:
    for text, ms in (("500ms", 500), ("1.5s", 1_500), ("15m", 900_000), ("7d", 604_800_000)):
        assert Duration().convert(text, None, None) == ms
    for text, size in (("10", 10), ("2KiB", 2_048), ("1.5M", 1_500_000), ("1GB", 10**9)):
        assert Size().convert(text, None, None) == size
    shown = [duration(ms) for ms in (350, 2_500, 723_000, 19_200_000, 273_600_000)]
    assert shown == ["350ms", "2.5s", "12m03s", "5h20m", "3d04h"]


class Pieces(io.RawIOBase):
    """A pipe that gives what arrives, however it is cut."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read1(self, _size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def test_lines_are_whole_however_they_arrive() -> None:
    reader = LineReader(Pieces(b"on", b"e\ntwo\n\nth", b"ree"), None)  # type: ignore[arg-type]
    pieces = []
    while not reader.ended:
        pieces.append(reader.read()[0])
    assert pieces == [[b"one", b"two", b""], [b"three"]]


def test_a_separator_parts_key_and_value() -> None:
    reader = LineReader(io.BytesIO(b"a:1\nb:2:3\n"), b":")
    assert reader.read() == ([b"1", b"2:3"], [b"a", b"b"])
    without = LineReader(io.BytesIO(b"a:1\nb\n"), b":")
    with pytest.raises(click.ClickException, match="line 2 has no ':'"):
        without.read()
