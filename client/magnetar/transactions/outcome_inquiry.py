"""Asks the coordinator how a transaction ended when this client does not know.

There are three cases: the transaction's time is up, the request for its end got no answer, or a
broker's answer suggests that another client has ended it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from magnetar.enums import TransactionStatus
from magnetar.errors import ClientClosed
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.runtime import Runtime
from magnetar_core.errors import MagnetarError, TxnForgotten, TxnNotFound
from magnetar_core.ids import TxnID
from magnetar_core.wire import transaction_pb2

log = logging.getLogger("magnetar")

# How long after its timeout a transaction is asked about, and the time between two questions.
EXPIRY_GRACE_MS = 1_000
RESOLVE_PERIOD_MS = 1_000


class OutcomeInquiry:
    """Asks about a transaction until its outcome is known."""

    _is_over = False
    _resolving = False
    _doubted = False
    _finding_out = False
    # The number of the deadline; 0: there is none.
    _expiry = 0

    def __init__(
        self,
        runtime: Runtime,
        txn_id: TxnID,
        coordinator: ConnectionBase,
        timeout_ms: int,
        *,
        on_ended: Callable[[TransactionStatus], None],
        on_forgotten: Callable[[TxnNotFound | TxnForgotten], None],
    ) -> None:
        """An inquiry that begins when the transaction's time is up, or when it is told to.

        Args:
            timeout_ms: of the transaction; 0: it never expires.
            on_ended: told the outcome, which is not OPEN.
            on_forgotten: told the coordinator's error if the outcome is no longer known.
        """
        self._runtime = runtime
        self._txn_id = txn_id
        self._coordinator = coordinator
        self._on_ended = on_ended
        self._on_forgotten = on_forgotten
        if timeout_ms:
            # Without the outcome, acknowledged messages are undecided for ever.
            self._expiry = runtime.deadlines.call_later(
                runtime.fail, timeout_ms + EXPIRY_GRACE_MS, self.resolve_soon
            )

    def forget_expiry(self) -> None:
        """Do not ask when the transaction's time is up."""
        self._runtime.deadlines.forget(self._expiry)

    def end(self) -> None:
        """Stop asking, since the outcome is known, or can no longer be asked for."""
        if not self._is_over:
            self._is_over = True
            self.forget_expiry()
            # They refer to the transaction, which refers to this.
            del self._on_ended, self._on_forgotten

    def doubt(self) -> None:
        """Ask at once, and then once per period at most, as long as doubts arise."""
        if self._is_over:
            return
        self._doubted = True
        if not self._finding_out:
            self._finding_out = True
            self._runtime.spawn(
                self._find_out, f"find out about {self._txn_id}", self._runtime.fail
            )

    async def _find_out(self) -> None:
        try:
            while self._doubted and not self._is_over:
                # A copy that comes while this asks may be of an abort after the answer.
                self._doubted = False
                if not await self._ask_status():
                    self._doubted = True
                if not self._is_over:
                    await asyncio.sleep(RESOLVE_PERIOD_MS / 1000)
        finally:
            self._finding_out = False

    def resolve_soon(self) -> None:
        """Ask once per period until there is an outcome.

        Messages that the transaction acknowledged must not stay undecided.
        """
        if not self._is_over and not self._resolving:
            self._resolving = True
            self._runtime.spawn(self._resolve, f"resolve {self._txn_id}", self._runtime.fail)

    async def _resolve(self) -> None:
        try:
            while not self._is_over:
                await asyncio.sleep(RESOLVE_PERIOD_MS / 1000)
                await self._ask_status()
        finally:
            self._resolving = False

    async def _ask_status(self) -> bool:
        """Ask once, and tell the owner if the transaction has ended.

        Returns:
            Whether there was an answer.
        """
        try:
            reply = await self._coordinator.request(
                transaction_pb2.CommandDescribeTxn(txn_id=self._txn_id.to_wire())
            )
        except (TxnNotFound, TxnForgotten) as error:
            if not self._is_over:
                self._on_forgotten(error)
        except ClientClosed:
            # The client has closed: it can no longer ask.
            self.end()
            return False
        except MagnetarError as error:
            log.info("cannot find out about %s: %s", self._txn_id, error)
            return False
        else:
            self._runtime.saw(reply.transaction.stamp)
            status = TransactionStatus(reply.transaction.status)
            if status is not TransactionStatus.OPEN and not self._is_over:
                log.info("transaction %s turned out to be %s", self._txn_id, status.name)
                self._on_ended(status)
        return True
