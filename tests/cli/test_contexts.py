"""Contexts: which cluster a command talks to, and with which credentials."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.cli.running import Standalone
from tests.json_output import read_json

from magnetar_cli.contexts import FILE_VARIABLE, chosen_broker
from magnetar_cli.link_options import SETTINGS
from magnetar_cli.program import cli

TOKEN = "MAGNETAR_TOKEN_FILE"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config" / "contexts.json"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    for name in ("MAGNETAR_BROKER", "MAGNETAR_CONTEXT", *SETTINGS.values()):
        monkeypatch.delenv(name, raising=False)
    return file


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """A command changes the environment of its process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def chosen(*arguments: str) -> tuple[str, str | None]:
    """Return the brokers and the file of the token that a command would use."""
    found = []

    @click.command(name="probe")
    def probe() -> None:
        found.append((chosen_broker(), os.environ.get(TOKEN)))

    context = cli.make_context("magnetar", [*arguments, "topics"])
    with context:
        assert cli.callback is not None
        context.invoke(cli.callback, **context.params)
        context.invoke(probe)
    return found[0]


def two_contexts(tmp_path: Path) -> None:
    token = ("--token-file", str(tmp_path / "a.jwt"))
    assert run("context", "set", "a", "--broker", "a:1,a:2", *token).exit_code == 0
    assert run("context", "set", "b", "--broker", "b:1", "--tls").exit_code == 0


def test_the_first_context_is_the_current_one_until_another_is_chosen(
    file: Path, tmp_path: Path
) -> None:
    assert chosen() == ("127.0.0.1:6650", None)
    two_contexts(tmp_path)
    assert chosen() == ("a:1,a:2", str(tmp_path / "a.jwt"))
    assert "b" in run("context", "use", "b").output
    assert chosen() == ("b:1", None)
    assert os.environ["MAGNETAR_TLS"] == "1"
    assert run("context", "remove", "b").exit_code == 0
    assert chosen() == ("127.0.0.1:6650", None)


def test_a_call_names_another_cluster(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_contexts(tmp_path)
    assert chosen("--context", "b") == ("b:1", None)
    assert chosen("--broker", "c:1") == ("c:1", None)
    monkeypatch.setenv("MAGNETAR_BROKER", "d:1")
    assert chosen() == ("d:1", None)
    assert chosen("--context", "b")[0] == "b:1"
    monkeypatch.setenv("MAGNETAR_CONTEXT", "b")
    assert chosen()[0] == "b:1"
    assert chosen("--context", "b", "--token-file", "own.jwt") == ("b:1", "own.jwt")
    refused = run("--context", "a", "--broker", "c:1", "topics", "list")
    assert isinstance(refused.exception, click.UsageError) or refused.exit_code == 2


def test_a_token_of_the_environment_is_not_shown_to_the_cluster_of_a_context(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to the cluster that MAGNETAR_BROKER names, or named."""
    two_contexts(tmp_path)
    monkeypatch.setenv(TOKEN, "of-another-cluster.jwt")
    assert chosen("--context", "b") == ("b:1", None)


def test_the_file_is_for_its_owner_and_has_no_token(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jwt").write_text("a secret")
    old_umask = os.umask(0)
    try:
        two_contexts(tmp_path)
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "a secret" not in file.read_text()
    listed = read_json("context list", run("context", "list", "--json").output)
    assert [(each["name"], each["is_current"]) for each in listed] == [("a", True), ("b", False)]
    assert list(file.parent.iterdir()) == [file]


def test_a_relative_name_of_a_file_is_kept_whole(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context is used in other directories than the one in which it was set."""
    monkeypatch.chdir(tmp_path)
    run("context", "set", "a", "--broker", "a:1", "--token-file", "a.jwt")
    assert chosen()[1] == str(tmp_path / "a.jwt")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"contexts": {"a": {}}}', '{"contexts": {"a": {"broker": 7}}}']
)
def test_a_damaged_file_is_named(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    for arguments in (("context", "list"), ("context", "set", "b", "--broker", "b:1")):
        result = run(*arguments)
        assert str(file) in str(result.exception) + result.output
    assert file.read_text() == content
    # A call that names its cluster does not need it.
    assert chosen("--broker", "c:1")[0] == "c:1"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("context", "use", "c"), "there are: a, b"),
        (("context", "remove", "c"), "there are: a, b"),
        (("--context", "c", "topics", "list"), "there are: a, b"),
        (("context", "set", "c", "--broker", "no address"), "no address"),
        (("context", "set", " ", "--broker", "c:1"), "NAME"),
    ],
)
def test_what_is_wrong_is_told(
    file: Path, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    two_contexts(tmp_path)
    before = file.read_text()
    result = run(*arguments)
    assert result.exit_code != 0
    assert text in str(result.exception) + result.output
    assert file.read_text() == before


def test_commands_talk_to_the_cluster_of_the_context(
    standalone: Standalone, tmp_path: Path
) -> None:
    environ = dict(standalone.environ)
    address = environ.pop("MAGNETAR_BROKER")
    environ[FILE_VARIABLE] = str(tmp_path / "contexts.json")
    without = Standalone(standalone.process, standalone.ready_file, environ)
    without.run("context", "set", "here", "--broker", address)
    without.run("topics", "create", "by-context")
    assert "by-context" in [one["topic"] for one in standalone.json("topics", "list")]
