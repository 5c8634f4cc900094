"""Check of a coordinator's store at rest: records, outcomes, transactional ids and names.

Nothing is changed. A store that was killed at any moment passes: whatever belongs together is
written in one batch.
Source: docs/check.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata import lost_transactions
from magnetar_coordinator.metadata.lost_transactions import LostRange
from magnetar_coordinator.metadata.records import (
    IDENTITIES,
    META,
    META_COUNTER,
    META_INCARNATION,
    META_LOST,
    META_NEXT_UNOPENED,
    META_OUTCOME_COUNT,
    META_PRODUCER_ID,
    META_STAMP_BOUND,
    META_TCID,
    METADATA,
    NAMES,
    OUTCOMES,
    PRODUCER_NUMBER_BITS,
    TXN_ID_BYTES,
    TxnOpened,
    decode_identity,
    decode_name,
    read_u64,
    txn_id_of_key,
)
from magnetar_coordinator.metadata.transaction import TxnStatus
from magnetar_coordinator.metadata.transaction_rows import decode_metadata, decode_outcome
from magnetar_coordinator.metadata.transactional_id import (
    TransactionalIdMetadata,
    TransactionalIdState,
)
from magnetar_coordinator.transactions.transaction_table import TransactionTable
from magnetar_core.ids import TxnID
from magnetar_core.invariants import BrokenInvariant
from magnetar_storage.offline.findings import Findings
from magnetar_storage.offline.rows import OfflineRows
from magnetar_storage.store import Reader

_PRODUCER_NUMBER: Final = (1 << PRODUCER_NUMBER_BITS) - 1

# The status of the transaction that belongs to a state of a transactional id.
_STATUS_OF_STATE: Final = {
    TransactionalIdState.ONGOING: TxnStatus.OPEN,
    TransactionalIdState.PREPARE_COMMIT: TxnStatus.COMMITTING,
    TransactionalIdState.PREPARE_ABORT: TxnStatus.ABORTING,
}


@dataclass(slots=True)
class OfflineCoordinator:
    """Content of a coordinator's store, to compare it with brokers.

    Attributes:
        oldest_outcome: the oldest outcome that is kept: later ones are not forgotten.
        is_whole: whether all records and outcomes could be read.
    """

    tcid: int | None = None
    incarnation: int = 0
    counter_bound: int = 0
    stamp_bound: int = 0
    next_unopened: int | None = None
    outcome_count: int = 0
    next_producer_number: int = 0
    lost: list[LostRange] = field(default_factory=list)
    live: dict[TxnID, TxnStatus] = field(default_factory=dict)
    outcomes: dict[TxnID, TxnStatus] = field(default_factory=dict)
    oldest_outcome: TxnID | None = None
    is_whole: bool = True

    def status_of(self, txn_id: TxnID) -> TxnStatus | None:
        """Return a transaction's status; None: unknown, or forgotten."""
        status = self.live.get(txn_id) or self.outcomes.get(txn_id)
        if status is None and txn_id.incarnation == self.incarnation:
            ended = lost_transactions.outcome_of(self.lost, txn_id)
            return ended.status if ended is not None else None
        return status


async def check_coordinator(
    reader: Reader, findings: Findings, passed: Callable[[int], object] = lambda _: None
) -> OfflineCoordinator:
    """Check a coordinator's store.

    Args:
        passed: called with the number of rows that were read.
    """
    check = _Check(reader, findings, passed)
    await check.run()
    return check.found


class _Check:
    def __init__(self, reader: Reader, findings: Findings, passed: Callable[[int], object]) -> None:
        self._findings = findings
        self._rows = OfflineRows(reader, findings, passed)
        self.found = OfflineCoordinator()

    async def run(self) -> None:
        await self._read_meta()
        await self._check_live()
        await self._check_outcomes()
        async for key, value in self._rows.rows(IDENTITIES):
            with self._rows.parsing(IDENTITIES, key):
                self._check_identity(decode_identity(key.decode(), value))
        async for key, value in self._rows.rows(NAMES):
            with self._rows.parsing(NAMES, key):
                name = decode_name(key.decode(), value)
                if name.open_txn_id is not None:
                    self._check_follows("name", name.name, name.open_txn_id, TxnStatus.OPEN)
        self.found.is_whole = self._is_whole

    @property
    def _is_whole(self) -> bool:
        return self.found.is_whole and self._rows.is_complete

    async def _read_meta(self) -> None:
        found = self.found
        numbers: dict[bytes, int] = {}
        async for key, value in self._rows.rows(META):
            with self._rows.parsing(META, key):
                if key == META_LOST:
                    found.lost = list(lost_transactions.decode_lost(value))
                elif len(value) == 8:
                    numbers[key] = read_u64(value)
        found.tcid = numbers.get(META_TCID)
        found.incarnation = numbers.get(META_INCARNATION, 0)
        found.counter_bound = numbers.get(META_COUNTER, 0)
        found.stamp_bound = numbers.get(META_STAMP_BOUND, 0)
        found.next_unopened = numbers.get(META_NEXT_UNOPENED)
        found.outcome_count = numbers.get(META_OUTCOME_COUNT, 0)
        found.next_producer_number = numbers.get(META_PRODUCER_ID, 0)
        if found.next_unopened is not None and found.next_unopened > found.counter_bound:
            self._findings.damage(
                "counter",
                "counter",
                f"transactions up to {found.next_unopened} were opened, and only those up to"
                f" {found.counter_bound} may be issued: TxnIDs would be issued twice",
            )

    async def _check_live(self) -> None:
        # Replay is the check: the table refuses what cannot follow from what is there.
        table = TransactionTable(
            CoordinatorConfig(), tcid=self.found.tcid or 0, incarnation=0, next_counter=0
        )
        expected: dict[TxnID, int] = {}
        broken: set[TxnID] = set()
        async for key, value in self._rows.rows(METADATA):
            txn_id = txn_id_of_key(key)
            sequence = int.from_bytes(key[TXN_ID_BYTES:], "big")
            if txn_id in broken:
                continue
            if sequence != expected.get(txn_id, 0):
                broken.add(txn_id)
                self._findings.damage(
                    "record", str(txn_id), f"record {expected.get(txn_id, 0)} is missing"
                )
                continue
            expected[txn_id] = sequence + 1
            try:
                record = decode_metadata(txn_id, value)
                if (sequence == 0) != isinstance(record, TxnOpened):
                    raise BrokenInvariant("it belongs to another place")
                table.apply(record)
            except (
                DecodeError,
                BrokenInvariant,
                ValueError,
                LookupError,
                struct.error,
            ) as error:
                broken.add(txn_id)
                self._findings.damage("record", str(txn_id), f"record {sequence}: {error}")
                continue
            if sequence == 0:
                self._check_id("record", txn_id)
        self.found.live = {one: txn.status for one, txn in table.live.items()}
        for txn_id, transaction in table.live.items():
            self._check_stamp("record", txn_id, transaction.stamp)
        if broken:
            self.found.is_whole = False

    async def _check_outcomes(self) -> None:
        found = self.found
        async for key, value in self._rows.rows(OUTCOMES):
            with self._rows.parsing(OUTCOMES, key):
                txn_id = txn_id_of_key(key)
                outcome = decode_outcome(txn_id, value)
                found.outcomes[txn_id] = outcome.status
                self._check_id("outcome", txn_id)
                self._check_stamp("outcome", txn_id, outcome.stamp)
                if txn_id in found.live:
                    self._findings.damage("outcome", str(txn_id), "it has ended, and is live")
        found.oldest_outcome = min(found.outcomes, default=None)
        if self._is_whole and len(found.outcomes) != found.outcome_count:
            found.is_whole = False
            self._findings.damage(
                "outcome",
                "outcomes",
                f"{found.outcome_count} were counted, and {len(found.outcomes)} are there",
            )

    def _check_id(self, check: str, txn_id: TxnID) -> None:
        found = self.found
        where = str(txn_id)
        if found.tcid is not None and txn_id.tcid != found.tcid:
            self._findings.damage(check, where, f"it is not of coordinator {found.tcid}")
        elif txn_id.incarnation > found.incarnation:
            self._findings.damage(check, where, f"the store's incarnation is {found.incarnation}")
        elif (
            txn_id.incarnation == found.incarnation
            and found.next_unopened is not None
            and txn_id.counter >= found.next_unopened
        ):
            self._findings.damage(
                check, where, f"no transaction from {found.next_unopened} on was opened"
            )

    def _check_stamp(self, check: str, txn_id: TxnID, stamp: int) -> None:
        """Check that a commit's stamp is not given again; 0: it has none."""
        if stamp and stamp >= self.found.stamp_bound:
            self._findings.damage(
                check,
                str(txn_id),
                f"its stamp is {stamp}, and stamps from {self.found.stamp_bound} on are free",
            )

    def _check_identity(self, identity: TransactionalIdMetadata) -> None:
        named = identity.transactional_id
        for pair in (identity.producer, identity.prev, identity.next):
            number = pair.producer_id & _PRODUCER_NUMBER
            if pair.producer_id >= 0 and number >= self.found.next_producer_number:
                self._findings.damage(
                    "identity",
                    named,
                    f"it has producer id {pair.producer_id}, and ids from number"
                    f" {self.found.next_producer_number} on are free",
                )
        status = _STATUS_OF_STATE.get(identity.state)
        if status is not None and identity.txn_id is not None:
            self._check_follows("identity", named, identity.txn_id, status)
        elif identity.txn_id in self.found.live:
            self._findings.damage(
                "identity", named, f"it is {identity.state.name}, and {identity.txn_id} is live"
            )

    def _check_follows(self, check: str, named: str, txn_id: TxnID, status: TxnStatus) -> None:
        """Check that what a transactional id or a name says of its transaction is true."""
        live = self.found.live.get(txn_id)
        if live is not status and self._is_whole:
            self._findings.damage(
                check,
                named,
                f"its transaction {txn_id} should be {status.name}, and is"
                f" {live.name if live is not None else 'not live'}",
            )
