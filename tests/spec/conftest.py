"""TLC, for those tests that run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spec.tlc import find_tlc


@pytest.fixture(scope="session")
def tlc() -> Path:
    found = find_tlc()
    if found is None:
        pytest.skip("there is no Java, or no TLC: tools/fetch_tlc.sh says what is missing")
    return found
