"""etcd is compacted, or is full one day: members complain in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.cluster.directories import S0, run_in_time, settings
from tests.etcd_server import EtcdServer, started
from tests.waiting import until

from magnetar_cluster.etcd.etcd_directory import EtcdDirectory
from magnetar_cluster.etcd.etcd_history import watch_history
from magnetar_storage.durable_mark import DurableMark
from magnetar_storage.store import StoreDamaged


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One member of etcd that only these tests use, since they compact it."""
    yield from started(tmp_path_factory.mktemp("etcd"), 1)


async def marked(directory: EtcdDirectory, count: int) -> None:
    for sequence in range(count):
        assert await directory.note_durable(S0, 0, DurableMark(1, sequence))


def test_an_etcd_that_is_never_compacted_is_complained_of(
    etcd: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        directory = EtcdDirectory(settings(etcd), "c")
        await marked(directory, 10)
        assert not await directory.keeps_revisions(1_000)
        assert await directory.keeps_revisions(5)
        watching = asyncio.create_task(watch_history(directory, 5))
        await until(lambda: "--auto-compaction-retention" in caplog.text)
        watching.cancel()
        await directory.close()

    run_in_time(test())


def test_an_etcd_that_is_compacted_is_not(
    etcd: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        directory = EtcdDirectory(settings(etcd), "c")
        await marked(directory, 10)
        revision = etcd.control("get", "--write-out=fields", "none").split('"Revision" : ')[1]
        await asyncio.to_thread(etcd.control, "compact", revision.split()[0])
        assert not await directory.keeps_revisions(5)
        await marked(directory, 10)
        assert await directory.keeps_revisions(5)
        await directory.close()

    run_in_time(test())
    assert caplog.text == ""


def test_a_mark_that_cannot_be_read_is_no_mark(etcd: EtcdServer) -> None:
    async def test() -> None:
        directory = EtcdDirectory(settings(etcd), "d")
        await asyncio.to_thread(etcd.control, "put", "/magnetar/d/written/broker/0", "7")
        with pytest.raises(StoreDamaged, match=r"/magnetar/d/written/broker/0.* cannot be read"):
            await directory.durable_mark(S0)
        await directory.close()

    run_in_time(test())
