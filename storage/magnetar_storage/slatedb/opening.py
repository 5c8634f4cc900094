"""Change of the owner of a SlateDB store.

Opening a store ends the writes of its owner at once. An owner that is idle notices it up to a
second later, and until then it would answer from its memory. So a store says whether its owner
closed it, and a process that opens one that was not closed waits that long before it answers. This
does not hold back an owner that is suspended meanwhile, or cannot reach the object store: it
acknowledges nothing, but when it goes on, it may answer questions about the past for a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

from slatedb import uniffi

from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb import binding as slate_binding
from magnetar_storage.slatedb import families as slate_families
from magnetar_storage.slatedb.background import LOOK_SECONDS
from magnetar_storage.slatedb.families import Family
from magnetar_storage.slatedb.options import POLL_SECONDS
from magnetar_storage.slatedb.reads import end_of, is_closed, text_of
from magnetar_storage.store import StoreDamaged, StoreFailed

log = logging.getLogger(__name__)

# Two looks, and a quarter of a second for the object store's answer.
OWNER_KNOWS_SECONDS: Final = POLL_SECONDS + LOOK_SECONDS + 0.25
LOG: Final = uniffi.FlushOptions(flush_type=uniffi.FlushType.WAL)
_OWNER_KEY: Final = b"\x00owner"
_OPEN: Final = b"open"
_CLOSED: Final = b"closed"


async def take_over(
    database: Any, families: Collection[str], payload_families: Collection[str]
) -> tuple[dict[str, Family], bool]:
    """Note that the store has an owner, and add the missing families.

    Returns:
        Where the families lie, and whether the owner before closed the store; True if it is new.
    """
    table = slate_families.read_table(await slate_binding.get(database, slate_families.TABLE_KEY))
    was_closed = await slate_binding.get(database, _OWNER_KEY) in (None, _CLOSED)
    grown = slate_families.with_families(table, families, payload_families)
    batch = uniffi.WriteBatch()
    slate_binding.put(batch, _OWNER_KEY, _OPEN)
    if grown != table:
        slate_binding.put(batch, slate_families.TABLE_KEY, slate_families.write_table(grown))
    await database.write(batch)
    await database.flush_with_options(LOG)
    return slate_families.families_of(grown, families), was_closed


async def until_owner_knows(url: ObjectStoreUrl) -> None:
    """Wait until an owner that runs and reaches the object store has noticed its end."""
    log.info(
        "the previous owner of %s did not close it: waiting %.1f s, in case it is alive",
        url,
        OWNER_KNOWS_SECONDS,
    )
    await asyncio.sleep(OWNER_KNOWS_SECONDS)


async def is_owned(database: Any) -> bool:
    """Return whether the store has an owner that did not close it: it runs, or was killed."""
    return await slate_binding.get(database, _OWNER_KEY) == _OPEN


async def let_go(database: Any) -> None:
    """Note that the owner closes the store and no longer answers clients."""
    batch = uniffi.WriteBatch()
    slate_binding.put(batch, _OWNER_KEY, _CLOSED)
    await database.write(batch)
    await database.flush_with_options(LOG)


def cannot_open(url: ObjectStoreUrl, error: BaseException) -> StoreFailed:
    """Return the error of a store that cannot be opened."""
    if is_closed(error):
        return end_of(str(url), getattr(error, "reason", None), text_of(error))
    if isinstance(error, uniffi.Error.Data):
        return StoreDamaged(
            f"cannot open {url}: {text_of(error)}; put back the objects that are missing or"
            " damaged, from a copy or from earlier versions of them"
        )
    return StoreFailed(f"cannot open {url}: {text_of(error)}")
