"""The command line without a server."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.cli.test_optimized import EVERY

from magnetar_cli import habits
from magnetar_cli.commands.transactions import HANGING_STATUS
from magnetar_cli.errors import STATUS_OF_KIND, explain
from magnetar_cli.event_loop import status_of_signal
from magnetar_cli.output import duration, print_table
from magnetar_cli.program import COMPLETION_VARIABLE, EXIT_STATUS, cli
from magnetar_cli.types import Duration, Separator, Size
from magnetar_core.config import InvalidConfig
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import ERROR_OF_CODE, LogUnavailable, TopicNotFound
from magnetar_core.transport.transport import LinkClosed

COMMANDS = [
    [],
    ["standalone"],
    ["broker"],
    ["coordinator"],
    ["health"],
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
    ["transactions", "history"],
    ["transactions", "commit"],
    ["transactions", "abort"],
    ["transactions", "accept-loss"],
    ["top"],
    ["console"],
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
        (["produce", "a", "--key-separator", ""], "give a text"),
        (["produce", "a", "--messages-per-transaction", "5"], "needs --transactional"),
        (["consume", "a", "--format", "json", "--key-separator", ":"], "JSON names the key"),
        (["produce", "a", "--json", "--key-separator", ":"], "JSON names the key"),
        (["transactions", "list", "--all", "--status", "open"], "leave out --status"),
        (["subscriptions", "seek", "a", "s", "--to", "5"], "add --partition"),
        (["subscriptions", "seek", "a", "s", "--to", "noon"], "earliest, latest"),
        (["transactions", "abort", "xyz"], "transactions list"),
        (["standalone", "--port", "65535"], "choose a lower port"),
        (["--broker", "a:1,b:2", "coordinator"], "--cluster-file"),
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
        (["console", "--host", "0.0.0.0"], "--allow-remote"),
        (["console", "--host", "0.0.0.0", "--allow-remote"], "--name"),
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

    advice = TopicNotFound.advice.removesuffix(".")
    assert "magnetar standalone" in text(LinkClosed("cannot talk to 127.0.0.1:1"))
    assert text(TopicNotFound("no topic 'a'")) == (
        f"TopicNotFound: no topic 'a' ({TopicNotFound.happened} {advice})"
    )
    assert text(TopicNotFound()) == (f"TopicNotFound: {TopicNotFound.happened} {advice}")
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
    signals = {status_of_signal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    assert told == {0, 2, *STATUS_OF_KIND.values(), *signals}
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


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        (":", b":"),
        (r"\t", b"\t"),
        ("\t", b"\t"),
        (r"\\", b"\\"),
        (r"\\t", b"\\t"),
        (r"\x00\xfF", b"\x00\xff"),
        ("±", "±".encode()),
        ("\udcff", b"\xff"),
    ],
)
def test_a_separator_has_the_escape_sequences_of_kcat(text: str, separator: bytes) -> None:
    assert Separator().convert(text, None, None) == separator


@pytest.mark.parametrize("text", ["", "\\", r"\q", r"\xg0", r"a\\\b", "\n", r"\x0a"])
def test_a_separator_that_means_something_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Separator().convert(text, None, None)


class Terminal(io.StringIO):
    """A terminal, as far as printing is concerned."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", ["20", "200"])
def test_no_name_is_shortened_for_a_narrow_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, name = Terminal(), "a" * 200
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    print_table(("TOPIC", "ID"), [(name, 1), ("b", 2)], empty="")
    heading, first, second = terminal.getvalue().splitlines()
    assert "ID" in heading
    assert first.split() == [name, "1"]
    assert second.split() == ["b", "2"]


def advice(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, prog_name="magnetar")
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split()).partition("Error: ")[2]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("topics list --bootstrap-server a:1", "magnetar --broker HOST:PORT,... topics list"),
        ("--bootstrap-server a:1 topics list", "magnetar --broker HOST:PORT,... COMMAND"),
        ("topics list --broker a:1", "magnetar --broker ... topics list"),
        ("topics list --token-file f", "magnetar --token-file ... topics list"),
        ("consume --topic a", "magnetar consume TOPIC"),
        ("topics describe --topic a", "magnetar topics describe TOPIC"),
        ("groups describe --group a", "magnetar groups describe GROUP"),
        ("consume a --group b", "write --subscription NAME"),
        ("consume a --from-beginning", "write --from earliest"),
        ("consume a -o beginning", "write --from earliest"),
        ("consume a --max-messages 3", "write --count N"),
        ("consume a --partitions 3", "magnetar topics create TOPIC --partitions N"),
        ("consume a --partition 3", "--json tells the partition"),
        ("produce a -m hello", "echo TEXT | magnetar produce TOPIC"),
        ("produce a --property parse.key=true", "write --key-separator TEXT"),
        ("topics create a --replication-factor 3", "leave it out"),
        ("topics list --format json", "write --json"),
        ("topics --list", "it is a command: magnetar topics list"),
        ("topic list", "did you mean `magnetar topics`?"),
        ("topics ls", "did you mean `magnetar topics list`?"),
        ("txn list", "did you mean `magnetar transactions`?"),
        ("topics descirbe a", "did you mean `magnetar topics describe`?"),
        # What is only mistyped has the suggestion of click.
        ("consume a --cuont 3", "'--count'"),
    ],
)
def test_habits_of_kafka_pulsar_and_kcat_are_answered(typed: str, told: str) -> None:
    assert told in advice(*typed.split())


def options_of(command: click.Command) -> set[str]:
    return {option for one in command.params for option in (*one.opts, *one.secondary_opts)}


def test_every_advice_names_what_there_is() -> None:
    """Options and commands may be renamed."""
    every = {" ".join(path): find(path) for path in EVERY}
    options = set[str]().union(*map(options_of, every.values()))
    for command, texts in {"": habits.EVERYWHERE, **habits.BY_COMMAND}.items():
        there = options_of(every[command]) if command else set()
        for typed, text in texts.items():
            assert typed not in there, f"{command} has {typed}"
            for named in re.findall(r"--[a-z-]+", text):
                assert named in options, text
            for named in re.findall(r"magnetar ([a-z]+(?: [a-z]+)?)", text):
                assert named in every, text
    names = {path[-1] for path in EVERY if path}
    assert set(habits.COMMANDS.values()) <= names


def find(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: str) -> None:
    printed = CliRunner().invoke(cli, ["completion", shell], prog_name="magnetar").output
    assert COMPLETION_VARIABLE in printed
    assert CliRunner().invoke(cli, ["completion"], env={"SHELL": f"/bin/{shell}"}).output == printed


def test_a_shell_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "name the shell: bash, zsh, fish" in advice("completion")
