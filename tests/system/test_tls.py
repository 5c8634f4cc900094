"""A whole cluster that talks TLS: servers to each other, the SDK and the command line to them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.cli.running import Standalone, running_standalone
from tests.system.programs import run, values

import magnetar
from magnetar import AuthenticationFailed, TlsFiles
from magnetar_core.clock import SystemClock
from magnetar_core.security.certificate_metrics import NAME as EXPIRES

MAGNETAR = (sys.executable, "-m", "magnetar_cli")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def standalone(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standalone]:
    server = authority.sign("server")
    config = tmp_path_factory.mktemp("config") / "magnetar.toml"
    section = "\n".join(
        f"{name} = {json.dumps(value)}"
        for name, value in (
            ("tls_certificate_file", server.certificate_file),
            ("tls_key_file", server.key_file),
            ("tls_ca_file", authority.ca_file),
        )
    )
    config.write_text(f"[broker]\n{section}\n[coordinator]\n{section}\n")
    directory = tmp_path_factory.mktemp("standalone")
    with running_standalone(directory, "--config", str(config)) as running:
        yield running


def address(standalone: Standalone) -> str:
    return standalone.environ["MAGNETAR_BROKER"]


def test_transactions_commit_over_tls(authority: Authority, standalone: Standalone) -> None:
    async def work() -> None:
        tls = TlsFiles(ca_file=authority.ca_file)
        async with await magnetar.connect(address(standalone), tls=tls) as client:
            await client.admin.topics.create("over-tls", partitions=2)
            producer = await client.create_producer("over-tls")
            txn = await client.begin_transaction()
            await producer.send(b"first", partition=0, txn=txn)
            await producer.send(b"second", partition=1, txn=txn)
            await txn.commit(wait_finished=True)
            assert await values(client, "over-tls", 0) == [b"first"]
            assert await values(client, "over-tls", 1) == [b"second"]

    run(work())


def test_the_command_line_talks_tls(authority: Authority, standalone: Standalone) -> None:
    option = ("--tls-ca-file", authority.ca_file)
    standalone.run(*option, "topics", "create", "by-command")
    assert b"by-command" in standalone.run(*option, "topics", "list").stdout
    found = json.loads(standalone.run(*option, "health", "--json").stdout)
    assert {one["status"] for one in found} == {"SERVING"}
    assert {one["kind"] for one in found} == {"broker", "coordinator"}


def test_the_environment_says_the_same(authority: Authority, standalone: Standalone) -> None:
    done = subprocess.run(
        [*MAGNETAR, "topics", "list"],
        env=standalone.environ | {"MAGNETAR_TLS_CA_FILE": authority.ca_file},
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def refusals(authority: Authority, directory: Path) -> dict[str, tuple[TlsFiles | None, str]]:
    stranger = Authority(directory / "stranger")
    return {
        "plain text": (None, "if it talks TLS, name the authority"),
        "wrong authority": (TlsFiles(ca_file=stranger.ca_file), "--tls-ca-file"),
        "no authority": (TlsFiles(), "--tls-ca-file"),
        "another name": (
            TlsFiles(ca_file=authority.ca_file, server_name="elsewhere.example"),
            "is for another name",
        ),
    }


@pytest.mark.parametrize("how", ["wrong authority", "no authority", "another name"])
def test_the_sdk_says_at_once_what_is_wrong(
    how: str, authority: Authority, standalone: Standalone, tmp_path: Path
) -> None:
    tls, meaning = refusals(authority, tmp_path)[how]

    async def work() -> None:
        with pytest.raises(AuthenticationFailed, match=meaning):
            await magnetar.connect(address(standalone), tls=tls)

    run(work(), timeout_s=10)


def test_servers_tell_when_their_certificates_expire(standalone: Standalone) -> None:
    for server in ("broker", "coordinator"):
        with urllib.request.urlopen(standalone.ready()[server]["metrics"], timeout=10) as reply:
            text = reply.read().decode()
        (line,) = [one for one in text.splitlines() if one.startswith(f"{EXPIRES} ")]
        assert float(line.split()[1]) > SystemClock().wall_ms() / 1_000


@pytest.mark.parametrize("how", ["plain text", "wrong authority", "another name"])
def test_the_command_line_says_what_is_wrong(
    how: str, authority: Authority, standalone: Standalone, tmp_path: Path
) -> None:
    tls, meaning = refusals(authority, tmp_path)[how]
    options: list[str] = []
    if tls is not None:
        options = ["--tls-ca-file", tls.ca_file]
        if tls.server_name:
            options += ["--tls-server-name", tls.server_name]
    status = 10 if tls is None else 1
    done = standalone.run(*options, "topics", "list", status=status)
    assert meaning in done.stderr.decode()
    if tls is not None:
        assert "is it running?" not in done.stderr.decode()


def test_who_talks_tls_to_a_server_that_does_not_is_told_so(
    authority: Authority, tmp_path: Path
) -> None:
    with running_standalone(tmp_path) as plain:
        done = plain.run("--tls-ca-file", authority.ca_file, "topics", "list", status=1)
        assert "the server talks plain text" in done.stderr.decode()


def test_an_expired_certificate_of_a_server_is_named(
    authority: Authority, tmp_path: Path, fake_tls_server: Callable[[str, str], str]
) -> None:
    expired = authority.sign("server", expired=True, file="expired")
    at = fake_tls_server(expired.certificate_file, expired.key_file)

    async def work() -> None:
        with pytest.raises(AuthenticationFailed, match="the server's certificate has expired"):
            await magnetar.connect(at, tls=TlsFiles(ca_file=authority.ca_file))

    run(work(), timeout_s=10)


@pytest.fixture
def fake_tls_server() -> Iterator[Callable[[str, str], str]]:
    """A gRPC server without services: TLS comes first."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    servers: list[grpc.Server] = []

    def start(certificate_file: str, key_file: str) -> str:
        server = grpc.server(ThreadPoolExecutor(1))
        pair = (Path(key_file).read_bytes(), Path(certificate_file).read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()
