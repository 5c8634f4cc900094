"""Asks a coordinator for the end of a transaction, by CommandEndTxn."""

from __future__ import annotations

from functools import lru_cache

from magnetar.enums import TransactionStatus
from magnetar.link.repeated_request import OnResult, RepeatedRequest
from magnetar.link.runtime import Runtime
from magnetar.transactions.begun import Begun
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.transport.spliced import joined
from magnetar_core.wire import common_pb2, transaction_pb2

# Commits of a moment know the same stamp.
KNOWN_QUESTIONS_MAX = 64


@lru_cache(maxsize=KNOWN_QUESTIONS_MAX)
def _asked(wait_finished: bool, fingerprint: str, seen_stamp: int) -> bytes:
    """Return the bytes of a CommandEndTxn of which nothing else is set."""
    return transaction_pb2.CommandEndTxn(
        wait_finished=wait_finished, fingerprint=fingerprint, seen_stamp=seen_stamp
    ).SerializeToString()


class EndRequests:
    """Asks for the end of a transaction that has begun.

    Attributes:
        next_identity: with what its transactional producer begins the next transaction; None: no
            answer has said it.
    """

    def __init__(self, runtime: Runtime, begun: Begun) -> None:
        self.next_identity: ProducerIdentity | None = None
        self._runtime = runtime
        self._begun = begun

    def commit(
        self,
        command: bytes,
        on_answer: OnResult[transaction_pb2.CommandEndTxnResponse],
        *,
        wait_finished: bool,
        fingerprint: str,
    ) -> RepeatedRequest[transaction_pb2.CommandEndTxnResponse]:
        """Ask for the commit that the command describes; see Transaction.commit().

        Args:
            command: the bytes of a CommandEndTxn, the same for each call.
            on_answer: told the answer, or the error if the coordinator refuses.
        """
        # What was read since the beginning is a cause, too.
        asked = _asked(wait_finished, fingerprint, self._runtime.seen_stamp)
        return self._begun.coordinator.request_soon(
            joined(transaction_pb2.CommandEndTxn, command, asked),
            on_answer,
            timeout_ms=self._runtime.config.commit_timeout_ms,
            patient=wait_finished,
        )

    async def abort(self) -> TransactionStatus:
        """Ask for the abort.

        Raises:
            MagnetarError: the coordinator refuses.
        """
        identity = self._begun.identity
        command = transaction_pb2.CommandEndTxn(
            txn_id=self._begun.txn_id.to_wire(),
            txn_action=common_pb2.ABORT,
            identity=None if identity is None else identity.to_wire(),
        )
        reply = await self._begun.coordinator.request(
            command, timeout_ms=self._runtime.config.abort_timeout_ms
        )
        return self.status(reply, TransactionStatus.ABORTING)

    def status(
        self, reply: transaction_pb2.CommandEndTxnResponse, least: TransactionStatus
    ) -> TransactionStatus:
        """Return the status in the answer, or `least` if it has none."""
        if reply.HasField("identity"):
            self.next_identity = ProducerIdentity.from_wire(reply.identity)
        self._runtime.saw(reply.stamp)
        return TransactionStatus(reply.status or least)
