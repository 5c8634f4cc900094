"""Checks of an object store, made before an engine opens a store in it.

A stamp, an object of its own, names the engine that made a store: no other engine opens it, and no
engine begins a store where other objects lie. The stamp is also the probe for conditional writes. A
store in an object store has one owner only because a second create of the same object fails, and
some servers accept the condition and ignore it: then two owners would overwrite each other's
changes, and nobody would notice. So each start creates the stamp a second time, which must fail.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import obstore
from obstore import exceptions
from obstore.store import from_url

from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store_url import ObjectStoreUrl
from magnetar_storage.store_stamp import STAMP, check_stamp, stamp_of

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
# Answers that waiting does not mend: a bucket that is not there, conditions that are not known.
_FINAL_STATUS: Final = re.compile(r"status code: (4(?!08|29)\d\d|501)")
_WRONG_VERSION: Final = {"e_tag": '"00000000000000000000000000000000"'}
# What waiting does not mend.
_FINAL: Final = (
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    # Of the bucket: where an object may be missing, that is caught before.
    exceptions.NotFoundError,
    exceptions.NotSupportedError,
    exceptions.UnknownConfigurationKeyError,
    exceptions.InvalidPathError,
    NotImplementedError,
)


async def check_object_store(url: ObjectStoreUrl, *, engine: str) -> None:
    """Check that an engine may open or make a store, and that one owner at a time is possible.

    While the object store cannot be reached, the call waits, and the log says so.

    Raises:
        InvalidConfig: the store belongs to another engine, something else lies there, the object
            store refuses the requests, or it does not keep conditions of writes.
    """
    if url.is_local:
        os.makedirs(url.directory, mode=0o700, exist_ok=True)
    try:
        objects = from_url(str(url), **({} if url.is_local else {"retry_config": _RETRY}))
    except exceptions.BaseError as error:
        raise InvalidConfig(f"the object store {url} cannot be used: {_said(error)}") from error
    await _until_answered(url, lambda: _check(objects, url, engine))


# A failure is told soon; the call as a whole is repeated anyway.
_RETRY: Final = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=1),
        "base": 2,
    },
}


async def _until_answered(url: ObjectStoreUrl, work: Callable[[], Any]) -> None:
    for attempt in itertools.count(1):
        try:
            await work()
            return
        except (*_FINAL, exceptions.BaseError) as error:
            if isinstance(error, _FINAL) or _FINAL_STATUS.search(str(error)):
                raise InvalidConfig(
                    f"the object store refuses what a store in {url} needs: {_said(error)}; check"
                    " that the bucket exists, the credentials and what they allow (get, put, list,"
                    " delete), the region, and the endpoint"
                ) from error
            # Ever more seldom: at 1, 2, 4, 8, ...
            if attempt & (attempt - 1) == 0:
                log.warning(
                    "the object store of %s does not answer, and is asked again: %s",
                    url,
                    _said(error),
                )
            await asyncio.sleep(_AGAIN_SECONDS)


async def _check(objects: Any, url: ObjectStoreUrl, engine: str) -> None:
    found = await _get(objects, STAMP)
    if found is None:
        await _check_empty(objects, url)
        try:
            await obstore.put_async(objects, STAMP, stamp_of(engine), mode="create")
        except exceptions.AlreadyExistsError:
            log.info("another process makes a store in %s at the same time", url)
        found = await _get(objects, STAMP)
        if found is None:
            raise InvalidConfig(
                f"{url} does not return an object that was just written: this object store cannot"
                " hold a store"
            )
    check_stamp(found, str(url), engine)
    await _check_conditions(objects, url, found)


async def _check_empty(objects: Any, url: ObjectStoreUrl) -> None:
    """Refuse a place where anything lies."""
    async for some in obstore.list(objects, chunk_size=10):
        names = sorted(one["path"] for one in some)
        if names:
            raise InvalidConfig(
                f"{url} holds other objects, such as {names[0]!r}, and no store of this engine"
                f" ({STAMP} is missing); choose an empty place. A directory of RocksDB is opened"
                " with --data-dir"
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


async def _get(objects: Any, name: str) -> bytes | None:
    try:
        answer = await obstore.get_async(objects, name)
        return bytes(await answer.bytes_async())
    except (exceptions.NotFoundError, FileNotFoundError):
        return None


def _said(error: BaseException) -> str:
    """Return the first line of an error: what follows are the headers and body of the answer."""
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
