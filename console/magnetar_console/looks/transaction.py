"""One transaction, at its coordinator and at its participants."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from magnetar import (
    Client,
    MagnetarError,
    PartitionName,
    ProducerDescription,
    TransactionDescription,
    TransactionStatus,
    TxnForgotten,
    TxnID,
    TxnNotFound,
)
from magnetar_console.looks.transactions import ENDED, Beginnings, remembering, transaction_row
from magnetar_console.pauses import CHANGES_PAUSE
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock

# How many partitions are asked, and how many of them at the same time.
PARTITIONS_MAX: Final = 64
AT_ONCE: Final = 8

# A partition, and a subscription on it; empty: the partition itself.
Place: TypeAlias = tuple[PartitionName, str]


class TransactionLook:
    """Asks the coordinator of a transaction, and while it is open the brokers of its partitions.

    It remembers what it has seen: after its end a transaction has no participants.
    """

    def __init__(self, txn_id: TxnID, clock: Clock) -> None:
        self.period_s = 1.0
        self.pause_factor = CHANGES_PAUSE
        self._txn_id = txn_id
        self._clock = clock
        self._beginnings = Beginnings(clock)
        self._places: dict[Place, dict[str, Any]] = {}
        self._decided_by_ms = 0
        # The last row before the end.
        self._before: Row | None = None

    async def look(self, client: Client) -> Seen:
        """Ask about the transaction."""
        try:
            known = await client.admin.transactions.describe(self._txn_id)
        except (TxnNotFound, TxnForgotten) as error:
            row: Row = {"id": str(self._txn_id), "status": "", "unknown": str(error)}
            return Seen({"transaction": {"it": row}, "participants": self._rows()})
        problems = await self._ask_participants(client, known)
        return Seen(
            {"transaction": {"it": self._row(known)}, "participants": self._rows()}, problems
        )

    async def close(self) -> None:
        """Keep the participants that were seen, for the next viewer."""

    def _row(self, known: TransactionDescription) -> Row:
        is_open = known.status is TransactionStatus.OPEN
        if not is_open and not self._decided_by_ms:
            self._decided_by_ms = self._clock.wall_ms()
        row: Row = transaction_row(known, self._beginnings.began_ms(known.status, known.age_ms))
        if known.status in ENDED:
            row = remembering(row, self._before)
        else:
            self._before = row
        return {
            **row,
            "prepared_state": str(known.prepared_state) if known.may_be_prepared else "",
            "stamp": known.stamp,
            "decided_by_ms": self._decided_by_ms,
            "participants_known": bool(self._places) or is_open,
        }

    async def _ask_participants(
        self, client: Client, known: TransactionDescription
    ) -> tuple[str, ...]:
        """Ask the participants. Return a sentence about each that did not answer."""
        is_open = known.status is TransactionStatus.OPEN
        has_ended = known.status in ENDED
        places: list[Place] = [(one, "") for one in known.partitions]
        places += [(one.partition_name, one.subscription) for one in known.subscriptions]
        for place in places[:PARTITIONS_MAX]:
            self._places.setdefault(place, _new_row(place))
        unfinished = {(one.partition, one.subscription or ""): one for one in known.unfinished}
        for place, row in self._places.items():
            row["state"] = "open" if is_open else "ended"
            missing = None if has_ended else unfinished.get(place)
            if missing is not None:
                row["state"] = "refuses" if missing.refuses else "waits"
            row["error"] = missing.last_error if missing is not None else ""
        problems = []
        if is_open:
            problems = await self._ask_brokers(client, {partition for partition, _ in self._places})
        if len(places) > PARTITIONS_MAX:
            problems.append(
                f"The first {PARTITIONS_MAX} of {len(places):,} participants are shown."
            )
        return tuple(problems)

    async def _ask_brokers(self, client: Client, partitions: Iterable[PartitionName]) -> list[str]:
        questions = asyncio.Semaphore(AT_ONCE)
        problems: list[str] = []

        async def ask(one: PartitionName) -> list[ProducerDescription]:
            async with questions:
                try:
                    return await client.admin.transactions.describe_producers(
                        one.topic, one.partition
                    )
                except MagnetarError as error:
                    problems.append(f"{one.topic}, partition {one.partition}: {error}")
                    return []

        counts: Counter[Place] = Counter()
        for described in await asyncio.gather(*(ask(one) for one in sorted(partitions))):
            for one in described:
                place = (one.partition, one.subscription)
                if one.txn_id == self._txn_id and place in self._places:
                    row = self._places[place]
                    row["first_ms"] = min(row["first_ms"] or one.start_time_ms, one.start_time_ms)
                    # Several clients may write; each numbers what it writes from 0 on.
                    counts[place] += one.last_sequence + 1
        self._note_growth(counts)
        return problems

    def _note_growth(self, counts: Counter[Place]) -> None:
        """Note how much participants have, and when they had more than at the look before.

        Brokers tell when a transaction began at a participant, and not when it last wrote there.
        """
        for place, count in counts.items():
            row = self._places[place]
            if count > row["written"]:
                is_first = not row["written"]
                row["last_ms"] = row["first_ms"] if is_first else self._clock.wall_ms()
                row["written"] = count

    def _rows(self) -> dict[str, Row]:
        return {
            f"{partition.topic}/{partition.partition}/{subscription}": dict(row)
            for (partition, subscription), row in self._places.items()
        }


def _new_row(place: Place) -> dict[str, Any]:
    partition, subscription = place
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "subscription": subscription,
        "first_ms": 0,
        "last_ms": 0,
        # How many messages, or acknowledgements.
        "written": 0,
        "state": "open",
        "error": "",
    }
