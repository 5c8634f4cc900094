"""The transactions of all coordinators, live."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from magnetar import (
    Client,
    MagnetarError,
    TransactionChanges,
    TransactionDescription,
    TransactionStatus,
)
from magnetar_console.pauses import CHANGES_PAUSE
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock
from magnetar_core.ids import TxnID

# How many live transactions are shown.
TRANSACTIONS_MAX: Final = 10_000
# How many ended transactions are shown.
ENDED_MAX: Final = 10
# How many transactions are remembered after they were seen open.
REMEMBERED_MAX: Final = 2_000
# How many topics or subscriptions a row names.
NAMES_MAX: Final = 6
REMEMBERED: Final = (
    *("client", "host", "principal", "opened_at_ms"),
    *("topics", "subscriptions", "participants"),
)
ENDED = (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)


class Beginnings:
    """When transactions began, by this machine's clock, from the ages that coordinators tell.

    An answer is on its way for a while, so that the earliest estimate is the best. It is kept:
    otherwise the rows of all transactions would change with every look.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms: dict[object, int] = {}

    def began_ms(self, key: object, age_ms: int) -> int:
        """Return when something of this age began, in milliseconds since the Unix epoch."""
        estimate = self._clock.wall_ms() - age_ms
        known = self._began_ms.get(key)
        # Another age is that of another beginning, or of a clock that was set.
        if known is None or abs(known - estimate) > 2_000:
            self._began_ms[key] = known = estimate
        return known

    def keep(self, keys: Iterable[object]) -> None:
        """Forget everything but these."""
        self._began_ms = {key: self._began_ms[key] for key in keys if key in self._began_ms}


class TransactionsLook:
    """The transactions that have not ended, and those that ended last.

    Coordinators tell what has changed since the look before, and not all of them again.
    """

    def __init__(self, clock: Clock) -> None:
        self.period_s = 1.0
        self.pause_factor = CHANGES_PAUSE
        self._beginnings = Beginnings(clock)
        self._changes: TransactionChanges | None = None
        self._live: dict[TxnID, Row] = {}
        self._ended: deque[Row] = deque(maxlen=ENDED_MAX)
        # The last row of each transaction that was seen open, the oldest change first.
        self._remembered: dict[str, Row] = {}
        self._clock = clock
        # When each coordinator that has transactions answered last.
        self._answered_ms: dict[int, int] = {}

    async def look(self, client: Client) -> Seen:
        """Ask all coordinators what has changed."""
        unanswered: dict[int, MagnetarError] = {}
        transactions = client.admin.transactions
        if self._changes is None:
            before = await transactions.list(
                ENDED, limit=ENDED_MAX, on_unanswered=unanswered.__setitem__
            )
            self._ended.extend(self._row(one) for one in reversed(before))
        changes = await transactions.changes(self._changes, on_unanswered=unanswered.__setitem__)
        self._changes = changes
        self._take(changes)
        shown = sorted(self._live)[:TRANSACTIONS_MAX]
        self._note_answers(unanswered)
        rows = {str(txn_id): self._with_age(txn_id, unanswered) for txn_id in shown}
        latest = {row["id"]: row for row in reversed(self._ended)}
        problems = [
            f"Coordinator {tcid} does not answer: its transactions may have changed: {error}"
            for tcid, error in sorted(unanswered.items())
        ]
        if len(shown) < len(self._live):
            problems.append(
                f"There are {len(self._live):,} transactions; these {len(shown):,} are the oldest."
            )
        return Seen({"transactions": rows, "ended": latest}, tuple(problems))

    async def close(self) -> None:
        """Forget everything."""
        self._changes = None
        self._live.clear()
        self._ended.clear()
        self._beginnings.keep(())
        self._remembered.clear()

    def _note_answers(self, unanswered: Container[int]) -> None:
        now_ms = self._clock.wall_ms()
        for tcid in {one.tcid for one in self._live}:
            if tcid not in unanswered:
                self._answered_ms[tcid] = now_ms

    def _with_age(self, txn_id: TxnID, unanswered: Container[int]) -> Row:
        """Return the row of a transaction, with its time if its coordinator does not answer."""
        row = self._live[txn_id]
        if txn_id.tcid not in unanswered:
            return row
        return {**row, "as_of_ms": self._answered_ms[txn_id.tcid]}

    def _take(self, changes: TransactionChanges) -> None:
        for txn_id in [one for one in self._live if one.tcid in changes.anew]:
            del self._live[txn_id]
        changed = {one.txn_id: self._row(one) for one in changes.transactions}
        self._live |= changed
        self._remember({row["id"]: row for row in changed.values()})
        for one in changes.ended:
            self._live.pop(one.txn_id, None)
        for one in changes.ended[-ENDED_MAX:]:
            self._ended.append(self._remembering(self._row(one)))
        self._beginnings.keep((*map(str, self._live), *(row["id"] for row in self._ended)))

    def _remember(self, rows: Mapping[str, Row]) -> None:
        for key in [*rows][-REMEMBERED_MAX:]:
            self._remembered.pop(key, None)
            self._remembered[key] = rows[key]
        while len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def _remembering(self, ended: Row) -> Row:
        """Add to the row of an ended transaction what its coordinator no longer tells."""
        return remembering(ended, self._remembered.get(ended["id"]))

    def _row(self, one: TransactionDescription) -> Row:
        # The age of an ended transaction is the time since its end.
        return transaction_row(one, self._beginnings.began_ms(str(one.txn_id), one.age_ms))


def remembering(row: Row, before: Row | None) -> Row:
    """Return a row with what was known of a transaction when it was open.

    Args:
        before: its row then; None: it was not seen while it was open.
    """
    if before is None:
        return row
    return {**row, **{name: before[name] for name in REMEMBERED}}


def transaction_row(one: TransactionDescription, since_ms: int) -> dict[str, Any]:
    """Return the row of a transaction.

    Args:
        since_ms: when it began, or ended, by this machine's clock.
    """
    return {
        "id": str(one.txn_id),
        "status": one.status.name,
        "two_phase": one.two_phase_commit,
        "may_be_prepared": one.may_be_prepared,
        "since_ms": since_ms,
        "opened_at_ms": one.opened_at_ms,
        "ended_at_ms": one.ended_at_ms,
        "timeout_ms": one.timeout_ms,
        "client": one.client.name if one.client else "",
        "host": one.client.host if one.client else "",
        "connected": one.client.is_connected if one.client else None,
        "principal": one.principal,
        "transactional_id": one.identity.transactional_id if one.identity else "",
        "topics": counted((part.topic, part.partition, "") for part in one.partitions),
        "subscriptions": counted(
            (part.topic, part.partition, part.subscription) for part in one.subscriptions
        ),
        "participants": len(one.partitions) + len(one.subscriptions),
        "unfinished": len(one.unfinished),
        # The time of this row, if its coordinator no longer answers; else 0.
        "as_of_ms": 0,
    }


def counted(places: Iterable[tuple[str, int, str]]) -> list[Mapping[str, Any]]:
    """Return the partitions of each topic, or of each subscription on it.

    Args:
        places: topics, partitions, and subscriptions; empty: the topic itself.
    Returns:
        A row for each; the last one may count those that are left out, as "more".
    """
    partitions: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, partition, subscription in places:
        partitions[topic, subscription].append(partition)
    named: list[Mapping[str, Any]] = [
        {
            "topic": topic,
            "subscription": subscription,
            "partitions": sorted(found)[:NAMES_MAX],
            "count": len(found),
        }
        for (topic, subscription), found in partitions.items()
    ]
    if len(named) > NAMES_MAX:
        named[NAMES_MAX:] = [{"more": len(named) - NAMES_MAX}]
    return named
