"""Asks a coordinator for the end of a transaction, by CommandEndTxn."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.enums import TransactionStatus
from magnetar.link.runtime import Runtime
from magnetar.transactions.begun import Begun
from magnetar.transactions.producer_identity import ProducerIdentity
from magnetar_core.transport.columns.end_txns import Ended, EndTxn
from magnetar_core.transport.columns.participants import Counted
from magnetar_core.wire import common_pb2


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
        self._identity = None if begun.identity is None else begun.identity.to_wire()

    async def commit(
        self, counts: Sequence[Counted], *, wait_finished: bool, fingerprint: str
    ) -> TransactionStatus:
        """Ask for the commit of what is counted; see Transaction.commit().

        Args:
            counts: the same for each call.
        Raises:
            MagnetarError: the coordinator refuses.
        """
        command = EndTxn(
            self._begun.txn_id,
            common_pb2.COMMIT,
            counts,
            wait_finished=wait_finished,
            identity=self._identity,
            fingerprint=fingerprint,
            # What was read since the beginning is a cause, too.
            seen_stamp=self._runtime.seen_stamp,
        )
        reply: Ended = await self._begun.coordinator.request(
            command,
            timeout_ms=self._runtime.config.commit_timeout_ms,
            patient=wait_finished,
        )
        return self._status(reply, TransactionStatus.COMMITTING)

    async def abort(self) -> TransactionStatus:
        """Ask for the abort.

        Raises:
            MagnetarError: the coordinator refuses.
        """
        command = EndTxn(self._begun.txn_id, common_pb2.ABORT, identity=self._identity)
        reply: Ended = await self._begun.coordinator.request(
            command, timeout_ms=self._runtime.config.abort_timeout_ms
        )
        return self._status(reply, TransactionStatus.ABORTING)

    def _status(self, reply: Ended, least: TransactionStatus) -> TransactionStatus:
        """Return the status in the answer, or `least` if it has none."""
        if reply.identity is not None:
            self.next_identity = ProducerIdentity.from_wire(reply.identity)
        self._runtime.saw(reply.stamp)
        return TransactionStatus(reply.status or least)
