"""The transactions of all coordinators, live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from magnetar import Client, MagnetarError, TransactionDescription, TransactionStatus, TxnID
from magnetar_console.seen import Row, Seen
from magnetar_core.clock import Clock

# ListTxns returns as many at most.
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
    """Lists the transactions that have not ended, and those that ended last."""

    def __init__(self, clock: Clock) -> None:
        self.period_s = 1.0
        self._beginnings = Beginnings(clock)
        # The last row of each transaction that was seen open, the oldest look first.
        self._remembered: dict[str, Row] = {}
        self._clock = clock
        self._live: dict[str, Row] = {}
        # When each coordinator answered last.
        self._answered_ms: dict[int, int] = {}

    async def look(self, client: Client) -> Seen:
        """Ask all coordinators."""
        unanswered: dict[int, MagnetarError] = {}
        truncated: set[int] = set()
        listing = client.admin.transactions.list
        live = await listing(
            limit=TRANSACTIONS_MAX,
            on_unanswered=unanswered.__setitem__,
            on_truncated=truncated.add,
        )
        ended = await listing(
            ENDED,
            limit=ENDED_MAX,
            on_unanswered=unanswered.__setitem__,
        )
        rows = self._away_rows(unanswered) | {str(one.txn_id): self._row(one) for one in live}
        latest = {str(one.txn_id): self._remembering(self._row(one)) for one in ended}
        self._remember(rows)
        self._beginnings.keep((*rows, *latest))
        self._note_answers({_tcid(key) for key in rows}, unanswered)
        self._live = rows
        problems = [
            f"Coordinator {tcid} does not answer, and its transactions"
            f" {'are old' if tcid in self._answered_ms else 'are missing'}: {error}"
            for tcid, error in sorted(unanswered.items())
        ]
        if truncated:
            problems.append(f"There are more than these {len(rows):,} transactions.")
        return Seen({"transactions": rows, "ended": latest}, tuple(problems))

    async def close(self) -> None:
        """Forget the open transactions; who those that ended were, the next viewer asks, too."""
        self._beginnings.keep(())
        self._live, self._answered_ms = {}, {}

    def _away_rows(self, unanswered: Iterable[int]) -> dict[str, Row]:
        """Return the last rows of coordinators that do not answer, with their time."""
        away = set(unanswered)
        return {
            key: {**row, "as_of_ms": self._answered_ms[_tcid(key)]}
            for key, row in self._live.items()
            if _tcid(key) in away
        }

    def _note_answers(self, tcids: Iterable[int], unanswered: Container[int]) -> None:
        now_ms = self._clock.wall_ms()
        for tcid in tcids:
            if tcid not in unanswered:
                self._answered_ms[tcid] = now_ms

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


def _tcid(txn_id: str) -> int:
    return TxnID.parse(txn_id).tcid


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
