from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.running import running_standalone
from tests.lifecycle.programs import Scene


@pytest.fixture(scope="package")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Servers that all tests of the folder share; each has its own topic."""
    with running_standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield Scene(running.environ["MAGNETAR_BROKER"])
