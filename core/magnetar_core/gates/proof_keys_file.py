"""The file with the keys of proofs: a secret, read again when it changes while servers run."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_core.security.txn_proofs import ProofKeys
from magnetar_core.security.watched_file import FreshFile, WatchedFile

KEY_FILE_BYTES_MAX = 64 << 10


def proof_keys_file(file: str, now_ms: Callable[[], float]) -> FreshFile[ProofKeys]:
    """Read a file with keys of proofs.

    Args:
        now_ms: of a monotonic clock.
    Raises:
        InvalidConfig: the file cannot be read, or used, or all users of the machine may read it.
    """
    watched = WatchedFile(file, ProofKeys.parse, bytes_max=KEY_FILE_BYTES_MAX, is_secret=True)
    return FreshFile(watched, now_ms)
