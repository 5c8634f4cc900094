"""Peers are fetched once, and are what they should be."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from benchmarks.peers import fetch as fetching
from benchmarks.peers.fetch import NotFetched, digest, fetch, is_made_of, sha256

ARCHIVE = "kafka.jar"
CONTENT = b"an archive"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the programs that were run; Maven brings a single archive."""
    ran: list[str] = []

    def run(*command: str) -> None:
        ran.append(Path(command[0]).name)
        (tmp_path / "venv").mkdir(exist_ok=True)
        (tmp_path / "kafka/lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / "kafka/lib" / ARCHIVE).write_bytes(CONTENT)

    monkeypatch.setattr(fetching, "PEERS", tmp_path)
    monkeypatch.setattr(fetching, "_run", run)
    return ran


def expect(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    expected = {"kafka": {ARCHIVE: hashlib.sha256(content).hexdigest()}}
    monkeypatch.setattr(fetching, "SHA256", expected)


def test_a_peer_is_fetched_once(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expect(monkeypatch, CONTENT)
    fetch(["kafka"])
    assert ran[:2] == ["mvn", "javac"]
    first = list(ran)
    fetch(["kafka"])
    assert ran == first


def test_magnetar_alone_needs_nothing(ran: list[str]) -> None:
    fetch([])
    assert ran == []


@pytest.mark.usefixtures("ran")
def test_an_archive_with_another_content_is_refused_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expect(monkeypatch, b"something else")
    for _ in range(2):
        with pytest.raises(NotFetched, match=f"{ARCHIVE} has SHA-256"):
            fetch(["kafka"])


def test_an_archive_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"abc")
    assert sha256(tmp_path / "there").startswith("ba7816bf")
    with pytest.raises(NotFetched, match="missing"):
        sha256(tmp_path / "absent")


def test_what_is_made_again_depends_on_contents_and_not_on_times(tmp_path: Path) -> None:
    """A checkout of the same files gives them new times."""
    source, marker = tmp_path / "source", tmp_path / "made"
    source.write_text("one")
    assert not is_made_of(marker, [source])
    marker.write_text(digest([source]))
    os.utime(source, (2**31, 2**31))
    assert is_made_of(marker, [source])
    source.write_text("two")
    assert not is_made_of(marker, [source])
