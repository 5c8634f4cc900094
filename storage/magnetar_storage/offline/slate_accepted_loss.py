"""Accept the loss of a store in an object store, and continue: a decision that a person makes.

The store keeps everything before the first object of its log that is missing or damaged. Objects
behind it are kept elsewhere. The server learns from its identity row that something was lost, as
with a directory (`accepted_loss`). The stamp of the store gets a higher generation, so that the
durable mark, which says that there was more, no longer applies.
"""

from __future__ import annotations

import itertools
from typing import Final

import obstore

from magnetar_core.config import InvalidConfig
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.durable_mark import FIRST_GENERATION, DurableMark, MarkPlace
from magnetar_storage.object_store.check import generation_at
from magnetar_storage.object_store.objects import open_objects, until_answered
from magnetar_storage.object_store.shared_prefix import place_of_store
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb.end import (
    LogBroken,
    check_log,
    end_of_store,
    log_object,
    log_objects,
    missing_from_store,
)
from magnetar_storage.slatedb.engine import ENGINE, SlateStore
from magnetar_storage.store import StoreDamaged, WriteBatch
from magnetar_storage.store_stamp import STAMP, stamp_of

_FAMILY: Final = store_identity.IDENTITY_FAMILY


async def lost_from(url: ObjectStoreUrl, mark_place: MarkPlace) -> str | None:
    """Describe what is missing from the end of a store; None: nothing is known to be missing.

    Raises:
        InvalidConfig: the address has no store.
        StoreDamaged: the store is damaged elsewhere, where accepting the loss would not help.
        StoreFailed: the store cannot be read.
    """
    generation = await generation_at(url, engine=ENGINE)
    if generation is None:
        raise InvalidConfig(f"{url} has no store: name the address of the store of one server")
    try:
        await check_log(url)
    except LogBroken as error:
        return str(error)
    return await missing_from_store(url, mark_place, generation)


async def accept_loss(url: ObjectStoreUrl, mark_place: MarkPlace) -> ObjectStoreUrl | None:
    """Give up the missing changes, and all changes after them.

    Returns:
        Where the objects are kept that were given up; None: there are none.
    Raises:
        InvalidConfig: as lost_from().
        StoreDamaged: as lost_from().
        StoreFailed: as lost_from().
    """
    if await lost_from(url, mark_place) is None:
        raise BrokenInvariant("nothing is missing")
    kept = None
    try:
        await check_log(url)
    except LogBroken as error:
        kept = await _cut(url, error.number)
    await _count(url, mark_place, losses=1)
    return kept


async def accept_loss_of_everything(url: ObjectStoreUrl, mark_place: MarkPlace) -> None:
    """Record that a store replaces a lost store; if there is none, an empty one is made.

    Raises:
        InvalidConfig: the place has other objects.
        StoreDamaged: changes are missing from the end of this store, or it cannot be opened.
        StoreFailed: as lost_from().
    """
    if await generation_at(url, engine=ENGINE) is not None:
        reason = await lost_from(url, mark_place)
        if reason is not None:
            raise StoreDamaged(f"{reason}; accept that first")
    await _count(url, mark_place, losses=store_identity.LOSSES_OF_EVERYTHING)


async def _cut(url: ObjectStoreUrl, number: int) -> ObjectStoreUrl | None:
    """Move the objects of the log from a number on to a place of their own, and return it."""
    objects = open_objects(url)
    numbers = await until_answered(url, lambda: log_objects(objects, number - 1))
    if not numbers:
        return None
    for attempt in itertools.count(1):
        kept = f"kept-{attempt}"
        if not await obstore.list(objects, kept + "/").collect_async():
            break
    for name in map(log_object, numbers):
        await obstore.copy_async(objects, name, f"{kept}/{name}")
    # The last ones first: an interruption leaves no gap that was not there.
    for name in map(log_object, reversed(numbers)):
        await obstore.delete_async(objects, name)
    return url.below(kept)


async def _count(url: ObjectStoreUrl, mark_place: MarkPlace, *, losses: int) -> None:
    """Count a loss in the store, and begin a generation of it.

    After an interruption this may be repeated. The loss then counts twice, which has no effect but
    a higher ledger id or incarnation.
    """
    known = max(
        await generation_at(url, engine=ENGINE) or FIRST_GENERATION,
        await _generation_of_mark(mark_place),
    )
    store = await SlateStore.open(url, (_FAMILY,), generation=known)
    try:
        row = await store.get(_FAMILY, store_identity.KEY)
        if row is None:
            row, losses = _new_identity(url), store_identity.LOSSES_OF_EVERYTHING
        row = store_identity.with_losses_above(row, losses, known)
        batch = WriteBatch()
        batch.put(_FAMILY, store_identity.KEY, row)
        await store.write(batch)
        await store.sync()
    finally:
        await store.close()
    await begin_generation(url, mark_place, store_identity.ledger_of_row(row))


async def _generation_of_mark(mark_place: MarkPlace) -> int:
    """Return the generation that a mark names; 0: there is no mark, or it cannot be read."""
    try:
        mark = await mark_place.read()
    except StoreDamaged:
        return 0
    return mark.generation if mark is not None else 0


async def begin_generation(url: ObjectStoreUrl, mark_place: MarkPlace, generation: int) -> None:
    """Begin a generation of a stopped store: from then on an earlier mark does not count.

    Args:
        generation: the ledger id that the identity of the store makes, or a higher number.
    """
    stamp = stamp_of(ENGINE, generation=generation)
    await obstore.put_async(open_objects(url), STAMP, stamp)
    await mark_place.write(DurableMark(generation, await end_of_store(url)))


def _new_identity(url: ObjectStoreUrl) -> bytes:
    """Return the identity of a store that is made in place of a lost one."""
    place = place_of_store(url)
    if place is None:
        raise InvalidConfig(
            f"{url} does not end as the address of a store does: brokers/NAME or coordinators/NAME"
        )
    return StoreIdentity(kind=place.kind, member=place.name).SerializeToString()
