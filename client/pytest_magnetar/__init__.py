"""Plugin for pytest: fixtures with servers of magnetar.testing.

pytest loads this package whenever magnetar is installed, so it imports nothing of it until a test
asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from magnetar.testing import Server

MARK = "magnetar"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(**arguments): arguments of magnetar.testing.Server for the fixtures of this test,"
        " such as brokers=3",
    )


@pytest.fixture
def magnetar_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Give a cluster of Magnetar in memory, for this test alone."""
    yield from _served(request)


@pytest.fixture
def magnetar_virtual_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Give a cluster in memory whose time advance() lets pass."""
    yield from _served(request, virtual_time=True)


def _served(request: pytest.FixtureRequest, **given: bool) -> Iterator[Server]:
    from magnetar.testing import Server

    mark = request.node.get_closest_marker(MARK)
    if mark is not None and mark.args:
        raise TypeError(f"@pytest.mark.{MARK} takes arguments by name, such as brokers=3")
    server = Server(**{**(mark.kwargs if mark is not None else {}), **given})
    try:
        yield server
    finally:
        server.close()
