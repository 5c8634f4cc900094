"""A small history of real servers, one of which was killed."""

from __future__ import annotations

import pytest
from tests.cli.histories.recorded import Recorded, record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("recorded"))
