"""A browser and a scene for tests of pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from tests.console.scene import Scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    from tests.console.scene import Scene

    with Scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.console.browsing import browsing

    with browsing() as made:
        yield made


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    from tests.console.browsing import watched

    with watched(browser) as opened:
        yield opened.page
        # No request leaves the console.
        hosts = {re.match(r"\w+://[^/]+", one)[0] for one in opened.requests}  # type: ignore[index]
        assert len(hosts) == 1
