from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.running import Standalone, running_standalone


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Servers that a module's tests share."""
    with running_standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running
