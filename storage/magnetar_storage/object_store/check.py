"""Checks of an object store, made before an engine opens a store in it.

A stamp, an object of its own, names the engine that made a store: no other engine opens it, and no
engine begins a store where other objects lie. The stamp is also the probe for conditional writes. A
store in an object store has one owner only because a second create of the same object fails, and
some servers accept the condition and ignore it: then two owners would overwrite each other's
changes, unnoticed. So each start creates the stamp a second time, which must fail.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import obstore
from obstore import exceptions

from magnetar_core.config import InvalidConfig
from magnetar_storage.durable_mark import FIRST_GENERATION, DurableMark, MarkPlace, missing_from
from magnetar_storage.object_store.objects import (
    PUT_BACK,
    get_object,
    is_absent,
    open_objects,
    until_answered,
)
from magnetar_storage.object_store.shared_prefix import COPIES
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.store import StoreDamaged, or_accept_loss
from magnetar_storage.store_stamp import STAMP, check_stamp, stamp_of

log = logging.getLogger(__name__)

_WRONG_VERSION: Final = {"e_tag": '"00000000000000000000000000000000"'}


async def check_object_store(
    url: ObjectStoreUrl,
    *,
    engine: str,
    mark_place: MarkPlace | None = None,
    generation: int = FIRST_GENERATION,
) -> int:
    """Check that an engine may open or make a store, and that one owner at a time is possible.

    While the object store cannot be reached, the call waits, and the log says so.

    Args:
        mark_place: where the mark of the store lies; None: it has none.
        generation: of the store, if it is new.
    Returns:
        The generation of the store.
    Raises:
        InvalidConfig: the store belongs to another engine, its place has other objects, the object
            store refuses the requests or has no address to which they can be sent, or it does not
            keep conditions of writes.
        StoreDamaged: there is no store, and its mark says that there was one.
    """
    objects = open_objects(url, is_new=True)
    return await until_answered(url, lambda: _check(objects, url, engine, mark_place, generation))


async def generation_at(url: ObjectStoreUrl, *, engine: str) -> int | None:
    """Return the generation of the store at an address; None: there is no store.

    Raises:
        InvalidConfig: the store belongs to another engine, or the object store refuses the request.
    """
    if is_absent(url):
        return None
    objects = open_objects(url)
    stamp = await until_answered(url, lambda: get_object(objects, STAMP))
    return None if stamp is None else check_stamp(stamp, str(url), engine)


async def _check(
    objects: Any,
    url: ObjectStoreUrl,
    engine: str,
    mark_place: MarkPlace | None,
    generation: int,
) -> int:
    found = await get_object(objects, STAMP)
    if found is None:
        await _check_empty(objects, url)
        if mark_place is not None:
            await _begin_mark(url, mark_place, generation)
        try:
            stamp = stamp_of(engine, generation=generation)
            await obstore.put_async(objects, STAMP, stamp, mode="create")
        except exceptions.AlreadyExistsError:
            log.info("another process makes a store in %s at the same time", url)
        found = await get_object(objects, STAMP)
        if found is None:
            raise InvalidConfig(
                f"{url} does not return an object that was just written: this object store cannot"
                " hold a store"
            )
    stored_generation = check_stamp(found, str(url), engine)
    await _check_conditions(objects, url, found)
    return stored_generation


async def _begin_mark(url: ObjectStoreUrl, mark_place: MarkPlace, generation: int) -> None:
    """Write the mark of a new store, ahead of its stamp: a store without its mark is refused.

    Raises:
        StoreDamaged: a store was there.
    """
    new = DurableMark(generation, 0)
    if (missing := missing_from(new, await mark_place.read())) is not None:
        raise StoreDamaged(
            f"{url} has no store, but {mark_place} says that there was one: {missing};"
            f" {PUT_BACK}{or_accept_loss(f'--everything {url}')}"
        )
    await mark_place.write(new)


async def _check_empty(objects: Any, url: ObjectStoreUrl) -> None:
    """Refuse a place where anything lies."""
    async for some in obstore.list(objects, chunk_size=10):
        # Another server may have been here first, with a copy of its mark.
        names = sorted(one["path"] for one in some if not one["path"].startswith(COPIES))
        if names:
            raise InvalidConfig(
                f"{url} holds other objects, such as {names[0]!r}, and no store of this engine"
                f" ({STAMP} is missing); choose an empty place"
            )


async def _check_conditions(objects: Any, url: ObjectStoreUrl, stamp: bytes) -> None:
    refusal = (
        f"the object store of {url} does not keep conditions of writes (%s), so that two servers"
        " could write one store without noticing: use a server that does, as Amazon S3 and"
        " SeaweedFS do, see docs/object_store.md"
    )
    try:
        await obstore.put_async(objects, STAMP, stamp, mode="create")
    except exceptions.AlreadyExistsError:
        pass
    else:
        raise InvalidConfig(refusal % "If-None-Match")
    if url.is_local:
        return
    try:
        await obstore.put_async(objects, STAMP, stamp, mode=_WRONG_VERSION)
    except exceptions.PreconditionError:
        return
    raise InvalidConfig(refusal % "If-Match")
