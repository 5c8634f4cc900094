"""Data directories are their owner's alone."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from magnetar_storage.rocksdb.engine import RocksStore


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_and_close(path: Path) -> None:
    asyncio.run(RocksStore.open(path, ("rows",)).close())


def test_a_data_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    open_and_close(tmp_path / "data")
    assert mode(tmp_path / "data") == 0o700


def test_one_that_others_may_read_becomes_so(tmp_path: Path) -> None:
    open_and_close(tmp_path / "data")
    (tmp_path / "data").chmod(0o755)
    open_and_close(tmp_path / "data")
    assert mode(tmp_path / "data") == 0o700


def test_an_empty_one_that_was_made_before_becomes_so(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir(mode=0o755)
    open_and_close(tmp_path / "given")
    assert mode(tmp_path / "given") == 0o700


def test_one_that_holds_other_things_is_not_taken_from_others(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.mkdir(mode=0o755)
    (path / "notes.txt").touch()
    open_and_close(path)
    assert mode(path) == 0o755


def test_one_that_belongs_to_another_user_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a volume that is mounted there: only its owner may change it."""

    def refuse(path: object, mode: int) -> None:
        raise PermissionError(path)

    path = tmp_path / "volume"
    path.mkdir(mode=0o775)
    monkeypatch.setattr(os, "chmod", refuse)
    open_and_close(path)
    assert mode(path) != 0o700
