"""One transaction, at its coordinator and at its participants."""

from __future__ import annotations

from typing import Any, Final

from magnetar import (
    Client,
    ParticipantHistory,
    TransactionDescription,
    TransactionHistory,
    TransactionStatus,
    TxnForgotten,
    TxnID,
    TxnNotFound,
)
from magnetar_console.looks.transactions import ENDED, Beginnings, remembering, transaction_row
from magnetar_console.pauses import CHANGES_PAUSE
from magnetar_console.seen import Row, Seen, Tables
from magnetar_core.clock import Clock

# How many participants are shown.
PARTITIONS_MAX: Final = 64


class TransactionLook:
    """Asks the coordinator of a transaction, and the brokers of its participants.

    It remembers what it has seen of a transaction whose details its coordinator does not keep.
    """

    def __init__(self, txn_id: TxnID, clock: Clock) -> None:
        self.period_s = 1.0
        self.pause_factor = CHANGES_PAUSE
        self._txn_id = txn_id
        self._clock = clock
        self._beginnings = Beginnings(clock)
        self._participants: dict[str, dict[str, Any]] = {}
        # The last row before the end.
        self._before: Row | None = None
        # The history of a transaction that has ended, once all brokers have told theirs.
        self._final: TransactionHistory | None = None

    async def look(self, client: Client) -> Seen:
        """Ask about the transaction."""
        try:
            found = self._final or await client.admin.transactions.history(self._txn_id)
        except (TxnNotFound, TxnForgotten) as error:
            row: Row = {"id": str(self._txn_id), "status": "", "unknown": str(error)}
            return Seen({"transaction": {"it": row}, "participants": self._participants})
        known = found.transaction
        if known.status in ENDED and not found.is_partial:
            self._final = found
        self._note(found)
        problems = [
            f"{place_text(one)}: its broker does not answer: {one.unanswered}"
            for one in found.participants[:PARTITIONS_MAX]
            if one.unanswered
        ]
        if len(found.participants) > PARTITIONS_MAX:
            problems.append(
                f"{PARTITIONS_MAX} of {len(found.participants):,} participants are shown, those"
                " first that have not ended."
            )
        tables: Tables = {
            "transaction": {"it": self._row(known)},
            "participants": dict(self._participants),
        }
        return Seen(tables, tuple(problems))

    async def close(self) -> None:
        """Keep the participants that were seen, for the next viewer."""

    def _row(self, known: TransactionDescription) -> Row:
        row: Row = transaction_row(known, self._beginnings.began_ms(known.status, known.age_ms))
        if known.status in ENDED and known.details_missing:
            row = remembering(row, self._before)
        else:
            self._before = row
        return {
            **row,
            "prepared_state": str(known.prepared_state) if known.may_be_prepared else "",
            "stamp": known.stamp,
            "trace_id": known.trace_id,
            "decided_at_ms": known.decided_at_ms,
            "cause": known.cause.name,
            "caused_by": known.caused_by,
            "details_missing": known.details_missing.name if known.details_missing else "",
        }

    def _note(self, found: TransactionHistory) -> None:
        """Take the answers of all participants; without details the former rows stay."""
        known = found.transaction
        refusing = {(one.partition, one.subscription) for one in known.unfinished if one.refuses}
        rows: dict[str, dict[str, Any]] = {}
        for one in sorted(found.participants, key=lambda one: bool(one.ended_at_ms)):
            if len(rows) == PARTITIONS_MAX:
                break
            key = f"{one.partition.topic}/{one.partition.partition}/{one.subscription or ''}"
            refuses = (one.partition, one.subscription) in refusing
            rows[key] = self._participant(one, known, self._participants.get(key), refuses)
        if rows:
            self._participants = rows
        elif known.status in ENDED:
            for row in self._participants.values():
                row["state"] = "ended"

    def _participant(
        self,
        one: ParticipantHistory,
        known: TransactionDescription,
        before: Row | None,
        refuses: bool,
    ) -> dict[str, Any]:
        state = "open"
        if one.ended_at_ms or known.status in ENDED:
            state = "ended"
        elif known.status is not TransactionStatus.OPEN:
            state = "refuses" if refuses else "waits"
        row = {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "subscription": one.subscription or "",
            "first_ms": one.first_write_at_ms,
            "last_ms": one.first_write_at_ms,
            # How many messages, or commands with acknowledgements.
            "written": one.count,
            "has_more": one.counted_partly,
            "confirmed": one.confirmed,
            "bytes": one.bytes,
            "pending": one.pending_ack_count,
            "ended_ms": one.ended_at_ms,
            "state": state,
            "error": one.last_error,
            "unanswered": one.unanswered,
        }
        if before is None:
            return row
        if one.status is None:
            # Its broker is away, or has forgotten it.
            kept = ("first_ms", "last_ms", "written", "has_more", "bytes")
            return row | {name: before[name] for name in kept}
        # Brokers tell when a transaction began at a participant, and not when it last wrote there.
        grown = one.count > before["written"] > 0
        last_ms = self._clock.wall_ms() if grown else before["last_ms"]
        return row | {"last_ms": max(last_ms, one.first_write_at_ms)}


def place_text(one: ParticipantHistory) -> str:
    """Return a participant as text."""
    text = f"{one.partition.topic} / {one.partition.partition}"
    return f"{text}, acks of {one.subscription}" if one.subscription else text
