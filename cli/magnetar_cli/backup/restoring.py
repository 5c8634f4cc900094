"""Makes stores from a backup: new ones, which never take old data for new data.

Source: docs/design/0012-backup.md; docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from magnetar_broker import keys
from magnetar_broker.offline import restored_rows as broker_rows
from magnetar_cli.backup.files import Contents, ServerFile, read_blocks
from magnetar_cli.backup.making import check_room
from magnetar_coordinator.metadata import records
from magnetar_coordinator.offline import restored_rows as coordinator_rows
from magnetar_core.config import InvalidConfig
from magnetar_core.process import durable_files
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.backup_source import unpack_rows
from magnetar_storage.data_dir.store_files import holds_store
from magnetar_storage.object_store.shared_prefix import mark_names, store_url
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.store import Store, WriteBatch

# Takes the number of rows that were written.
Progress = Callable[[int], object]

_META: Final = "meta"
_BATCH_BYTES: Final = 8 << 20
_PAYLOADS: Final[dict[str, Sequence[str]]] = {
    "broker": keys.PAYLOAD_FAMILIES,
    "coordinator": (),
}


class RestoredRows:
    """The rows of a server as they become those of a new store."""

    def __init__(self, server: ServerFile, restored_at_s: int, open_ones: records.Restored) -> None:
        self._server = server
        self._restored_at_s = restored_at_s
        self._open_ones = open_ones

    @property
    def generation(self) -> int:
        """The generation of the new store: marks of earlier stores do not apply to it."""
        return store_identity.ledger_after_restore(self._restored_at_s)

    def value(self, family: str, key: bytes, value: bytes) -> bytes:
        """Return the restored value of a row of the backup."""
        if family != _META:
            return value
        if key == store_identity.KEY:
            return self._identity(value)
        if self._server.kind == "broker":
            return broker_rows.restored_meta(
                key,
                value,
                restored_at_s=self._restored_at_s,
                is_first=not self._server.position,
            )
        return coordinator_rows.restored_meta(key, value, restored_at_s=self._restored_at_s)

    def added(self) -> list[tuple[str, bytes, bytes]]:
        """Return the rows that the backup does not have."""
        if self._server.kind == "broker":
            return []
        return [(_META, *coordinator_rows.added_meta(self._open_ones))]

    def _identity(self, value: bytes) -> bytes:
        identity = StoreIdentity.FromString(value)
        identity.losses += 1
        identity.restored_at_s = max(identity.restored_at_s + 1, self._restored_at_s)
        # The servers may have other addresses now.
        identity.membership_version, identity.cluster_hash = 0, ""
        return identity.SerializeToString(deterministic=True)


def verify(directory: Path, contents: Contents, progress: Progress) -> None:
    """Read the whole backup.

    Raises:
        DataLoss: it is damaged.
    """
    for server in contents.servers:
        for _, row_count, packed in read_blocks(directory, server):
            for _ in unpack_rows(packed):
                pass
            progress(row_count)


def directory_of(server: ServerFile, data_dir: Path) -> Path:
    """Return the data directory of a server, named as `magnetar standalone` does."""
    if server.kind == "broker" and not server.position:
        return data_dir / "broker"
    return data_dir / f"{server.kind}-{server.position}"


def check_targets(places: Sequence[Path]) -> None:
    """Check that nothing is overwritten.

    Raises:
        InvalidConfig: a directory has something in it.
    """
    for place in places:
        if place.exists() and (holds_store(str(place)) or any(place.iterdir())):
            raise InvalidConfig(f"{place} is not empty: restore to another place, or move it away")


async def restore_to_directory(
    backup: Path, server: ServerFile, target: Path, rows: RestoredRows, progress: Progress
) -> None:
    """Make the data directory of a server, whole or not at all.

    Raises:
        InvalidConfig: there is no room.
        DataLoss: the backup is damaged.
    """
    from magnetar_storage.rocksdb.engine import RocksStore

    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700, parents=True)
    try:
        store = RocksStore.open(part, server.families, payload_families=_PAYLOADS[server.kind])
        try:
            await _fill(store, backup, server, rows, progress, lambda size: check_room(part, size))
        finally:
            await store.close()
        _put_in_place(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


async def restore_to_object_store(
    backup: Path, server: ServerFile, prefix: ObjectStoreUrl, rows: RestoredRows, progress: Progress
) -> ObjectStoreUrl:
    """Make the store of a server in an object store, and return its address.

    Args:
        prefix: the address that the servers share.
    Raises:
        InvalidConfig: the place is not empty.
        DataLoss: the backup is damaged.
    """
    from magnetar_storage.object_store.object_marks import ObjectMarkPlace
    from magnetar_storage.offline.slate_accepted_loss import begin_generation
    from magnetar_storage.slatedb.engine import SlateStore

    url = store_url(prefix, server.kind, server.member)
    mark_place = ObjectMarkPlace(prefix, mark_names(server.kind, server.member, ()))
    store = await SlateStore.open(
        url,
        server.families,
        payload_families=_PAYLOADS[server.kind],
        mark_place=mark_place,
        generation=rows.generation,
    )
    try:
        if await store.get(_META, store_identity.KEY) is not None:
            raise InvalidConfig(f"{url} holds a store: restore to another place")
        await _fill(store, backup, server, rows, progress, lambda size: None)
        generation = await store_identity.ledger_of(store, _META)
    finally:
        await store.close()
    await begin_generation(url, mark_place, generation)
    return url


async def _fill(
    store: Store,
    backup: Path,
    server: ServerFile,
    rows: RestoredRows,
    progress: Progress,
    check: Callable[[int], None],
) -> None:
    """Write all rows; the identity comes last, so that no server opens an unfinished store."""
    batch = WriteBatch()
    identity: bytes | None = None
    for family, row_count, packed in read_blocks(backup, server):
        for key, value in unpack_rows(packed):
            restored = rows.value(family, key, value)
            if family == _META and key == store_identity.KEY:
                identity = restored
            else:
                batch.put(family, key, restored)
        progress(row_count)
        if batch.byte_count >= _BATCH_BYTES:
            check(batch.byte_count)
            await store.write(batch)
            await store.sync()
            batch = WriteBatch()
    for family, key, value in rows.added():
        batch.put(family, key, value)
    await store.write(batch)
    await store.sync()
    if identity is None:
        raise InvalidConfig(f"{server.file} has no identity row: the server had never started")
    last = WriteBatch()
    last.put(_META, store_identity.KEY, identity)
    await store.write(last)
    await store.sync()


def _put_in_place(part: Path, target: Path) -> None:
    if target.exists():
        target.rmdir()
    part.rename(target)
    durable_files.sync(target.parent)
