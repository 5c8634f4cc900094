"""Gate that hands out proofs with TxnIDs, and refuses writes in a TxnID without them.

It stands where rights are checked, before any handler: what is refused leaves no trace. A
coordinator and a broker have the same gate, since each command needs one half of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from magnetar_core.access.grants import Rights
from magnetar_core.access.policy import permissive_policy
from magnetar_core.access.principal import Principal
from magnetar_core.errors import AuthorizationFailed
from magnetar_core.ids import TxnID
from magnetar_core.security.txn_proofs import ProofKeys
from magnetar_core.security.watched_file import FreshFile
from magnetar_core.server.commands import CommandSession, Gate, Reply
from magnetar_core.traces.descriptions import txn_id_of
from magnetar_core.transport.columns.new_txns import Opened

# The commands that write in a transaction. Commands that end one are for servers, or ask the
# coordinator.
WRITING = frozenset({"send", "publish", "ack"})
# Of a conversation: transactions whose proof was checked. Another one costs a hash again.
PROVEN_MAX = 1_000
# Rights where all clients may do everything.
_OPEN = permissive_policy()


class ProofGate:
    """Gate for transactions.

    Args:
        inner: the gate that checks each command first; None: there is none.
        keys: the file with the servers' keys.
    """

    def __init__(self, inner: Gate | None, keys: FreshFile[ProofKeys]) -> None:
        self._inner = inner
        self._keys = keys
        self._checked_with = keys.content()
        self._proven: WeakKeyDictionary[CommandSession, dict[TxnID, bytes]] = WeakKeyDictionary()

    def admit(self, name: str, command: Any, reply: Reply) -> Reply | None:
        """Return the reply that a command's handler gets; None: the command is refused."""
        admitted = reply if self._inner is None else self._inner.admit(name, command, reply)
        if admitted is None:
            return None
        if name == "new_txn":
            return self._proving(admitted)
        txn_id = txn_id_of(command) if name in WRITING else None
        if txn_id is not None:
            complaint = self._complaint_about(command.txn_proof, txn_id, reply)
            if complaint is not None:
                admitted.fail(_refusal(reply.principal, txn_id, complaint))
                return None
        return admitted

    def come(self, principal: Principal) -> Callable[[], None]:
        """Count a conversation, as the inner gate does."""
        return _nothing if self._inner is None else self._inner.come(principal)

    def rights_of(self, principal: Principal) -> Rights:
        """Return the rights that a principal has now."""
        return (self._inner or _OPEN).rights_of(principal)

    def delay_ms(self, principal: Principal) -> float:
        """Count a request of another protocol; return how long its sender has to wait after it."""
        return 0.0 if self._inner is None else self._inner.delay_ms(principal)

    def note(
        self,
        principal: Principal,
        origin: str,
        action: str,
        resources: Iterable[str],
        outcome: str,
    ) -> None:
        """Write a line of the audit log about an action of another protocol."""
        if self._inner is not None:
            self._inner.note(principal, origin, action, resources, outcome)

    @property
    def uncounted(self) -> ProofGate:
        """This gate for commands that are a part of a request which was counted."""
        inner = None if self._inner is None else self._inner.uncounted
        return ProofGate(inner, self._keys)

    def _proving(self, reply: Reply) -> Reply:
        """Return a reply to which the proof is added, for the principal that asked."""

        def respond(answer: Any) -> None:
            if isinstance(answer, Opened):
                proof = self._keys.content().proof_of(answer.txn_id, reply.principal)
                answer = answer._replace(txn_proof=proof)
            reply.repeat(answer)

        return reply.through(respond)

    def _complaint_about(self, proof: bytes, txn_id: TxnID, reply: Reply) -> str | None:
        keys = self._keys.content()
        if keys is not self._checked_with:
            # The file may have lost a key.
            self._checked_with = keys
            self._proven.clear()
        session = reply.session
        proven = None if session is None else self._proven.setdefault(session, {})
        if proven is not None and proof and proven.get(txn_id) == proof:
            return None
        complaint = keys.complaint_about(proof, txn_id, reply.principal)
        if complaint is not None and self._keys.look():
            # The coordinator has seen new keys a moment earlier.
            return self._complaint_about(proof, txn_id, reply)
        if complaint is None and proven is not None:
            if len(proven) >= PROVEN_MAX:
                del proven[next(iter(proven))]
            proven[txn_id] = proof
        return complaint


def _refusal(principal: Principal, txn_id: TxnID, complaint: str) -> AuthorizationFailed:
    return AuthorizationFailed(
        f"{principal} may not write in transaction {txn_id} here: {complaint}",
        txn_id=txn_id,
        principal=principal.name,
    )


def _nothing() -> None:
    return
