"""Stores in an object store that lost objects while nobody had them open: none opens unnoticed.

Source: docs/design/0021-durable-marks.md.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import obstore
import pytest
from tests.object_server import ObjectServer
from tests.storage.slate_stores import directory_of, place_in_bucket
from tests.waiting import until

from magnetar_core.config import InvalidConfig
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.durable_mark import DurableMark
from magnetar_storage.object_store.object_marks import ObjectMarkPlace
from magnetar_storage.object_store.shared_prefix import mark_names, place_of_store, store_url
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.offline import slate_accepted_loss as accepted_loss
from magnetar_storage.slatedb.end import end_of_store
from magnetar_storage.slatedb.engine import SlateStore
from magnetar_storage.store import KEY_END, StoreDamaged, StoreFenced, WriteBatch
from magnetar_storage.store_identity import LOSSES_OF_EVERYTHING

KIND, NAME = "broker", "broker-0"
META = store_identity.IDENTITY_FAMILY
FAMILIES = ("rows", META)


class Server:
    """A server that keeps its rows below an address, and is started and killed."""

    def __init__(self, prefix: ObjectStoreUrl, *others: str) -> None:
        self.prefix = prefix
        self.url = store_url(prefix, KIND, NAME)
        self.mark_names = mark_names(KIND, NAME, others)
        self.mark_place = ObjectMarkPlace(prefix, self.mark_names)

    async def opened(self, *, unflushed_groups_max: int = 1_000) -> SlateStore:
        return await SlateStore.open(
            self.url,
            FAMILIES,
            unflushed_groups_max=unflushed_groups_max,
            mark_place=self.mark_place,
            owner_is_silent=True,
        )

    async def run(self, first: int, end: int) -> None:
        """A life with an orderly end: its first row goes to tables, the others stay in the log."""
        store = await self.opened()
        await commit(store, first, first + 1)
        await until(lambda: store._background.flush_count)
        await commit(store, first + 1, end)
        await store.close()

    async def rows(self) -> list[int]:
        store = await self.opened()
        found = [int(key) for key, _ in await store.scan("rows", b"", KEY_END, rows_max=10_000)]
        await store.close()
        return found

    async def losses(self) -> int:
        store = await self.opened()
        try:
            return await store_identity.accepted_losses(store, META)
        finally:
            await store.close()

    async def ledger_id(self) -> int:
        store = await self.opened()
        try:
            return await store_identity.ledger_of(store, META)
        finally:
            await store.close()

    async def refusal(self) -> str:
        with pytest.raises(StoreDamaged) as raised:
            await self.opened()
        return str(raised.value)


async def commit(store: SlateStore, first: int, end: int) -> None:
    for number in range(first, end):
        batch = WriteBatch()
        batch.put("rows", b"%06d" % number, b"value")
        if not number:
            identity = StoreIdentity(kind=KIND, member=NAME, format=1)
            batch.put(META, store_identity.KEY, identity.SerializeToString())
        await store.write(batch)
        await store.sync()


class Local(Server):
    """A server whose objects are files, which a test damages."""

    def __init__(self, tmp_path: Path, *others: str) -> None:
        super().__init__(directory_of(tmp_path), *others)
        self.directory = Path(self.url.directory)
        self.mark, *self.copies = (Path(self.prefix.directory, name) for name in self.mark_names)
        self._kept = tmp_path / "kept"

    def log(self, below: str = "") -> list[Path]:
        return sorted((self.directory / below / "wal").iterdir())

    def keep(self) -> None:
        """Note how everything is now."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.prefix.directory, self._kept)

    def put_back(self) -> None:
        shutil.rmtree(self.prefix.directory)
        shutil.copytree(self._kept, self.prefix.directory)

    def contents(self) -> dict[str, bytes]:
        files = (one for one in Path(self.prefix.directory).rglob("*") if one.is_file())
        return {str(file): file.read_bytes() for file in files}


def of_newest(count: int) -> Callable[[Local], None]:
    def remove(server: Local) -> None:
        for one in server.log()[-count:]:
            one.unlink()

    return remove


def in_the_middle(server: Local) -> None:
    server.log()[-4].unlink()


def a_bit(server: Local) -> None:
    path = server.log()[-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def half(server: Local) -> None:
    path = server.log()[-1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def whole_log(server: Local) -> None:
    shutil.rmtree(server.directory / "wal")


def manifests(server: Local) -> None:
    shutil.rmtree(server.directory / "manifest")


def manifest_damaged(server: Local) -> None:
    path = max((server.directory / "manifest").iterdir())
    path.write_bytes(path.read_bytes()[:100])


def whole_store(server: Local) -> None:
    shutil.rmtree(server.directory)


def mark_missing(server: Local) -> None:
    server.mark.unlink()


def mark_damaged(server: Local) -> None:
    server.mark.write_bytes(b"7")


class Damage(NamedTuple):
    """What happens to a stopped server's objects.

    Attributes:
        reason: why the server does not start.
        rows: how many of ten rows are in front of the damage.
        has_more: whether there are objects of the log behind it.
        is_final: whether only the objects themselves help.
    """

    do: Callable[[Local], None]
    reason: str
    rows: int = 10
    has_more: bool = False
    is_final: bool = False


# The newest object of the log says that the store was closed. Six rows are in tables.
DAMAGES = {
    "the newest object of the log": Damage(of_newest(1), "missing at its end: 1 "),
    "the newest two": Damage(of_newest(2), "missing at its end: 2 ", 9),
    "the newest four": Damage(of_newest(4), "missing at its end: 4 ", 7),
    "the whole log": Damage(whole_log, "missing at its end: 5 ", 6),
    "an object of the log": Damage(
        in_the_middle, "missing, and newer objects follow it", 7, has_more=True
    ),
    "a bit of the log": Damage(a_bit, "is damaged", has_more=True),
    "half an object of the log": Damage(half, "is damaged", has_more=True),
    "the whole store": Damage(whole_store, "has no store, but .* says that there was one", 0),
    "the mark": Damage(mark_missing, "is missing, which says how far it was durable"),
    "the mark's content": Damage(mark_damaged, "says how far a store was durable, cannot be read"),
    "all manifests": Damage(manifests, "the manifest of .* is missing", is_final=True),
    "a manifest": Damage(
        manifest_damaged, "the newest manifest of .* cannot be read", is_final=True
    ),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in tables, and behind them five groups in the log: four rows, and that it was closed."""
    path = tmp_path_factory.mktemp("filled")

    async def fill() -> None:
        server = Local(path)
        await server.run(0, 5)
        await server.run(5, 10)

    asyncio.run(fill())
    return path


@pytest.fixture
def server(filled: Path, tmp_path: Path) -> Local:
    """A stopped server with ten rows."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return Local(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_store_that_lost_objects_is_refused_and_not_changed(
    damage: Damage, server: Local
) -> None:
    """So what was lost may be put back: no object of a new owner has its name."""

    async def scenario() -> None:
        server.keep()
        damage.do(server)
        left = server.contents()
        for _ in range(2):
            refusal = await server.refusal()
            assert re.search(damage.reason, refusal)
            assert "put back" in refusal
            assert ("accept-loss" in refusal) == (not damage.is_final)
        assert server.contents() == left
        server.put_back()
        assert await server.rows() == list(range(10))

    asyncio.run(scenario())


MENDED = {name: damage for name, damage in DAMAGES.items() if not damage.is_final}


@pytest.mark.parametrize("damage", MENDED.values(), ids=MENDED)
def test_a_loss_that_a_person_accepts_is_counted_and_the_store_goes_on(
    damage: Damage, server: Local
) -> None:
    is_everything = not damage.rows

    async def scenario() -> None:
        url, mark_place = server.url, server.mark_place
        damage.do(server)
        if is_everything:
            await accepted_loss.accept_loss_of_everything(url, mark_place)
        else:
            found = await accepted_loss.lost_from(url, mark_place)
            assert found is not None
            assert re.search(damage.reason, found)
            kept = await accepted_loss.accept_loss(url, mark_place)
            assert (kept is not None) == damage.has_more
        assert await accepted_loss.lost_from(url, mark_place) is None
        assert await server.rows() == list(range(damage.rows))
        assert await server.losses() == (LOSSES_OF_EVERYTHING if is_everything else 1)
        # Its end is watched as before.
        await server.run(10, 20)
        of_newest(1)(server)
        assert "missing at its end: 1 " in await server.refusal()

    asyncio.run(scenario())


def test_objects_that_are_given_up_are_kept(server: Local) -> None:
    async def scenario() -> None:
        for number in (1, 2):
            *_, fourth, third, second, newest = server.log()
            third.unlink()
            contents = [one.read_bytes() for one in (second, newest)]
            kept = await accepted_loss.accept_loss(server.url, server.mark_place)
            assert str(kept) == f"{server.url}/kept-{number}"
            found = server.log(f"kept-{number}")
            assert [one.name for one in found] == [second.name, newest.name]
            assert [one.read_bytes() for one in found] == contents
            assert fourth.exists()
            await server.run(10 * number, 10 * number + 10)

    asyncio.run(scenario())


def test_a_manifest_that_is_lost_leaves_a_store_whole_or_refused(server: Local) -> None:
    """SlateDB goes on with the one before, and needs objects of the log that may be gone."""

    async def scenario() -> None:
        server.keep()
        count = len(list((server.directory / "manifest").iterdir()))
        outcomes = set()
        for lost in range(1, count):
            for log_is_cleaned in (False, True):
                server.put_back()
                for one in sorted((server.directory / "manifest").iterdir())[-lost:]:
                    one.unlink()
                if log_is_cleaned:
                    # As SlateDB does a while after it has moved rows to tables.
                    for one in server.log()[:-5]:
                        one.unlink()
                try:
                    assert await server.rows() == list(range(10))
                    outcomes.add("whole")
                except StoreDamaged:
                    outcomes.add("refused")
                except StoreFenced:
                    # SlateDB's compactions have seen a later owner than this manifest.
                    outcomes.add("refused")
        assert outcomes == {"whole", "refused"}

    asyncio.run(scenario())


def test_an_older_copy_of_a_store_is_refused_until_a_person_accepts_it(
    server: Local, tmp_path: Path
) -> None:
    async def scenario() -> None:
        older = tmp_path / "older"
        shutil.copytree(server.directory, older)
        await server.run(10, 15)
        shutil.rmtree(server.directory)
        shutil.copytree(older, server.directory)
        assert "group commits missing at its end: 7 " in await server.refusal()
        await accepted_loss.accept_loss(server.url, server.mark_place)
        assert await server.rows() == list(range(10))
        ledger_id = await server.ledger_id()
        # From before that acceptance, it is older in another way.
        shutil.rmtree(server.directory)
        shutil.copytree(older, server.directory)
        assert "a copy from before a loss was accepted" in await server.refusal()
        await accepted_loss.accept_loss(server.url, server.mark_place)
        assert await server.ledger_id() > ledger_id, "no ledger id is used again"
        assert await server.rows() == list(range(10))
        assert await accepted_loss.lost_from(server.url, server.mark_place) is None

    asyncio.run(scenario())


def test_an_older_copy_from_before_a_restore_gets_a_ledger_id_above_that_of_the_restore(
    server: Local,
) -> None:
    async def scenario() -> None:
        restored = store_identity.ledger_after_restore(1_900_000_000) + 3
        await server.mark_place.write(DurableMark(restored, 7))
        assert "a copy from before a loss was accepted" in await server.refusal()
        await accepted_loss.accept_loss(server.url, server.mark_place)
        assert await server.ledger_id() > restored
        assert await server.losses() == 1
        assert await server.rows() == list(range(10))

    asyncio.run(scenario())


def test_a_store_that_was_put_back_together_with_its_mark_is_refused(tmp_path: Path) -> None:
    """A copy of the mark lies below the store of another server."""

    async def scenario() -> None:
        server = Local(tmp_path, "coordinator-0")
        await server.run(0, 5)
        older = tmp_path / "older"
        shutil.copytree(server.directory, older)
        mark = server.mark.read_bytes()
        await server.run(5, 10)
        shutil.rmtree(server.directory)
        shutil.copytree(older, server.directory)
        server.mark.write_bytes(mark)
        assert "missing at its end" in await server.refusal()
        await accepted_loss.accept_loss(server.url, server.mark_place)
        assert await server.rows() == list(range(5))

    asyncio.run(scenario())


def test_of_a_mark_and_its_copies_those_that_are_there_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Local(tmp_path, "coordinator-0")
        (copy,) = server.copies
        assert copy == tmp_path / "store/coordinators/coordinator-0/marks/brokers/broker-0.json"
        await server.run(0, 5)
        for damaged in (server.mark, copy):
            damaged.unlink()
            await server.run(5, 10)
            assert damaged.exists()
            damaged.write_bytes(b"7")
            await server.run(10, 15)
            assert damaged.read_bytes() != b"7"
        assert await server.rows() == list(range(15))
        for one in (server.mark, copy):
            one.unlink()
        assert "is missing, which says how far it was durable" in await server.refusal()

    asyncio.run(scenario())


def test_a_store_begins_where_copies_of_marks_lie_already(tmp_path: Path) -> None:
    """The other server was started first."""

    async def scenario() -> None:
        server = Local(tmp_path)
        other = ObjectMarkPlace(server.prefix, mark_names("coordinator", "c", (NAME,))[1:])
        await other.write(DurableMark(1, 7))
        await server.run(0, 5)
        assert await server.rows() == list(range(5))

    asyncio.run(scenario())


def test_a_mark_of_before_an_accepted_loss_says_nothing(server: Local) -> None:
    """It may arrive late, from an owner that stood still."""

    async def scenario() -> None:
        before = await server.mark_place.read()
        assert before is not None
        of_newest(3)(server)
        await accepted_loss.accept_loss(server.url, server.mark_place)
        await server.mark_place.write(DurableMark(before.generation, before.sequence + 1_000))
        assert await server.rows() == list(range(8))

    asyncio.run(scenario())


def test_an_acceptance_that_was_interrupted_is_repeated(
    server: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        of_newest(4)(server)

        async def interrupted(*_: object) -> None:
            raise ConnectionError("here it ended")

        with monkeypatch.context() as patch:
            patch.setattr(accepted_loss, "begin_generation", interrupted)
            with pytest.raises(ConnectionError):
                await accepted_loss.accept_loss(server.url, server.mark_place)
        # The loss is counted, and the stamp does not know it: nothing starts yet.
        assert "missing at its end" in await server.refusal()
        await accepted_loss.accept_loss(server.url, server.mark_place)
        assert await server.rows() == list(range(7))
        assert await server.losses() == 2

    asyncio.run(scenario())


def test_a_store_that_was_never_finished_is_made_again(tmp_path: Path) -> None:
    """A server may end between the mark of a new store and its stamp."""

    async def scenario() -> None:
        server = Local(tmp_path)
        await server.mark_place.write(DurableMark(1, 0))
        await server.run(0, 3)
        assert await server.rows() == [0, 1, 2]

    asyncio.run(scenario())


def test_a_restored_store_takes_the_place_of_one_that_is_gone(server: Local) -> None:
    async def scenario() -> None:
        whole_store(server)
        restored = await SlateStore.open(
            server.url,
            FAMILIES,
            mark_place=server.mark_place,
            generation=store_identity.ledger_after_restore(1_900_000_000),
        )
        await commit(restored, 0, 3)
        await restored.close()
        assert await server.rows() == [0, 1, 2]
        of_newest(1)(server)
        assert "missing at its end: 1 " in await server.refusal()

    asyncio.run(scenario())


def test_nothing_is_accepted_where_nothing_is_missing(server: Local, tmp_path: Path) -> None:
    async def scenario() -> None:
        empty = Local(tmp_path / "empty")
        with pytest.raises(InvalidConfig, match="has no store"):
            await accepted_loss.lost_from(empty.url, empty.mark_place)
        assert await accepted_loss.lost_from(server.url, server.mark_place) is None
        of_newest(1)(server)
        with pytest.raises(StoreDamaged, match="accept that first"):
            await accepted_loss.accept_loss_of_everything(server.url, server.mark_place)

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["directory", "s3"])
def test_a_killed_owner_leaves_a_mark_that_is_no_further_than_its_store(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    prefix = directory_of(tmp_path) if place == "directory" else place_in_bucket(request)

    async def scenario() -> None:
        server = Server(prefix)
        write = server.mark_place.write

        async def checked(mark: DurableMark) -> None:
            assert mark.sequence <= await end_of_store(server.url), "a mark never leads"
            await write(mark)

        server.mark_place.write = checked  # type: ignore[method-assign]
        store = await server.opened()
        await commit(store, 0, 40)
        # Its owner, and 40 rows.
        await until(lambda: is_marked(server, 41))
        assert await end_of_store(server.url) == 41
        # It is killed here: another one opens the store.
        assert await server.rows() == list(range(40))
        await store.abandon()
        # That one has been closed: the last two groups are its own.
        await until(lambda: is_marked(server, 43))
        if place == "s3":
            objects: ObjectServer = request.getfixturevalue("object_server")
            bucket = objects.objects(server.url.path)
            newest = max(one["path"] for one in obstore.list(bucket, "wal/").collect())
            obstore.delete(bucket, newest)
            assert "missing at its end: 1 " in await server.refusal()
            await accepted_loss.accept_loss(server.url, server.mark_place)
            assert await server.rows() == list(range(40))

    asyncio.run(scenario())


async def is_marked(server: Server, sequence: int) -> bool:
    mark = await server.mark_place.read()
    return mark is not None and mark.sequence == sequence


def test_the_address_of_a_store_says_whose_it_is() -> None:
    for prefix in ("s3://bucket", "s3://bucket/a/b", "file:///somewhere"):
        url = ObjectStoreUrl.parse(prefix)
        assert place_of_store(store_url(url, "coordinator", "c-1")) == (url, "coordinator", "c-1")
    for other in ("s3://bucket/brokers", "s3://bucket/brokers/a/b", "s3://bucket/broker/a"):
        assert place_of_store(ObjectStoreUrl.parse(other)) is None
