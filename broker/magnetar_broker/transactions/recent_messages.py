"""Messages of small transactions, in memory until they end and then with their marker in the tail.

A consumer at the tail then gets a transaction's messages without a read of the store, as it gets
plain messages. Larger transactions, and those from before a restart, are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magnetar_broker.budgets.tails import Tails
    from magnetar_broker.transactions.transaction_index import Writer

# Of a writer in a transaction. A larger part is read with few scans, whatever they cost each.
WRITER_BYTES_MAX: Final = 64 << 10
# Of the memory for tails, as much as that is now, what messages of open transactions may take.
SHARE: Final = 4


# Batches of a transaction: for each writer of its marker, first indexes and batches.
Messages = Sequence[Sequence[tuple[int, bytes]]]


class RecentMessages:
    """Batches of open transactions in memory.

    Args:
        tails: beyond a share of their limit, the messages of further transactions are not kept.
    """

    def __init__(self, tails: Tails) -> None:
        self._tails = tails
        self.byte_count = 0

    def check(self, writers: Iterable[Writer]) -> None:
        """Check the invariants.

        Args:
            writers: all writers of open transactions.
        """
        kept = [writer for writer in writers if writer.recent is not None]
        assert self.byte_count == sum(len(one) for writer in kept for one in writer.recent or ())
        assert all(len(one.recent or ()) == len(one.batch_starts) for one in kept)

    def keep(self, writer: Writer, batch: bytes) -> None:
        """Keep the batch that the writer has just added, if all before it were kept."""
        recent = writer.recent
        if recent is None and len(writer.batch_starts) > 1:
            return
        size = len(batch)
        byte_count = self.byte_count + size
        is_small = writer.stored_bytes + size <= WRITER_BYTES_MAX
        if is_small and byte_count <= self._tails.bytes_max // SHARE:
            if recent is None:
                writer.recent = [batch]
            else:
                recent.append(batch)
            self.byte_count = byte_count
        else:
            self.drop(writer)

    def drop(self, writer: Writer) -> None:
        """Forget a writer's batches: it has grown, or its transaction has ended."""
        recent = writer.recent
        if recent is not None:
            self.byte_count -= sum(map(len, recent))
            writer.recent = None
