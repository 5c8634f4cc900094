"""docs/security.md, command by command, with the files that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import Standalone, running_standalone
from tests.system.programs import run, values

import magnetar

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def commands(program: str) -> Iterator[str]:
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command = part.replace("\\\n", " ").strip()
            if command.startswith(program):
                yield command


def shell(command: str, directory: Path, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command.replace("magnetar ", f"{sys.executable} -m magnetar_cli ", 1),
        shell=True,
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("security")
    for command in commands("openssl"):
        shell(command, found)
    return found


@pytest.fixture(scope="module")
def standalone(directory: Path) -> Iterator[Standalone]:
    text = blocks("toml")[0]
    for name in ("server.pem", "server.key", "ca.pem"):
        text = text.replace(f'"{name}"', f'"{directory / name}"')
    config = directory / "magnetar.toml"
    config.write_text(text)
    with running_standalone(directory, "--config", str(config)) as running:
        yield running


def test_the_commands(directory: Path, standalone: Standalone) -> None:
    printed = [shell(one, directory, standalone.environ) for one in commands("magnetar")]
    assert len(printed) == 2
    assert "SERVING" in printed[-1]


def test_the_program(
    directory: Path, standalone: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    address = standalone.environ["MAGNETAR_BROKER"]
    names: dict[str, object] = {}
    exec(blocks("python")[0], names)
    main = names["main"]
    assert callable(main)

    async def work() -> None:
        tls = magnetar.TlsFiles(ca_file="ca.pem")
        async with await magnetar.connect(address, tls=tls) as client:
            if "orders" not in [one.topic for one in await client.admin.topics.list()]:
                await client.admin.topics.create("orders")
            await main(address)
            assert b"an order" in await values(client, "orders")

    run(work())
