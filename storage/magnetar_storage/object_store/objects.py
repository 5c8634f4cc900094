"""Small objects in an object store: stamps and marks, and what an error about them means."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore
from obstore import exceptions
from obstore.store import from_url

from magnetar_core.config import InvalidConfig
from magnetar_storage.object_store.url import ObjectStoreUrl, check_endpoint

log = logging.getLogger(__name__)

Result = TypeVar("Result")

# What a person can do about objects that are missing or damaged.
PUT_BACK: Final = (
    "put back the objects that are missing or damaged, from a copy or from earlier versions of them"
)
_AGAIN_SECONDS: Final = 1.0
# Answers that waiting does not mend: a bucket that is not there, conditions that are not known.
_FINAL_STATUS: Final = re.compile(r"status code: (4(?!08|29)\d\d|501)")
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


def open_objects(url: ObjectStoreUrl, *, is_new: bool = False) -> Any:
    """Return a client for the objects below an address.

    Args:
        is_new: whether a local directory is made if it does not exist.
    Raises:
        InvalidConfig: a setting for the object store is wrong, or the directory does not exist.
    """
    check_endpoint(url, os.environ)
    if url.is_local and is_new:
        os.makedirs(url.directory, mode=0o700, exist_ok=True)
    try:
        return from_url(str(url), **({} if url.is_local else {"retry_config": _RETRY}))
    except exceptions.BaseError as error:
        raise InvalidConfig(f"the object store {url} cannot be used: {said(error)}") from error


def is_absent(url: ObjectStoreUrl) -> bool:
    """Return whether an address is that of a local directory that does not exist."""
    return url.is_local and not os.path.isdir(url.directory)


async def get_object(objects: Any, name: str) -> bytes | None:
    """Return the content of an object; None: there is none."""
    try:
        answer = await obstore.get_async(objects, name)
        return bytes(await answer.bytes_async())
    except (exceptions.NotFoundError, FileNotFoundError):
        return None


async def until_answered(url: ObjectStoreUrl, work: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat work while the object store does not answer, and return its result.

    Raises:
        InvalidConfig: the object store refuses a request.
    """
    for attempt in itertools.count(1):
        try:
            return await work()
        except (*_FINAL, exceptions.BaseError) as error:
            if isinstance(error, _FINAL) or _FINAL_STATUS.search(str(error)):
                raise InvalidConfig(
                    f"the object store refuses what a store in {url} needs: {said(error)}; check"
                    " that the bucket exists, the credentials and what they allow (get, put, list,"
                    " delete), the region, and the endpoint"
                ) from error
            # Ever more seldom: at 1, 2, 4, 8, ...
            if attempt & (attempt - 1) == 0:
                log.warning(
                    "the object store of %s does not answer, and is asked again: %s",
                    url,
                    said(error),
                )
            await asyncio.sleep(_AGAIN_SECONDS)
    raise AssertionError("the loop above has no end")


def said(error: BaseException) -> str:
    """Return the first line of an error: what follows are the headers and body of the answer."""
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
