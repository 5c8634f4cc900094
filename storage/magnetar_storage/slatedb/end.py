"""Finds the end of a store in an object store: its newest durable group. Changes nothing.

SlateDB replays the objects of its log from the manifest's place on, up to the last object that it
finds. If newer objects are missing, it opens the store without them, and gives their names to new
objects. If one in the middle is missing, it may take that place for the end. So the end is looked
for before SlateDB opens the store. The names of the objects, and the newest one with rows, are
enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import obstore
from slatedb import uniffi

from magnetar_storage.durable_mark import DurableMark, MarkPlace, missing_from
from magnetar_storage.object_store.objects import PUT_BACK, open_objects, until_answered
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.slatedb import binding as slate_binding
from magnetar_storage.slatedb.opening import cannot_open
from magnetar_storage.slatedb.options import root_of
from magnetar_storage.slatedb.reads import text_of
from magnetar_storage.store import StoreDamaged, or_accept_loss

LOG_PREFIX: Final = "wal/"
_LOG_OBJECT: Final = re.compile(rf"{LOG_PREFIX}(\d{{20}})\.sst")


class LogBroken(StoreDamaged):
    """An object of the log is damaged, or it is missing and newer objects follow it.

    Attributes:
        number: of that object.
    """

    def __init__(self, url: ObjectStoreUrl, number: int, what: str) -> None:
        super().__init__(
            f"{log_object(number)} of {url} {what}; {PUT_BACK}{or_accept_loss(str(url))}",
            may_be_accepted=True,
        )
        self.number = number


async def check_end(url: ObjectStoreUrl, mark_place: MarkPlace, generation: int) -> None:
    """Check that a store ends no earlier than its mark says.

    Args:
        generation: of the store, as its stamp says.
    Raises:
        InvalidConfig: as end_of_store().
        StoreDamaged: it does, or as end_of_store(). Nothing was changed.
        StoreFailed: as end_of_store().
    """
    missing = await missing_from_store(url, mark_place, generation)
    if missing is not None:
        raise StoreDamaged(
            f"{url}: {missing}; {PUT_BACK}{or_accept_loss(str(url))}", may_be_accepted=True
        )


async def missing_from_store(
    url: ObjectStoreUrl, mark_place: MarkPlace, generation: int
) -> str | None:
    """Say what a store lacks that was durable; None: nothing is known to be missing.

    Args:
        generation: of the store, as its stamp says.
    Raises:
        InvalidConfig: as end_of_store().
        StoreDamaged: as end_of_store().
        StoreFailed: as end_of_store().
    """
    # The mark comes first: an owner that runs goes on meanwhile.
    try:
        mark = await mark_place.read()
    except StoreDamaged as error:
        return str(error)
    end = await end_of_store(url)
    if mark is None and mark_place.is_required:
        return f"{mark_place} is missing, which says how far it was durable"
    return missing_from(DurableMark(generation, end), mark)


async def end_of_store(url: ObjectStoreUrl) -> int:
    """Return the number of the newest durable group; 0: the store holds nothing.

    Raises:
        InvalidConfig: the object store refuses a request.
        StoreDamaged: the manifest is missing or damaged, or, as LogBroken, an object of the log
            that other ones follow.
        StoreFailed: the store cannot be read.
    """
    log = await _open_log(url)
    for number in reversed(log.numbers):
        # Each owner begins with an empty object.
        if newest := await log.newest_in(number):
            return max(newest, log.flushed_sequence)
    return log.flushed_sequence


async def check_log(url: ObjectStoreUrl) -> None:
    """Read every object of the log that SlateDB would replay.

    Raises:
        InvalidConfig: as end_of_store().
        StoreDamaged: as end_of_store(); LogBroken also for an object that none follows.
        StoreFailed: as end_of_store().
    """
    log = await _open_log(url)
    for number in log.numbers:
        await log.newest_in(number)


def log_object(number: int) -> str:
    """Return the name of an object of the log, below the address of the store."""
    return f"{LOG_PREFIX}{number:020}.sst"


async def log_objects(objects: Any, behind: int) -> list[int]:
    """Return the numbers of the objects of a log behind a number, in order."""
    found = []
    async for some in obstore.list(objects, LOG_PREFIX, offset=log_object(behind)):
        names = (_LOG_OBJECT.fullmatch(each["path"]) for each in some)
        found += [int(name[1]) for name in names if name is not None]
    return sorted(found)


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of a store, as far as its rows may not be in tables.

    Attributes:
        numbers: of its objects, without a gap.
        flushed: number of the last object of which all rows are in tables.
        flushed_sequence: the newest group of which all rows are in tables.
    """

    url: ObjectStoreUrl
    reader: Any
    numbers: list[int]
    flushed: int
    flushed_sequence: int

    @property
    def first_missing(self) -> int | None:
        """The number of an object that is missing in front of others."""
        for expected, number in enumerate(self.numbers, self.flushed + 1):
            if number != expected:
                return expected
        return None

    async def newest_in(self, number: int) -> int:
        """Return the newest group in an object; 0: the object is empty.

        Raises:
            LogBroken: the object is damaged.
            StoreFailed: it cannot be read.
        """
        try:
            return await slate_binding.newest_in_log_object(await self.reader.iterator(number))
        except (uniffi.Error.Data, uniffi.Error.Internal) as error:
            raise LogBroken(self.url, number, f"is damaged: {text_of(error)}") from error
        except uniffi.Error as error:
            raise cannot_open(self.url, error) from error


async def _open_log(url: ObjectStoreUrl) -> _Log:
    log = await _look_at_log(url)
    if log.first_missing is not None:
        # An owner that runs may have moved rows to tables meanwhile, and removed their objects.
        log = await _look_at_log(url)
    if log.first_missing is not None:
        raise LogBroken(url, log.first_missing, "is missing, and newer objects follow it")
    return log


async def _look_at_log(url: ObjectStoreUrl) -> _Log:
    root, objects = root_of(url), open_objects(url)
    try:
        manifest = await uniffi.AdminBuilder(url.path, root).build().read_manifest(None)
    except (uniffi.Error.Data, uniffi.Error.Internal) as error:
        raise StoreDamaged(
            f"the newest manifest of {url} cannot be read: {text_of(error)}; {PUT_BACK}"
        ) from error
    except uniffi.Error as error:
        raise cannot_open(url, error) from error
    flushed = manifest.replay_after_wal_id if manifest is not None else 0
    numbers = await until_answered(url, lambda: log_objects(objects, flushed))
    if manifest is None and numbers:
        raise StoreDamaged(
            f"the manifest of {url} is missing, and its log has {len(numbers)} objects; {PUT_BACK}"
        )
    return _Log(
        url,
        uniffi.SlateDbWalReader(url.path, root),
        numbers,
        flushed,
        manifest.last_l0_seq if manifest is not None else 0,
    )
