"""The gates of a server, as its settings ask for them: rights first, then proofs."""

from __future__ import annotations

from magnetar_core.clock import Clock
from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.gate import gate_of
from magnetar_core.gates.proof_gate import ProofGate
from magnetar_core.gates.proof_keys_file import proof_keys_file
from magnetar_core.server.commands import Gate


def gates_of(access: AccessConfig, listen: ListenConfig, clock: Clock) -> Gate | None:
    """Return the gate that all commands of a server pass; None: there is none.

    Raises:
        InvalidConfig: a file cannot be read, or used.
    """
    gate = gate_of(access, clock)
    if not listen.txn_proof_keys_file:
        return gate
    return ProofGate(gate, proof_keys_file(listen.txn_proof_keys_file, clock.monotonic_ms))
