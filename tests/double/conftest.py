"""Clusters that programs cannot tell apart: in memory, and as processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.processes import Servers

from magnetar import blocking
from magnetar.testing import Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=["memory", "processes"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Give the address of a cluster, which all tests of this folder use."""
    if request.param == "memory":
        with Server() as server:
            yield server.address
    else:
        directory: Path = tmp_path_factory.mktemp("processes")
        settings = {"MAGNETAR_TWO_PHASE_COMMIT_ENABLED": "true"}
        with Servers(directory, settings).running() as servers:
            yield servers.address


@pytest.fixture
def client(address: str) -> Iterator[blocking.Client]:
    with blocking.connect(address) as client:
        yield client


@pytest.fixture
def topic(client: blocking.Client) -> str:
    """A topic of this test."""
    name = f"topic-{next(_numbers)}"
    client.admin.topics.create(name)
    return name


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"name-{next(_numbers)}"
