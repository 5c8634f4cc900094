"""Consistent cuts of the demo: taken while it kills, read one from the other when all is over."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from magnetar import Client, Cut, MagnetarError, TxnID
from magnetar_flights.demo.verify import DIFFERENCES_SHOWN, Check

PERIOD_S = 0.5
# While a server is away a cut waits for it.
CUT_S_MAX = 30.0
CLAIM = "Each cut has every transaction whole"


@dataclass(frozen=True, slots=True)
class Taken:
    """A cut, and when it was asked for, by the machine's monotonic clock."""

    asked_at_s: float
    cut: Cut


@dataclass(slots=True)
class Piece:
    """The difference of a cut to the one before: how many messages each transaction wrote.

    Attributes:
        asked_at_s: when the cut was asked for.
    """

    asked_at_s: float
    messages: Counter[TxnID | None] = field(default_factory=Counter)


class Surveyor:
    """Takes a cut of the topics that workers write to, from time to time."""

    def __init__(self, client: Client, topics: Sequence[str]) -> None:
        self._client = client
        self._topics = list(topics)
        self._taken: list[Taken] = []

    async def run(self) -> None:
        """Take cuts until this is cancelled."""
        while True:
            try:
                await self.take()
            except MagnetarError:
                # A server is away for longer than that: the next cut will have what this one had.
                pass
            await asyncio.sleep(PERIOD_S)

    async def take(self) -> None:
        """Take one."""
        asked_at_s = time.monotonic()
        self._taken.append(
            Taken(asked_at_s, await self._client.cut(self._topics, timeout_s=CUT_S_MAX))
        )

    async def read(self, on_read: Callable[[int], None]) -> list[Piece]:
        """Read all cuts, each from the one before."""
        pieces = []
        since: Cut | None = None
        for taken in self._taken:
            piece = Piece(taken.asked_at_s)
            for topic in self._topics:
                for partition in range(taken.cut.partition_count(topic)):
                    async for columns in self._client.read_columns(
                        topic, partition, at=taken.cut, since=since
                    ):
                        piece.messages[columns.txn_id] += len(columns)
                        on_read(len(columns))
            pieces.append(piece)
            since = taken.cut
        return pieces


def check_cuts(
    pieces: Sequence[Piece], committed: Collection[TxnID], answered_at_s: dict[TxnID, float]
) -> Check:
    """Check that cuts split the commits in a before and an after.

    Args:
        pieces: of one cut after the other, the last of which was taken when all was over.
        committed: all transactions that were committed.
        answered_at_s: when a commit was answered, of those whose answer came.
    """
    # The first piece with a message of the transaction.
    first: dict[TxnID | None, int] = {}
    torn: list[TxnID | None] = []
    for number, piece in enumerate(pieces):
        torn += [one for one in piece.messages if first.setdefault(one, number) != number]
    late = [
        one
        for one, at_s in answered_at_s.items()
        if any(piece.asked_at_s > at_s for piece in pieces[: first.get(one, len(pieces))])
    ]
    seen = first.keys()
    differences = [
        *(f"in two cuts: {one}" for one in torn),
        *(f"answered before a cut, not in it: {one}" for one in late),
        *(f"committed, in no cut: {one}" for one in sorted(set(committed) - seen)),
        *(f"in a cut, not committed: {one}" for one in seen - set(committed)),
    ]
    return Check(
        CLAIM,
        f"{len(pieces):,} cuts, {len(torn):,} transactions torn, {len(late):,} late",
        tuple(differences[:DIFFERENCES_SHOWN]),
    )
