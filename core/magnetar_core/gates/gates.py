"""The gates of a server, as its settings ask for them: rights first, then proofs."""

from __future__ import annotations

from collections.abc import Callable

from magnetar_core.clock import Clock
from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gate import gate_of
from magnetar_core.gates.proof_gate import ProofGate
from magnetar_core.security.txn_proofs import ProofKeys
from magnetar_core.security.watched_file import FreshFile, WatchedFile
from magnetar_core.server.commands import Gate

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


def gates_of(access: AccessConfig, listen: ListenConfig, clock: Clock) -> Gate | None:
    """Return the gate that all commands of a server pass; None: there is none.

    Raises:
        InvalidConfig: a file cannot be read, or used.
    """
    gate = gate_of(access, clock)
    if not listen.txn_proof_keys_file:
        return gate
    return ProofGate(gate, proof_keys_file(listen.txn_proof_keys_file, clock.monotonic_ms))
