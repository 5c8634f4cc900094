"""A SlateDB store that is read without becoming its owner, and without writing anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from slatedb import uniffi

from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb import binding as slate_binding
from magnetar_storage.slatedb import families as slate_families
from magnetar_storage.slatedb.opening import cannot_open, is_owned
from magnetar_storage.slatedb.options import reader_builder_of
from magnetar_storage.slatedb.reads import SlateReads, end_of, text_of
from magnetar_storage.store import StoreFailed

# A store that is being written is shown as it was for so long, and then as it is.
_MANIFEST_POLL_MS: Final = 600_000
_MEMTABLE_BYTES_MAX: Final = 64 << 20


async def open_slate_reader(url: ObjectStoreUrl) -> SlateReader:
    """Open a store for reading.

    Raises:
        InvalidConfig: nothing is stored there.
        StoreDamaged: objects are missing or damaged.
        StoreFailed: it cannot be read.
    """
    options = uniffi.ReaderOptions(
        manifest_poll_interval_ms=_MANIFEST_POLL_MS,
        checkpoint_lifetime_ms=2 * _MANIFEST_POLL_MS,
        max_memtable_bytes=_MEMTABLE_BYTES_MAX,
        skip_wal_replay=False,
    )
    try:
        database = await reader_builder_of(url, options).build()
        row = await slate_binding.get(database, slate_families.TABLE_KEY)
        owned = await is_owned(database)
    except uniffi.Error as error:
        raise cannot_open(url, error) from error
    table = slate_families.read_table(row)
    if not table:
        raise InvalidConfig(f"{url} has no store of a server")
    names = [name for name in table if not name.endswith(slate_families.KEYS)]
    return SlateReader(url, database, slate_families.families_of(table, names), owned)


class SlateReader(SlateReads):
    """A store in an object store, as it was when this was opened."""

    def __init__(
        self,
        url: ObjectStoreUrl,
        database: Any,
        families: dict[str, slate_families.Family],
        may_have_owner: bool,
    ) -> None:
        def ended(error: BaseException) -> StoreFailed:
            return end_of(str(url), getattr(error, "reason", None), text_of(error))

        super().__init__(database, families, lambda: None, ended)
        self._database = database
        self.families = frozenset(families)
        self.may_have_owner = may_have_owner
        self.lost_tail = False

    def damaged_heads(self) -> Iterator[str]:
        """Say where the head of a value is damaged: there are no files of values."""
        return iter(())

    async def close(self) -> None:
        """Release the store."""
        await self._database.shutdown()
