"""`magnetar access check`, and the example of docs/security.md."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner
from tests.json_output import read_json

from magnetar_cli.program import cli

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def example(tmp_path: Path) -> str:
    found = re.search(r"```toml\n(# access.toml\n.*?)```", PAGE, re.DOTALL)
    assert found is not None
    path = tmp_path / "access.toml"
    path.write_text(found.group(1))
    return str(path)


def test_the_example_of_the_page_is_right(tmp_path: Path) -> None:
    path = example(tmp_path)
    done = CliRunner().invoke(cli, ["access", "check", path])
    assert done.exit_code == 0, done.output
    assert "ops-*" in done.output
    done = CliRunner().invoke(cli, ["access", "check", path, "--principal", "billing", "--json"])
    told = read_json("access check", done.output)
    assert told["roles"] == ["orders-reader", "billing-writer"]
    assert {(one["resource"], one["name"]) for one in told["grants"]} == {
        ("topic", "orders"),
        ("topic", "invoices"),
        ("group", "billing-*"),
    }


def test_a_stranger_may_do_nothing(tmp_path: Path) -> None:
    arguments = ["access", "check", example(tmp_path), "--principal", "eve"]
    assert "eve may do nothing" in CliRunner().invoke(cli, arguments).stderr


def test_a_wrong_file_is_said_to_be_wrong(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text('[principals]\nalice = "boss"')
    done = CliRunner().invoke(cli, ["access", "check", str(path)])
    assert done.exit_code == 1
    assert "'boss', which does not exist" in done.stderr


def test_servers_have_the_option() -> None:
    for server in ("broker", "coordinator", "standalone"):
        assert "--access-file" in CliRunner().invoke(cli, [server, "--help"]).output
