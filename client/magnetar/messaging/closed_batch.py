"""Batches that are complete, and the calls that wait for them."""

from __future__ import annotations

import asyncio

from magnetar.link.in_flight import Item
from magnetar.messaging.followed_transactions import NOBODY
from magnetar_core.errors import MagnetarError, OutcomeUnknown
from magnetar_core.wire import broker_pb2, common_pb2

Receipt = asyncio.Future[common_pb2.MessageIdData]


class ClosedBatch(Item[broker_pb2.CommandSendResponse]):
    """An encoded batch with its sequence. It never changes, however often it is sent."""

    __slots__ = (
        "awaited",
        "count",
        "followed",
        "payload",
        "producer_id",
        "receipt",
        "sequence_id",
        "size",
    )

    def __init__(
        self, payload: bytes, count: int, size: int, receipt: Receipt | None, awaited: int
    ) -> None:
        super().__init__()
        self.payload = payload
        self.count = count
        self.size = size
        self.receipt = receipt
        # How many of its messages have a caller that waits for the receipt.
        self.awaited = awaited
        self.producer_id = 0
        self.sequence_id = 0
        # What the last attempt named as coming before it (order, k).
        self.followed = NOBODY


def new_receipt(loop: asyncio.AbstractEventLoop) -> Receipt:
    """Return a future for the broker's answer to a batch."""
    receipt: Receipt = loop.create_future()
    # Whoever waits may have gone when it fails; flush() tells then.
    receipt.add_done_callback(_retrieve)
    return receipt


def of_all_copies(batch: ClosedBatch, error: MagnetarError) -> MagnetarError:
    """Return what a refusal says of a batch: it speaks of the copy that was sent last."""
    if not batch.in_doubt or isinstance(error, OutcomeUnknown):
        return error
    doubt = OutcomeUnknown(f"it may be stored yet, by a copy that was not answered: {error}")
    doubt.__cause__ = error
    return doubt


def _retrieve(receipt: Receipt) -> None:
    if not receipt.cancelled():
        receipt.exception()
