"""What several files of tests of the store ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.value_stores import small_files


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a store with small files of values, which looks for garbage at each write."""
    small_files(monkeypatch)
    return tmp_path / "data"
