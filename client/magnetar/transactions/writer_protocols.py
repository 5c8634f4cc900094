"""What a transaction needs of producers that send in it, and consumers that acknowledge.

Both know transactions; a transaction knows of them only what stands here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any, Protocol

from magnetar_core.errors import MagnetarError
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID


class WholeBatch(Protocol):
    """All that a lazy transaction has written, as one plain batch."""

    finished: bool
    attempts: int

    @property
    def receipt(self) -> asyncio.Future[Any] | None: ...


class Writer(Protocol):
    """Brings the commands of one transaction to one partition or subscription."""

    @property
    def confirmed_count(self) -> int:
        """Confirmed messages or ack commands; the commit names it."""
        ...

    def drain(self) -> Awaitable[None]:
        """Wait until all that has left is confirmed or has failed."""
        ...

    def abandon(self, error: MagnetarError) -> None:
        """Drop what is buffered; answers that are under way are still counted."""
        ...

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        ...

    def retire(self) -> None:
        """The transaction has ended."""
        ...


class PlainSender(Protocol):
    """A producer's plain sends to the same partition."""

    @property
    def follows(self) -> tuple[TxnID, ...]: ...

    def follow(self, txn_id: TxnID, *, in_place_of: Collection[TxnID] = ()) -> None:
        """What is sent from now on comes after a transaction's messages (order, k)."""
        ...

    def close_batch(self) -> None: ...

    def drain(self) -> Awaitable[None]: ...

    def send_alone(self, open_batch: Any, *, timeout_ms: float) -> WholeBatch:
        """Send what take_open_batch() gave."""
        ...

    def send_again(self, batch: Any, *, timeout_ms: float) -> None:
        """Send what send_alone() gave."""
        ...


class Sender(Writer, Protocol):
    """One producer's messages to one partition.

    Attributes:
        plain: the same producer's sends to this partition outside of transactions.
        follows: the transaction whose messages come before.
    """

    name: PartitionName

    @property
    def producer_id(self) -> int: ...

    @property
    def plain(self) -> PlainSender | None: ...

    @property
    def follows(self) -> tuple[TxnID, ...]: ...

    @property
    def failure(self) -> MagnetarError | None: ...

    @property
    def is_empty(self) -> bool: ...

    def begin(self, txn_id: TxnID, producer_epoch: int | None = None) -> None:
        """The transaction has its id: batches may leave."""
        ...

    def close_batch(self) -> None: ...

    def take_open_batch(self) -> Any: ...


class Acks(Writer, Protocol):
    """One consumer's acknowledgements of one subscription's partition."""

    name: SubscriptionName
    consumer_id: int

    def begin(
        self, txn_id: TxnID, producer_epoch: int | None = None, *, two_phase_commit: bool = False
    ) -> None:
        """The transaction has its id: acks may leave."""
        ...

    def close_command(self) -> None: ...

    def on_ended(self, committed: bool) -> None:
        """How the transaction ended."""
        ...
