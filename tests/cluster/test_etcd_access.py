"""Who may use etcd: users with passwords, and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.cluster.directories import LONG_MS, MEMBER, S0, A, present, run_in_time, settings
from tests.etcd_server import EtcdServer, started

from magnetar_cluster.directory.cluster_directory import ClusterDirectoryUnavailable
from magnetar_cluster.directory.view import ShardOwner
from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_settings import EtcdSettings
from magnetar_storage.durable_mark import DurableMark

PASSWORD = "hush"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One member of etcd, with a user who may touch one cluster's rows."""
    for server in started(tmp_path_factory.mktemp("guarded"), 1):
        server.control("user", "add", f"root:{PASSWORD}")
        server.control("user", "grant-role", "root", "root")
        server.control("role", "add", "servers")
        server.control(
            "role", "grant-permission", "servers", "readwrite", "--prefix", "/magnetar/c/"
        )
        server.control("user", "add", f"magnetar:{PASSWORD}")
        server.control("user", "grant-role", "magnetar", "servers")
        server.control("auth", "enable")
        yield server


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One member of etcd that talks TLS, with a certificate that it signed itself."""
    yield from started(tmp_path_factory.mktemp("encrypted"), 1, ["--auto-tls"])


async def use(directory: EtcdDirectory) -> None:
    """All kinds of calls."""
    lease = await directory.grant(LONG_MS)
    await directory.renew(lease)
    assert await directory.join(lease, A, MEMBER)
    epoch = await directory.claim(lease, S0, "a")
    assert epoch
    async with aclosing(directory.watch()) as views:
        assert (await anext(views)).shard_owners == {S0: ShardOwner("a", epoch)}
        await directory.pin(S0, "b")
        assert (await anext(views)).pins == {S0: "b"}
    assert await directory.note_durable(S0, epoch, DurableMark(1, 7))
    assert await directory.durable_mark(S0) == DurableMark(1, 7)
    await directory.revoke(lease)
    assert (await present(directory)).shard_owners == {}


def test_a_user_with_a_password(guarded: EtcdServer) -> None:
    async def test() -> None:
        directory = EtcdDirectory(settings(guarded, user="magnetar", password=PASSWORD), "c")
        await use(directory)
        guarded.kill()
        guarded.start()
        await use(directory)
        # etcd forgets tokens that were not used for some minutes.
        directory._client._token = "forgotten.1"
        await use(directory)
        assert directory._client._token != "forgotten.1"
        await directory.close()

    run_in_time(test())


@pytest.mark.parametrize(
    ("user", "password", "cluster", "reason"),
    [
        ("magnetar", "wrong", "c", "authentication failed"),
        ("nobody", PASSWORD, "c", "authentication failed"),
        ("magnetar", PASSWORD, "other", "permission denied"),
        ("", "", "c", "user name is empty"),
    ],
)
def test_who_may_not_use_it_is_told_at_once(
    guarded: EtcdServer, user: str, password: str, cluster: str, reason: str
) -> None:
    async def test() -> None:
        directory = EtcdDirectory(settings(guarded, user=user, password=password), cluster)
        with pytest.raises(ClusterDirectoryUnavailable, match=f"refuses.*{reason}") as refused:
            await directory.format(None)
        assert PASSWORD not in str(refused.value)
        await directory.close()

    run_in_time(test())


def test_tls(encrypted: EtcdServer) -> None:
    async def test() -> None:
        certificate = encrypted.members[0].certificate()
        directory = EtcdDirectory(settings(encrypted, tls=True, ca_certificates=certificate), "c")
        await use(directory)
        await directory.close()

    run_in_time(test())


def asking(server: EtcdServer, directory: Path) -> EtcdSettings:
    """What is in the files, and is read again."""
    return settings(
        server,
        tls=True,
        ca_certificates=(directory / "ca.pem").read_bytes(),
        certificate=(directory / "both.pem").read_bytes(),
        private_key=(directory / "both.key").read_bytes(),
        read_again=lambda: asking(server, directory),
    )


def test_new_certificates_need_no_restart(tmp_path: Path) -> None:
    """etcd asks for certificates of an authority, and then for those of another one."""
    files = tmp_path / "files"
    certificate = Authority(files).sign("both")
    more = [
        *("--cert-file", certificate.certificate_file, "--key-file", certificate.key_file),
        *("--client-cert-auth", "--trusted-ca-file", str(files / "ca.pem")),
    ]

    async def test(etcd: EtcdServer) -> None:
        directory = EtcdDirectory(asking(etcd, files), "c")
        await use(directory)
        etcd.kill()
        Authority(files, "another authority").sign("both")
        etcd.start()
        await use(directory)
        await directory.close()

    for etcd in started(tmp_path, 1, more):
        run_in_time(test(etcd))


def test_damaged_new_files_leave_the_former_ones(encrypted: EtcdServer) -> None:
    def damaged() -> EtcdSettings:
        raise ValueError("it is damaged")

    async def test() -> None:
        certificate = encrypted.members[0].certificate()
        directory = EtcdDirectory(
            settings(encrypted, tls=True, ca_certificates=certificate, read_again=damaged), "c"
        )
        await use(directory)
        encrypted.kill()
        encrypted.start()
        await use(directory)
        await directory.close()

    run_in_time(test())


@pytest.mark.parametrize("tls", [False, True])
def test_whoever_is_not_trusted_is_not_used(encrypted: EtcdServer, tls: bool) -> None:
    async def test() -> None:
        stranger = EtcdSettings(
            endpoints=encrypted.endpoints, tls=tls, endpoint_timeout_ms=500, call_timeout_ms=1_000
        )
        directory = EtcdDirectory(stranger, "c")
        with pytest.raises(ClusterDirectoryUnavailable, match="does not answer"):
            await directory.format(None)
        await directory.close()

    run_in_time(test())
