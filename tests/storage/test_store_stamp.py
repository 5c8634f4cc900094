"""A store that another engine or another version made is refused, and left as it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.offline.accepted_loss import lost_from
from magnetar_storage.offline.read_only import open_read_only
from magnetar_storage.rocksdb.engine import ENGINE, FORMAT, RocksStore
from magnetar_storage.slatedb.engine import SlateStore
from magnetar_storage.store_stamp import LAYOUT, STAMP, stamp_of

FAMILIES = ("meta", "log")
ADVICE = "use the version that wrote it, or begin in an empty place"

WAYS: dict[str, Callable[[str], object]] = {
    "server": lambda directory: RocksStore.open(directory, FAMILIES),
    "check": lambda directory: asyncio.run(open_read_only(directory)),
    "accept-loss": lost_from,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    asyncio.run(RocksStore.open(path, FAMILIES).close())
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(stamp_of(ENGINE, FORMAT)), **fields}).encode()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        (None, f"has no {STAMP}: .* has to be put back; .*{ADVICE}"),
        (changed(layout="2026-11-01"), f"the layout of 2026-11-01, .*{LAYOUT}; .*{ADVICE}"),
        (json.dumps({"engine": ENGINE, "format": FORMAT}).encode(), f"an older layout.*{ADVICE}"),
        (changed(format=FORMAT + 1), "start the version that wrote it, or a later one"),
        (changed(engine="other"), "made by the engine 'other'"),
        (b"{", "put back the object as it was"),
    ],
    ids=["none", "earlier", "no layout", "later format", "other engine", "damaged"],
)
def test_a_directory_of_something_else_is_refused_and_stays_as_it_is(
    directory: Path, way: str, stamp: bytes | None, reason: str
) -> None:
    if stamp is None:
        (directory / STAMP).unlink()
    else:
        (directory / STAMP).write_bytes(stamp)
    before = contents(directory)
    with pytest.raises(InvalidConfig, match=reason):
        WAYS[way](str(directory))
    assert contents(directory) == before


def test_an_object_store_of_another_layout_is_refused(tmp_path: Path) -> None:
    url = ObjectStoreUrl.parse(f"file://{tmp_path}/store")

    async def open_and_close() -> None:
        await (await SlateStore.open(url, FAMILIES)).close()

    asyncio.run(open_and_close())
    stamp = tmp_path / "store" / STAMP
    content = json.loads(stamp.read_bytes())
    assert content["layout"] == LAYOUT
    stamp.write_text(json.dumps({**content, "layout": "2026-11-01"}))
    with pytest.raises(InvalidConfig, match=f"the layout of 2026-11-01.*{ADVICE}"):
        asyncio.run(open_and_close())
