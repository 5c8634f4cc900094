"""Places for stores of SlateDB: a directory of a test, or a prefix of a bucket on a real server."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tests.object_server import BUCKET, ObjectServer

from magnetar_storage.object_store.url import ObjectStoreUrl

_numbers = itertools.count(1)


def directory_of(tmp_path: Path) -> ObjectStoreUrl:
    return ObjectStoreUrl.parse(f"file://{tmp_path}/store")


def place_in_bucket(request: pytest.FixtureRequest) -> ObjectStoreUrl:
    """A prefix that no other test uses; the environment names the server."""
    server: ObjectServer = request.getfixturevalue("object_server")
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return new_prefix()


def new_prefix() -> ObjectStoreUrl:
    return ObjectStoreUrl.parse(f"s3://{BUCKET}/stores/{next(_numbers)}")
