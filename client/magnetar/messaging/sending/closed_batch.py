"""Batches that are complete, and the calls that wait for them."""

from __future__ import annotations

import asyncio

from magnetar.link.runtime import unobserved
from magnetar.link.unanswered import EFFECT_UNKNOWN, Item
from magnetar.messaging.sending.followed_transactions import NOBODY
from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.ids import MessageId
from magnetar_core.transport.columns.sends import Sent


class Receipt(asyncio.Future[MessageId]):
    """The broker's answer to a batch.

    Attributes:
        awaited: how many messages of the batch have a caller that waits for the answer.
    """

    awaited = 0


class ClosedBatch(Item[Sent]):
    """An encoded batch with its sequence. It never changes, however often it is sent."""

    # Given when it is sent.
    producer_id = 0
    sequence_id = 0

    def __init__(self, payload: bytes, count: int, size: int, receipt: Receipt | None) -> None:
        super().__init__()
        # What the last attempt named as coming before it (order, k).
        self.followed = NOBODY
        self.payload = payload
        self.count = count
        self.size = size
        self.receipt = receipt

    @property
    def unawaited_count(self) -> int:
        """Number of its messages for which no caller waits."""
        return self.count - (self.receipt.awaited if self.receipt is not None else 0)


def new_receipt(loop: asyncio.AbstractEventLoop) -> Receipt:
    """Return a future for the broker's answer to a batch."""
    # A caller that waits may have gone when it fails; flush() tells then.
    return unobserved(Receipt(loop=loop))


def of_all_copies(batch: ClosedBatch, error: MagnetarError) -> MagnetarError:
    """Return the error of a batch for a refusal, which speaks of the last copy alone."""
    if not batch.in_doubt or isinstance(error, EFFECT_UNKNOWN):
        return error
    doubt = OutcomeUnknown(f"it may be stored, by an earlier copy: {error}")
    doubt.__cause__ = error
    return doubt
