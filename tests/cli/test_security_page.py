"""docs/security.md, command by command, with the files that it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.running import Standalone, running_standalone
from tests.system.programs import run, values

import magnetar
from magnetar_core.security.proof_keys_file import proof_keys_file

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
PLAIN, MUTUAL, TOKENS = range(3)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def commands(program: str) -> list[list[str]]:
    parts = [
        part.replace("\\\n", " ")
        for block in blocks("console")
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    return [words for words in map(shlex.split, parts) if words[0] == program]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all that the page tells to make lies."""
    found = tmp_path_factory.mktemp("security")
    for words in commands("openssl"):
        done = subprocess.run(words, cwd=found, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
    maker = next(one for one in blocks("python") if "jwt.encode" in one)
    subprocess.run([sys.executable, "-c", maker], cwd=found, check=True, timeout=60)
    (revoked,) = blocks("text")
    (found / "revoked").write_text(revoked.replace("token trial-alice\n", ""))
    return found


@contextmanager
def serving(directory: Path, kind: int) -> Iterator[Standalone]:
    """Servers with one of the configurations of the page."""
    own = directory / f"of-{kind}"
    own.mkdir()
    files = {one.name for one in directory.iterdir()}
    text = re.sub(
        r'"([^"]+)"',
        lambda found: f'"{directory / found[1]}"' if found[1] in files else found[0],
        blocks("toml")[kind],
    )
    config = own / "magnetar.toml"
    config.write_text(text)
    with running_standalone(own, "--config", str(config)) as running:
        yield running


def magnetar_command(
    words: list[str], directory: Path, standalone: Standalone
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magnetar_cli", *words[1:]],
        cwd=directory,
        env=standalone.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )


def with_option(option: str) -> list[list[str]]:
    options = ("--tls-certificate-file", "--token-file")
    return [
        words
        for words in commands("magnetar")
        if (option in words if option else not any(one in words for one in options))
    ]


def test_tls(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(directory, PLAIN) as standalone:
        printed = []
        for words in with_option(""):
            done = magnetar_command(words, directory, standalone)
            assert done.returncode == 0, (words, done.stderr)
            printed.append(done.stdout)
        assert len(printed) == 2
        assert "SERVING" in printed[-1]

        monkeypatch.chdir(directory)
        address = standalone.environ["MAGNETAR_BROKER"]
        names: dict[str, object] = {}
        exec(next(one for one in blocks("python") if "async def main" in one), names)
        main = names["main"]
        assert callable(main)

        async def work() -> None:
            tls = magnetar.TlsFiles(ca_file="ca.pem")
            await main(address)
            async with await magnetar.connect(address, tls=tls) as client:
                assert await values(client, "orders") == [b"an order"]

        run(work())


def test_certificates_of_clients(directory: Path) -> None:
    with serving(directory, MUTUAL) as standalone:
        ((*words,),) = with_option("--tls-certificate-file")
        done = magnetar_command(words, directory, standalone)
        assert done.returncode == 0, done.stderr
        stranger = magnetar_command(
            ["magnetar", "--tls-ca-file", "ca.pem", "topics", "list"], directory, standalone
        )
        assert stranger.returncode == 1
        assert "the server ended the TLS handshake" in stranger.stderr


def test_tokens(directory: Path) -> None:
    with serving(directory, TOKENS) as standalone:
        ((*words,),) = with_option("--token-file")
        done = magnetar_command(words, directory, standalone)
        assert done.returncode == 0, done.stderr
        stranger = magnetar_command(
            ["magnetar", "--tls-ca-file", "ca.pem", "topics", "list"], directory, standalone
        )
        assert stranger.returncode == 1
        assert "this server asks for a token" in stranger.stderr
        # Health checks need none.
        ready = standalone.ready()
        health = ["magnetar", "--tls-ca-file", "ca.pem", "health", ready["coordinator"]["address"]]
        assert magnetar_command(health, directory, standalone).returncode == 0


def test_keys_of_proofs(tmp_path: Path) -> None:
    (maker,) = blocks("bash")
    subprocess.run(["bash", "-ec", maker], cwd=tmp_path, check=True, timeout=60)
    (text,) = [one for one in blocks("toml") if "txn_proof_keys_file" in one]
    (named,) = {section["txn_proof_keys_file"] for section in tomllib.loads(text).values()}
    keys = proof_keys_file(str(tmp_path / named), lambda: 0.0).content()
    assert list(keys.keys) == ["2026-11"]


def test_what_people_are_told_is_what_is_said() -> None:
    """The table of messages has them as they are in the code."""
    table = PAGE.partition("## When it does not work")[2].partition("## etcd")[0]
    said = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.*?) \| ", table, re.MULTILINE)))
    core = Path(__file__).parents[2] / "core" / "magnetar_core" / "security"
    code = "".join(one.read_text() for one in core.glob("*.py"))
    code = re.sub(r'"\s+f?"', "", code)
    for one in said:
        for part in one.split("..."):
            assert part.strip() in code, one
