"""Keys of proofs are a secret in a file, which settings name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.proof_keys import write_keys

from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig, ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gates import KEY_FILE_BYTES_MAX, gates_of, proof_keys_file
from magnetar_core.security.watched_file import LOOK_INTERVAL_MS


@pytest.mark.parametrize(("mode", "counts"), [(0o600, True), (0o640, True), (0o604, False)])
def test_a_key_file_is_a_secret(mode: int, counts: bool, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_keys(path, "first")
    path.chmod(mode)
    if counts:
        proof_keys_file(str(path), lambda: 0.0)
        return
    with pytest.raises(InvalidConfig, match="chmod o="):
        proof_keys_file(str(path), lambda: 0.0)


def test_a_new_file_that_everybody_may_read_waits_until_nobody_may(tmp_path: Path) -> None:
    now_ms = 0.0
    path = tmp_path / "proof.keys"
    keys = proof_keys_file(write_keys(path, "first"), lambda: now_ms)
    path.write_text(Path(write_keys(tmp_path / "other", "second")).read_text())
    path.chmod(0o644)
    now_ms += LOOK_INTERVAL_MS
    assert list(keys.content().keys) == ["first"]
    path.chmod(0o600)
    now_ms += LOOK_INTERVAL_MS
    assert list(keys.content().keys) == ["second"]


def test_a_key_file_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_keys(path, "first")
    room = KEY_FILE_BYTES_MAX - path.stat().st_size
    with path.open("a") as opened:
        opened.write("#" * room)
    proof_keys_file(str(path), lambda: 0.0)
    with path.open("a") as opened:
        opened.write("#")
    with pytest.raises(InvalidConfig, match="more than 65536 bytes"):
        proof_keys_file(str(path), lambda: 0.0)


# Settings.


def test_without_a_key_file_there_is_no_gate() -> None:
    assert gates_of(AccessConfig(), ListenConfig(), SystemClock()) is None


def test_a_key_file_needs_clients_who_say_who_they_are(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys", "first")
    with pytest.raises(InvalidConfig, match="txn_proof_keys_file has no use"):
        ListenConfig(txn_proof_keys_file=file)


def test_a_key_file_that_is_missing_is_an_error_at_the_start(tmp_path: Path) -> None:
    listen = ListenConfig(token_keys_file="keys", txn_proof_keys_file=str(tmp_path / "none"))
    with pytest.raises(InvalidConfig, match="cannot be read"):
        gates_of(AccessConfig(), listen, SystemClock())
