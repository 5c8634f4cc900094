"""Transactions of a coordinator in memory: live ones, and those that ended lately. Pure.

Records change the table, live and in replay alike; nothing else does, except notes about durability
and skipped TxnIDs. The rules about transactions are in shard.py.
Source: PIP-31, Transaction Coordinator, TC Startup; rules g and h.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container, Iterator
from contextlib import contextmanager

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata.records import (
    LossAccepted,
    ParticipantsAdded,
    Record,
    StatusChanged,
    TxnEnded,
    TxnOpened,
)
from magnetar_coordinator.metadata.transaction import Transaction, TxnStatus
from magnetar_coordinator.transactions.ended_details import EndedDetails
from magnetar_coordinator.transactions.watermark import WatermarkTracker
from magnetar_core.cuts.hybrid_clock import HybridClock
from magnetar_core.errors import InvalidTxnState, TxnNotFound
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant

_COMMITTING = frozenset({TxnStatus.COMMITTING})


# Expiry of OPEN transactions, in accumulated run time.
# Source: PIP-31, TC Transaction Expiration.

_STALE_ENTRIES_MIN = 1_024


class ExpiryQueue:
    """Deadlines of OPEN transactions: a heap that drops outdated entries when they surface.

    A transaction that ends costs a single dictionary operation here; the heap is rebuilt when more
    than half of it is outdated.
    """

    def __init__(self) -> None:
        self._deadlines: dict[TxnID, int] = {}
        self._heap: list[tuple[int, TxnID]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, txn_id: TxnID, deadline_run_time_ms: int) -> None:
        """Add a transaction with its deadline."""
        if txn_id in self._deadlines:
            raise BrokenInvariant(f"{txn_id} expires already")
        self._deadlines[txn_id] = deadline_run_time_ms
        heapq.heappush(self._heap, (deadline_run_time_ms, txn_id))

    def remove(self, txn_id: TxnID) -> None:
        """Remove a transaction that is no longer OPEN."""
        del self._deadlines[txn_id]
        if len(self._heap) > 2 * len(self._deadlines) + _STALE_ENTRIES_MIN:
            self._heap = [(deadline, txn_id) for txn_id, deadline in self._deadlines.items()]
            heapq.heapify(self._heap)

    def expired(
        self, run_time_ms: float, *, count_max: int, kept: Container[TxnID] = ()
    ) -> list[TxnID]:
        """Return transactions whose deadline has come, earliest first. They stay until removed.

        Args:
            kept: these do not expire. They do not count, since they would hide all later ones.
        """
        found: list[tuple[int, TxnID]] = []
        expired: list[TxnID] = []
        while self._heap and self._heap[0][0] <= run_time_ms and len(expired) < count_max:
            entry = heapq.heappop(self._heap)
            if self._deadlines.get(entry[1]) == entry[0]:
                found.append(entry)
                if entry[1] not in kept:
                    expired.append(entry[1])
        for entry in found:
            heapq.heappush(self._heap, entry)
        return expired

    def check(self) -> None:
        """Check the queue's invariant."""
        entries = dict.fromkeys(self._heap)
        for txn_id, deadline in self._deadlines.items():
            assert (deadline, txn_id) in entries


class TransactionTable:
    """Live transactions of a TCID, and its latest outcomes.

    Args:
        next_counter: this store has issued all smaller counters.
        stamp_bound: all stamps of its commits lie below it; 0: there are none.
    Attributes:
        clock: gives commits their stamps, in the order in which they become durable.
        ended_details: what descriptions tell of transactions that have ended.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        tcid: int,
        incarnation: int,
        next_counter: int,
        stamp_bound: int = 0,
    ) -> None:
        self._config = config
        self._tcid = tcid
        self._incarnation = incarnation
        self._most_bits = tcid << 48 | incarnation
        self.next_counter = next_counter
        self.live: dict[TxnID, Transaction] = {}
        # How many live transactions are in each status.
        self.status_counts = {
            TxnStatus.OPEN: 0,
            TxnStatus.COMMITTING: 0,
            TxnStatus.ABORTING: 0,
        }
        self.expiry = ExpiryQueue()
        # Transactions that were committed before a loss and are OPEN here, with digests of their
        # selections.
        self.past_commits: dict[TxnID, bytes] = {}
        # The stamps of commits that were decided before a loss, until they are decided again.
        self.past_stamps: dict[TxnID, int] = {}
        self.clock = HybridClock(stamp_bound, ahead_ms_max=config.stamp_ahead_ms_max)
        self.watermark = WatermarkTracker(
            next_counter,
            listed_age_ms_min=config.constants.watermark_listed_age_ms_min,
            ranges_max=config.constants.watermark_ranges_max,
        )
        # The latest outcomes, among them all that are not durable yet.
        self._recent: dict[TxnID, TxnEnded] = {}
        self.ended_details = EndedDetails(config.constants)
        # Looked up in the store, for the command that is being given again.
        self._recalled: TxnEnded | None = None
        # Recent durable outcomes, the oldest first. Finding a dictionary's first key is slow when
        # many keys before it have been deleted.
        self._recent_durable: deque[TxnID] = deque()

    @property
    def incarnation(self) -> int:
        """The incarnation of the coordinator's store."""
        return self._incarnation

    # Finding.

    def is_own(self, txn_id: TxnID) -> bool:
        """Return whether a TxnID belongs to this coordinator's present incarnation."""
        return txn_id.tcid == self._tcid and txn_id.incarnation == self._incarnation

    def is_issued(self, txn_id: TxnID) -> bool:
        """Return whether this coordinator issued a TxnID, in this or an earlier incarnation."""
        if txn_id.tcid != self._tcid or txn_id.incarnation > self._incarnation:
            return False
        if txn_id.incarnation == self._incarnation:
            return txn_id.counter < self.next_counter
        return txn_id.incarnation > 0

    def require_fenced(self, txn_id: TxnID) -> None:
        """Check that a participant may be told to abort a transaction that it holds open.

        Raises:
            TxnNotFound: never issued here; an abort would harm its later owner.
            InvalidTxnState: it is live here, and ends by itself or by its producer.
        """
        transaction = self.live.get(txn_id)
        if transaction is not None and transaction.status is not TxnStatus.ABORTING:
            raise InvalidTxnState(
                f"transaction {txn_id} is {transaction.status.name} at its coordinator: it is not"
                " hanging",
                status=transaction.status.name,
            )
        if not self.is_issued(txn_id):
            raise TxnNotFound(f"transaction {txn_id} was never opened here", txn_id=txn_id)

    def skip(self, txn_id: TxnID) -> None:
        """Never issue a TxnID that a client invented, nor smaller ones.

        Writes under it would belong to its later owner. These TxnIDs count as issued and ended.
        Nothing is written: after a restart the counter continues at a bound above all of them.
        """
        if not self.is_own(txn_id):
            raise BrokenInvariant(f"{txn_id} is another coordinator's")
        self.next_counter = max(self.next_counter, txn_id.counter + 1)
        self.watermark.skipped_to(self.next_counter)

    def oldest_open(self) -> Transaction | None:
        """Return the oldest OPEN transaction, or None."""
        if not self.status_counts[TxnStatus.OPEN]:
            return None
        for transaction in self.live.values():
            if transaction.status is TxnStatus.OPEN:
                return transaction
        raise AssertionError("an OPEN transaction is counted, and none is there")

    def unfinished_up_to(self, stamp: int) -> list[TxnID]:
        """Return commits up to a stamp that have not ended everywhere, the lowest stamps first.

        Among them are commits from before a loss that are not decided again yet.
        """
        # Among many that are open there is often none.
        committing = self.select(_COMMITTING) if self.status_counts[TxnStatus.COMMITTING] else ()
        stamps = [(one.stamp, one.txn_id) for one in committing if one.stamp <= stamp]
        stamps += [(past, txn_id) for txn_id, past in self.past_stamps.items() if past <= stamp]
        return [txn_id for _, txn_id in sorted(stamps)]

    def select(self, statuses: frozenset[TxnStatus]) -> Iterator[Transaction]:
        """Yield live transactions in these states, oldest first."""
        return (one for one in self.live.values() if one.status in statuses)

    @contextmanager
    def recalling(self, outcome: TxnEnded) -> Iterator[None]:
        """Use an outcome that was looked up, while a command is given again."""
        self._recalled = outcome
        try:
            yield
        finally:
            self._recalled = None

    def recent_outcomes(self) -> list[TxnEnded]:
        """Return the latest outcomes, among them all that are not durable yet."""
        return list(self._recent.values())

    # Applying.

    def apply(self, record: Record) -> Transaction | None:
        """Change memory by a record: the only path, for live records and for replay.

        Returns:
            The transaction that the record left behind; None when it ended.
        """
        if isinstance(record, TxnEnded):
            self._apply_ended(record)
            return None
        if isinstance(record, TxnOpened):
            transaction = self._apply_opened(record)
        else:
            transaction = self.live[record.txn_id]
            self._apply_change(record, transaction)
        transaction.record_count += 1
        return transaction

    def outcome_durable(self, txn_id: TxnID) -> None:
        """Note that an applied outcome is durable: the watermark may pass it."""
        if txn_id.most_bits == self._most_bits:
            self.watermark.ended_durably(txn_id.least_bits)
        self._recent_durable.append(txn_id)
        if len(self._recent_durable) > self._config.recent_outcomes_max:
            del self._recent[self._recent_durable.popleft()]

    def forget(self, txn_id: TxnID) -> None:
        """Forget an OPEN transaction of an earlier incarnation, whose outcome is not known."""
        transaction = self.live.pop(txn_id)
        if transaction.status is not TxnStatus.OPEN or txn_id.incarnation == self._incarnation:
            raise BrokenInvariant(f"{txn_id} is {transaction.status.name}: its end is known")
        self.status_counts[TxnStatus.OPEN] -= 1
        if transaction.expires:
            self.expiry.remove(txn_id)

    def check(self) -> None:
        """Check the invariants."""
        self.expiry.check()
        counted = dict.fromkeys(self.status_counts, 0)
        for txn_id, transaction in self.live.items():
            transaction.check()
            assert transaction.stamp <= self.clock.last
            counted[transaction.status] += 1
            assert self.is_issued(txn_id)
            assert txn_id not in self._recent
            if txn_id.incarnation == self._incarnation:
                assert self.watermark.is_live(txn_id.counter)
        assert counted == self.status_counts
        expiring = [one for one in self.live.values() if one.expires]
        assert len(self.expiry) == sum(one.status is TxnStatus.OPEN for one in expiring)

    def _apply_opened(self, record: TxnOpened) -> Transaction:
        txn_id = record.txn_id
        if txn_id in self.live:
            raise BrokenInvariant(f"{txn_id} is opened twice")
        transaction = Transaction(
            txn_id=txn_id,
            timeout_ms=record.timeout_ms,
            start_run_time_ms=record.start_run_time_ms,
            start_time_ms=record.time_ms,
            participants=dict.fromkeys(record.participants),
            txn_owner=record.txn_owner,
            principal=record.principal,
        )
        if record.ledger_ids:
            _note_ledger_ids(transaction, record)
        self.live[txn_id] = transaction
        self.status_counts[TxnStatus.OPEN] += 1
        if transaction.expires:
            self.expiry.add(txn_id, transaction.deadline_run_time_ms)
        if txn_id.most_bits == self._most_bits:
            counter = txn_id.least_bits
            self.next_counter = max(self.next_counter, counter + 1)
            self.watermark.opened(counter, record.start_run_time_ms)
        return transaction

    def _apply_change(
        self, record: ParticipantsAdded | StatusChanged | LossAccepted, transaction: Transaction
    ) -> None:
        if isinstance(record, StatusChanged):
            # PIP-31, updateTxnStatus: fails unless the status is as expected.
            if transaction.status is not record.expected:
                raise BrokenInvariant(
                    f"{record.txn_id} is {transaction.status.name}, not {record.expected.name}"
                )
            self.status_counts[record.expected] -= 1
            self.status_counts[record.new] += 1
            if transaction.expires:
                self.expiry.remove(record.txn_id)
            transaction.status = record.new
            transaction.decided_time_ms = record.time_ms
            transaction.stamp = record.stamp
            self.clock.advance(record.stamp)
            self.past_stamps.pop(record.txn_id, None)
            transaction.counts = record.counts
            transaction.selection = record.selection
            transaction.unfinished = dict.fromkeys(transaction.participants)
        elif isinstance(record, ParticipantsAdded):
            if transaction.status is not TxnStatus.OPEN:
                raise BrokenInvariant(
                    f"{record.txn_id} is {transaction.status.name}, and takes no participants"
                )
            transaction.participants.update(dict.fromkeys(record.participants))
            if record.ledger_ids:
                _note_ledger_ids(transaction, record)
        else:
            if transaction.status is not TxnStatus.COMMITTING:
                raise BrokenInvariant(
                    f"{record.txn_id} is {transaction.status.name}: there is no loss to accept"
                )
            transaction.loss_accepted = True

    def _apply_ended(self, record: TxnEnded) -> None:
        transaction = self.live.pop(record.txn_id)
        self.status_counts[transaction.status] -= 1
        self._recent[record.txn_id] = record
        self.ended_details.add(transaction, record)


def _note_ledger_ids(transaction: Transaction, record: TxnOpened | ParticipantsAdded) -> None:
    """Note the ledger ids of the participants that a record adds."""
    if transaction.ledger_ids is None:
        transaction.ledger_ids = {}
    transaction.ledger_ids.update(zip(record.participants, record.ledger_ids, strict=True))
