"""The commit of a lazy transaction that never had to begin: a single plain batch.

The broker stores it completely or not at all. To learn the outcome, the client repeats the same
sequence.
Source: PIP-31, Future Work, Single Partition Transaction; docs/protocol/rules.md, l.
"""

from __future__ import annotations

import asyncio

from magnetar.link.unanswered import EFFECT_UNKNOWN
from magnetar.transactions.writer_protocols import PlainSender, Sender, WholeBatch
from magnetar_core.errors import OutcomeUnknown


class WholeBatchCommit:
    """Sends a transaction's messages, and repeats that while the outcome is unknown."""

    def __init__(self) -> None:
        self._batch: WholeBatch | None = None

    def has_something(self, sender: Sender) -> bool:
        """Whether there is a batch to send, or to send again."""
        return self._batch is not None or not sender.is_empty

    @property
    def _is_stored(self) -> bool:
        """Whether the broker has said so, perhaps to a commit that was cancelled meanwhile."""
        receipt = None if self._batch is None else self._batch.receipt
        if receipt is None or not receipt.done() or receipt.cancelled():
            return False
        return receipt.exception() is None

    async def send(
        self, sender: Sender, plain: PlainSender, *, name: str, timeout_ms: float
    ) -> None:
        """Send the messages that the sender has collected, and wait until they are stored.

        Args:
            name: the transaction's name in messages for people.
        Raises:
            OutcomeUnknown: the batch may be stored. Sending again is harmless.
            MagnetarError: the broker refused the batch. Nothing is stored.
        """
        if self._batch is None:
            self._batch = plain.send_alone(sender.take_open_batch(), timeout_ms=timeout_ms)
        elif self._batch.finished and not self._is_stored:
            plain.send_again(self._batch, timeout_ms=timeout_ms)
        assert self._batch.receipt is not None
        try:
            await asyncio.shield(self._batch.receipt)
        except EFFECT_UNKNOWN as error:
            raise OutcomeUnknown(f"{name} may be committed: {error}") from error
