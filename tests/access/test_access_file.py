"""The access file is read again when it changes, and a damaged one changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from magnetar_core.access.needs import Kind, Need, Operation
from magnetar_core.access.principal import Principal
from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig
from magnetar_core.gates.access_file import ACCESS_FILE_BYTES_MAX, Access, AccessConfig
from magnetar_core.gates.gate import gate_of
from magnetar_core.security.watched_file import LOOK_INTERVAL_MS

DELETE = Need(Operation.DELETE, Kind.TOPIC, "orders")
GRANTED = '[principals]\nalice = "admin"'
WITHDRAWN = "[principals]\nalice = []\n"


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = 0.0
        path.write_text(GRANTED)
        self.access = Access(AccessConfig(access_file=str(path)), lambda: self.now_ms)
        assert self.access.file is not None
        self.file = self.access.file

    def may(self) -> bool:
        return self.access.policy().rights_of(Principal("alice")).may(DELETE)

    def look(self) -> bool:
        self.now_ms += LOOK_INTERVAL_MS
        return self.may()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "access.toml")


def test_a_right_that_is_withdrawn_ends_within_half_a_second(scene: Scene) -> None:
    assert scene.may()
    scene.path.write_text(WITHDRAWN)
    scene.now_ms += LOOK_INTERVAL_MS - 1
    assert scene.may()
    scene.now_ms += 1
    assert not scene.may()
    scene.path.write_text(GRANTED)
    assert scene.look()


def test_a_file_that_is_put_in_its_place_is_seen(scene: Scene) -> None:
    """Editors and Kubernetes do it so; even with the same size and time."""
    before = scene.path.stat()
    other = scene.path.with_name("other")
    other.write_text(WITHDRAWN.ljust(len(GRANTED)))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(scene.path)
    assert not scene.look()


@pytest.mark.parametrize(
    "content",
    [b"[principals", b"\xff", b'[principals]\nalice = "boss"', b"#" * (ACCESS_FILE_BYTES_MAX + 1)],
    ids=["not-toml", "not-text", "unknown-role", "too-large"],
)
def test_a_damaged_file_changes_nothing_and_is_said_once(
    scene: Scene, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    scene.path.write_bytes(content)
    for _ in range(3):
        assert scene.look()
    assert scene.file.damaged_count == 1
    assert len([one for one in caplog.records if "cannot be used" in one.message]) == 1
    scene.path.write_text(WITHDRAWN)
    assert not scene.look()


def test_a_file_that_is_gone_changes_nothing_until_it_is_there_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.path.unlink()
    for _ in range(3):
        assert scene.look()
    assert scene.file.damaged_count == 1
    scene.path.write_text(WITHDRAWN)
    assert not scene.look()


def test_an_unchanged_file_is_not_read_again(scene: Scene) -> None:
    for _ in range(10):
        assert scene.look()
    assert scene.file.read_count == 1


@pytest.mark.parametrize("content", [None, "[principals", '[principals]\nalice = "boss"'])
def test_a_server_does_not_start_with_a_file_that_it_cannot_use(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "access.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidConfig, match=r"access\.toml"):
        gate_of(AccessConfig(access_file=str(path)), SystemClock())


def test_without_settings_there_is_no_gate() -> None:
    assert gate_of(AccessConfig(), SystemClock()) is None
    assert gate_of(AccessConfig(server_principals=" , "), SystemClock()) is None
    assert gate_of(AccessConfig(server_principals="coordinator-0"), SystemClock()) is not None


def test_a_server_says_that_everybody_is_an_administrator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.toml"
    path.write_text("")
    gate_of(AccessConfig(server_principals="a", access_file=str(path)), SystemClock())
    gate_of(AccessConfig(audit_file=str(tmp_path / "audit")), SystemClock())
    assert "administrator" not in caplog.text
    gate_of(AccessConfig(server_principals="coordinator-0"), SystemClock())
    (warning,) = [one for one in caplog.records if "administrator" in one.getMessage()]
    assert warning.levelname == "WARNING"


def test_not_everybody_is_a_server() -> None:
    with pytest.raises(InvalidConfig, match=r"\*"):
        AccessConfig(server_principals="a, *")
