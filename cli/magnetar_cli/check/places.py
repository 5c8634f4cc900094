"""Stores below a directory or an address: those of one server, or of a whole cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from magnetar_core.config import InvalidConfig
from magnetar_storage.data_dir.store_files import holds_store
from magnetar_storage.object_store.url import ObjectStoreUrl, check_endpoint


def stores_at(place: str) -> list[str]:
    """Return the stores at a place.

    Args:
        place: the data directory of a server, a directory that has such directories, the address of
            a store, or the address that servers got as --store.
    Raises:
        InvalidConfig: there are none.
    """
    return _in_object_store(place) if "://" in place else _in_directory(place)


def _in_directory(place: str) -> list[str]:
    if holds_store(place):
        return [place]
    directory = Path(place)
    if not directory.is_dir():
        raise InvalidConfig(f"{place} is not a directory: name the data directory of a server")
    found = sorted(
        str(one) for one in directory.iterdir() if one.is_dir() and holds_store(str(one))
    )
    if not found:
        raise InvalidConfig(
            f"{place} has no store: name the data directory of a server, or the directory that "
            "has those of several servers"
        )
    return found


def _in_object_store(place: str) -> list[str]:
    import obstore
    from obstore.store import from_url

    from magnetar_cli.stored_marks import servers_at
    from magnetar_storage.object_store.shared_prefix import store_url
    from magnetar_storage.store_stamp import STAMP

    url = ObjectStoreUrl.parse(place)
    if url.is_local and not Path(url.directory).is_dir():
        raise InvalidConfig(f"{place} is not a directory")
    check_endpoint(url, os.environ)
    objects: Any = from_url(str(url))
    listed = obstore.list_with_delimiter(objects)
    if any(one["path"] == STAMP for one in listed["objects"]):
        return [str(url)]
    found = [str(store_url(url, kind, name)) for kind, name in servers_at(url)]
    if not found:
        raise InvalidConfig(
            f"{url} has no store: name the value that servers got as --store, or the address of "
            "one store"
        )
    return sorted(found)
