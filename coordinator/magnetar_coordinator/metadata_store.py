"""Transaction log on a store: PIP-31's TransactionMetadataStore and its provider.

All rows enter the open group of the group commit; the caller awaits or parks what depends on them.
The outcome of a transaction replaces its rows in a single batch. A row stores a bound that lies
ahead of the counter: after a start TxnIDs continue there, so that none is ever issued twice.
Source: PIP-31, Transaction Coordinator, TransactionMetadataStore, and TC Startup.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata import lost_transactions
from magnetar_coordinator.metadata.lost_transactions import LostRange
from magnetar_coordinator.metadata.named_sequences import NamedSequenceState
from magnetar_coordinator.metadata.records import (
    IDENTITIES,
    META,
    META_COUNTER,
    META_INCARNATION,
    META_LOSSES,
    META_LOST,
    META_NEXT_UNOPENED,
    META_OUTCOME_COUNT,
    META_PRODUCER_ID,
    META_RESTORED,
    META_RUN_TIME,
    META_STAMP_BOUND,
    META_STORE_TOKEN,
    META_TCID,
    METADATA,
    NAMES,
    OUTCOMES,
    MetadataRecord,
    Record,
    Restored,
    StatusChanged,
    TxnEnded,
    TxnOpened,
    decode_identity,
    decode_name,
    encode_identity,
    encode_name,
    metadata_key,
    read_u64,
    txn_id_of_key,
    u64,
)
from magnetar_coordinator.metadata.transaction_rows import (
    decode_metadata,
    decode_outcome,
    encode_metadata,
    encode_outcome,
    end_run_time_ms_of,
)
from magnetar_coordinator.metadata.transactional_id import TransactionalIdMetadata
from magnetar_core.config import InvalidConfig
from magnetar_core.cuts.hybrid_clock import bound_above
from magnetar_core.history.events import CounterReserved
from magnetar_core.history.history import History
from magnetar_core.ids import INCARNATION_MAX, TxnID
from magnetar_core.invariants import BrokenInvariant
from magnetar_storage import store_identity
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.store import KEY_END, Store, WriteBatch, end_of_prefix, scan_readable

# Asks the metadata broker for the incarnation that belongs to (tcid, store token).
TakeIncarnation = Callable[[int, str], Awaitable[int]]

_SCAN_ROWS = 4_096
_SCAN_BYTES = 4 << 20
# With more rows than this, a range tombstone is cheaper than deleting by key.
_DELETE_BY_KEY_MAX = 2_000


class TransactionMetadataStore:
    """Transaction log of a TCID. `TransactionMetadataStoreProvider.open_store` opens it.

    Attributes:
        store_token: the token with which the store took its incarnation.
        counter_bound: no TxnID with this counter or a higher counter was issued.
        stamp_bound: no commit has this stamp or a higher stamp.
        next_producer_number: all smaller numbers are used.
        run_time_ms: the last persisted run time.
        outcome_count: outcomes kept, those in the open group included.
        restored: the store is new from a backup, and OPEN transactions are to be ended.
        first_outcome_key: no outcome lies before it; deleted rows are costly to pass.
        traceparents: the spans that decided what live_records() has yielded.
    """

    def __init__(
        self,
        store: Store,
        commits: GroupCommit,
        *,
        incarnation: int,
        store_token: str,
        counter_bound: int,
        counters_ahead: int,
        next_unopened: int,
        lost: Sequence[LostRange],
        next_producer_number: int,
        run_time_ms: int,
        outcome_count: int,
        stamp_bound: int = 0,
        restored: Restored | None = None,
        history: History | None = None,
    ) -> None:
        self._history = history
        self.restored = restored
        self.traceparents: dict[TxnID, bytes] = {}
        self.next_producer_number = next_producer_number
        self.incarnation = incarnation
        self.store_token = store_token
        self.counter_bound = counter_bound
        self.stamp_bound = stamp_bound
        self._counters_ahead = counters_ahead
        self.run_time_ms = run_time_ms
        self.outcome_count = outcome_count
        self.first_outcome_key = b""
        self._store = store
        self._commits = commits
        self._stored_outcome_count = outcome_count
        # No transaction with this counter or a higher counter is in the log.
        self._next_unopened = self._stored_next_unopened = next_unopened
        self.lost = lost
        commits.before_seal(self._put_counts)

    # Appending.

    def append(self, record: Record, sequence: int) -> None:
        """Add a record to the open group.

        These are PIP-31's newTransaction, addProducedPartitionToTxn, addAckedPartitionToTxn and
        updateTxnStatus. The shard has compared the status.

        Args:
            sequence: how many records the transaction has in the log already.
        """
        if isinstance(record, TxnEnded):
            self._remember_outcome(record, sequence)
            return
        if isinstance(record, TxnOpened):
            self._reserve_counter(record.txn_id)
        elif isinstance(record, StatusChanged):
            self.reserve_stamps(record.stamp)
        key = metadata_key(record.txn_id, sequence)
        self._commits.batch.put(METADATA, key, encode_metadata(record))

    def _reserve_counter(self, txn_id: TxnID) -> None:
        """Keep the bounds above a TxnID, which the shard has chosen."""
        counter = txn_id.counter
        if counter >= self.counter_bound:
            self.reserve(counter)
        self._next_unopened = counter + 1

    def reserve(self, next_counter: int) -> None:
        """Keep the bound well ahead of the counter."""
        ahead = self._counters_ahead
        if self.counter_bound < next_counter + max(1, ahead // 2):
            self.counter_bound = next_counter + ahead
            if self._history is not None:
                self._history.note(CounterReserved(self.counter_bound))
            self._commits.batch.put(META, META_COUNTER, u64(self.counter_bound))

    def reserve_stamps(self, stamp: int) -> None:
        """Keep the bound above a stamp, no later than what has it becomes durable."""
        bound = bound_above(self.stamp_bound, stamp)
        if bound != self.stamp_bound:
            self.stamp_bound = bound
            self._commits.batch.put(META, META_STAMP_BOUND, u64(bound))

    def _remember_outcome(self, record: TxnEnded, record_count: int) -> None:
        """Replace a transaction's records by its outcome. PIP-31, TxnStatus, COMMITTED."""
        self.forget(record.txn_id, record_count)
        prefix = record.txn_id.to_bytes()
        self._commits.batch.put(OUTCOMES, prefix, encode_outcome(record))
        self.outcome_count += 1
        self.first_outcome_key = min(self.first_outcome_key, prefix)

    def forget(self, txn_id: TxnID, record_count: int) -> None:
        """Delete a transaction's records."""
        batch = self._commits.batch
        if record_count <= _DELETE_BY_KEY_MAX:
            for sequence in range(record_count):
                batch.delete(METADATA, metadata_key(txn_id, sequence))
        else:
            prefix = txn_id.to_bytes()
            batch.delete_range(METADATA, prefix, end_of_prefix(prefix))

    def persist_run_time(self, run_time_ms: int) -> None:
        """Store the run time."""
        self.run_time_ms = run_time_ms
        self._commits.batch.put(META, META_RUN_TIME, u64(run_time_ms))

    def forget_restore(self) -> None:
        """Note that the transactions of a backup are ended."""
        self.restored = None
        self._commits.batch.delete(META, META_RESTORED)

    def new_producer_number(self) -> int:
        """Return an unused producer number; the open group marks it as used."""
        number = self.next_producer_number
        self.next_producer_number = number + 1
        self._commits.batch.put(META, META_PRODUCER_ID, u64(number + 1))
        return number

    def put_identity(self, identity: TransactionalIdMetadata) -> None:
        """Store a transactional id."""
        key = identity.transactional_id.encode()
        self._commits.batch.put(IDENTITIES, key, encode_identity(identity))

    def delete_identity(self, transactional_id: str) -> None:
        """Delete a transactional id."""
        self._commits.batch.delete(IDENTITIES, transactional_id.encode())

    def put_name(self, name: NamedSequenceState) -> None:
        """Store a named sequence."""
        self._commits.batch.put(NAMES, name.name.encode(), encode_name(name))

    def delete_name(self, name: str) -> None:
        """Delete a named sequence."""
        self._commits.batch.delete(NAMES, name.encode())

    def _put_counts(self, batch: WriteBatch) -> None:
        # Both change only together with rows of the same group, so they need no group of their own.
        if self._next_unopened != self._stored_next_unopened:
            self._stored_next_unopened = self._next_unopened
            batch.put(META, META_NEXT_UNOPENED, u64(self._next_unopened))
        if self.outcome_count != self._stored_outcome_count:
            self._stored_outcome_count = self.outcome_count
            batch.put(META, META_OUTCOME_COUNT, u64(self.outcome_count))

    # Reading.

    async def live_records(self) -> AsyncIterator[MetadataRecord]:
        """Yield every record of the live transactions; each transaction's records in their order.

        The amount that is read depends on what is open, not on how much was ever open.
        """
        async for key, value in self._rows(METADATA):
            record = decode_metadata(txn_id_of_key(key), value)
            if isinstance(record, StatusChanged) and record.traceparent:
                self.traceparents[record.txn_id] = record.traceparent
            yield record

    async def identities(self) -> AsyncIterator[TransactionalIdMetadata]:
        """Yield every transactional id."""
        async for key, value in self._rows(IDENTITIES):
            yield decode_identity(key.decode(), value)

    async def names(self) -> AsyncIterator[NamedSequenceState]:
        """Yield every named sequence."""
        async for key, value in self._rows(NAMES):
            yield decode_name(key.decode(), value)

    async def _rows(self, family: str) -> AsyncIterator[tuple[bytes, bytes]]:
        start = b""
        while True:
            rows = await self._store.scan(
                family, start, KEY_END, rows_max=_SCAN_ROWS, bytes_max=_SCAN_BYTES
            )
            for row in rows:
                yield row
            if not rows:
                return
            start = rows[-1][0] + b"\x00"

    async def outcome(self, txn_id: TxnID) -> TxnEnded | None:
        """Return how a transaction ended; None when its outcome is forgotten."""
        value = await self._store.get(OUTCOMES, txn_id.to_bytes())
        if value is not None:
            return decode_outcome(txn_id, value)
        if txn_id.incarnation != self.incarnation:
            return None
        return lost_transactions.outcome_of(self.lost, txn_id)

    async def outcome_ends(self, start: bytes, *, rows_max: int) -> list[tuple[bytes, int]]:
        """Return keys of outcomes from a key on, in their order, each with its end's run time."""
        rows = await scan_readable(self._store, OUTCOMES, start, KEY_END, rows_max=rows_max)
        return [(key, end_run_time_ms_of(value)) for key, value in rows]

    async def outcomes_before(
        self, end: bytes | None, *, rows_max: int
    ) -> list[tuple[bytes, TxnEnded]]:
        """Return written outcomes below a key, the newest TxnIDs first.

        Args:
            end: the key; None: begin with the last outcome.
        """
        start = self.first_outcome_key
        end = KEY_END if end is None else end
        if end <= start:
            return []
        rows = await self._store.scan(OUTCOMES, start, end, rows_max=rows_max, reverse=True)
        return [(key, decode_outcome(txn_id_of_key(key), value)) for key, value in rows]

    async def forget_outcomes(self, keys: list[bytes]) -> None:
        """Delete outcomes; when this returns they are no longer read."""
        for key in keys:
            self._commits.batch.delete(OUTCOMES, key)
        self.outcome_count -= len(keys)
        await self._commits.durable()


class TransactionMetadataStoreProvider:
    """Opens the transaction log of a TCID. PIP-31, TransactionMetadataStoreProvider.

    Args:
        random: creates the token of a new store.
        history: notes the events of the protocol; None: there is none.
    """

    def __init__(
        self,
        store: Store,
        commits: GroupCommit,
        config: CoordinatorConfig,
        random: Random,
        take_incarnation: TakeIncarnation,
        history: History | None = None,
    ) -> None:
        self._history = history
        self._store = store
        self._commits = commits
        self._config = config
        self._random = random
        self._take_incarnation = take_incarnation

    async def open_store(self, tcid: int) -> TransactionMetadataStore:
        """Open the log. A new store first asks for its incarnation. PIP-31, TC Startup, openStore.

        Raises:
            InvalidConfig: the store belongs to another server or TCID, or to a later version.
            ClusterMismatch: the store belongs to another cluster, or to a later list of members.
            StoreFailed: the store cannot be read or written.
        """
        await self._check_identity()
        await self._check_tcid(tcid)
        await self._notice_loss()
        store_token = await self._read_token()
        incarnation = await self._get_u64(META_INCARNATION)
        if incarnation is None:
            incarnation = await self._begin_incarnation(tcid, store_token)
        counter_bound = await self._get_u64(META_COUNTER) or 0
        next_unopened, lost = await self._lost_transactions(counter_bound)
        restored = await self._get_u64(META_RESTORED)
        await self._commits.durable()
        return TransactionMetadataStore(
            self._store,
            self._commits,
            incarnation=incarnation,
            store_token=store_token,
            counter_bound=counter_bound,
            counters_ahead=self._config.constants.txn_ids_ahead,
            next_unopened=next_unopened,
            lost=lost,
            next_producer_number=await self._get_u64(META_PRODUCER_ID) or 0,
            run_time_ms=await self._get_u64(META_RUN_TIME) or 0,
            stamp_bound=await self._get_u64(META_STAMP_BOUND) or 0,
            outcome_count=await self._get_u64(META_OUTCOME_COUNT) or 0,
            restored=Restored(restored) if restored else None,
            history=self._history,
        )

    async def _lost_transactions(self, counter_bound: int) -> tuple[int, Sequence[LostRange]]:
        """Return the first counter without a record, and the TxnIDs whose records were lost."""
        batch = self._commits.batch
        next_unopened = await self._get_u64(META_NEXT_UNOPENED)
        if next_unopened is None:
            # The store is new.
            next_unopened = counter_bound
            batch.put(META, META_NEXT_UNOPENED, u64(next_unopened))
        before = lost_transactions.decode_lost(await self._store.get(META, META_LOST))
        lost = lost_transactions.after_start(
            before, next_unopened=next_unopened, counter_bound=counter_bound
        )
        if lost != before:
            batch.put(META, META_LOST, lost_transactions.encode_lost(lost))
        return next_unopened, lost

    async def _check_tcid(self, tcid: int) -> None:
        stored = await self._get_u64(META_TCID)
        if stored is None:
            self._commits.batch.put(META, META_TCID, u64(tcid))
        elif stored != tcid:
            raise InvalidConfig(
                f"this data directory belongs to TCID {stored}, not {tcid}; "
                "give each coordinator a directory of its own"
            )

    async def _notice_loss(self) -> None:
        """Treat the store as new after an accepted loss: lost TxnIDs are not issued again."""
        losses = await store_identity.accepted_losses(self._store, META)
        if losses <= (await self._get_u64(META_LOSSES) or 0):
            return
        batch = self._commits.batch
        batch.delete(META, META_STORE_TOKEN)
        batch.delete(META, META_INCARNATION)
        batch.put(META, META_LOSSES, u64(losses))
        await self._commits.durable()

    async def _check_identity(self) -> None:
        config = self._config
        row = await store_identity.check_store_identity(
            self._store,
            META,
            kind="coordinator",
            member=config.name,
            membership_version=config.membership_version,
            cluster_hash=config.cluster_hash,
            brokers=config.broker_names,
        )
        if row is not None:
            self._commits.batch.put(META, store_identity.KEY, row)

    async def _read_token(self) -> str:
        """Return the token of the store; a new store makes one, which is durable then."""
        stored = await self._store.get(META, META_STORE_TOKEN)
        if stored is not None:
            return stored.decode()
        token = f"{self._random.getrandbits(128):032x}"
        self._commits.batch.put(META, META_STORE_TOKEN, token.encode())
        # Before asking for an incarnation: after a crash the same token gets the same one.
        await self._commits.durable()
        return token

    async def _begin_incarnation(self, tcid: int, store_token: str) -> int:
        incarnation = await self._take_incarnation(tcid, store_token)
        if not 0 < incarnation <= INCARNATION_MAX:
            raise BrokenInvariant(f"the broker gives incarnation {incarnation}")
        self._commits.batch.put(META, META_INCARNATION, u64(incarnation))
        return incarnation

    async def _get_u64(self, key: bytes) -> int | None:
        value = await self._store.get(META, key)
        return None if value is None else read_u64(value)
