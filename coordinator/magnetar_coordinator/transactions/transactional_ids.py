"""All transactional ids of a coordinator, in memory and as rows.

A change enters the open group together with the record that causes it, so the row of a transaction
and the row of its transactional id are never apart, whenever the process ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata import transactional_id as rules
from magnetar_coordinator.metadata.records import StatusChanged
from magnetar_coordinator.metadata.transaction import ACTION_OF
from magnetar_coordinator.metadata.transactional_id import (
    Epochs,
    InitCall,
    TransactionalIdMetadata,
    TransactionalIdState,
)
from magnetar_core.errors import (
    InvalidArgument,
    QuotaExceeded,
    TransactionalIdNotFound,
)
from magnetar_core.ids import TxnID
from magnetar_core.wildcards import matcher

TRANSACTIONAL_ID_CHARACTERS_MAX = 255


class TransactionalIds:
    """All transactional ids of a coordinator.

    Args:
        config: limits and epochs.
        new_producer_id: returns a producer id that was never used.
        put: adds a row to the open group.
        delete: removes a row with the open group.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        new_producer_id: Callable[[], int],
        put: Callable[[TransactionalIdMetadata], None],
        delete: Callable[[str], None],
    ) -> None:
        self._config = config
        self._epochs = Epochs(config.constants.producer_epoch_max, new_producer_id)
        self._put = put
        self._delete = delete
        self._by_id: dict[str, TransactionalIdMetadata] = {}
        # The id whose latest transaction each is.
        self.followed: dict[TxnID, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[TransactionalIdMetadata]:
        return iter(self._by_id.values())

    def restore(self, identity: TransactionalIdMetadata) -> None:
        """Take a transactional id from its stored row."""
        self._by_id[identity.transactional_id] = identity
        if identity.txn_id is not None:
            self.followed[identity.txn_id] = identity.transactional_id

    def find(self, transactional_id: str) -> TransactionalIdMetadata | None:
        """Return a transactional id, or None."""
        return self._by_id.get(transactional_id)

    def get(self, transactional_id: str) -> TransactionalIdMetadata:
        """Return a transactional id.

        Raises:
            TransactionalIdNotFound: it was never initialised, or it was forgotten.
        """
        found = self._by_id.get(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(
                f"transactional id {transactional_id!r} is not known here: initialise it"
            )
        return found

    def of_txn(self, txn_id: TxnID) -> TransactionalIdMetadata | None:
        """Return the transactional id whose latest transaction this is."""
        transactional_id = self.followed.get(txn_id)
        return None if transactional_id is None else self._by_id[transactional_id]

    def matching(self, pattern: str) -> Iterator[TransactionalIdMetadata]:
        """Return the transactional ids that match a pattern, in alphabetical order."""
        fits = matcher(pattern or "*")
        return (self._by_id[one] for one in sorted(self._by_id) if fits(one))

    def create(
        self, transactional_id: str, call: InitCall, *, timeout_ms: int, run_time_ms: int
    ) -> TransactionalIdMetadata:
        """Create a transactional id.

        Raises:
            InvalidArgument: the id is malformed.
            QuotaExceeded: too many transactional ids are known.
        """
        length = len(transactional_id)
        if not 0 < length <= TRANSACTIONAL_ID_CHARACTERS_MAX or not transactional_id.isprintable():
            raise InvalidArgument(
                f"{transactional_id!r} is not a transactional id: 1 to"
                f" {TRANSACTIONAL_ID_CHARACTERS_MAX} printable characters"
            )
        limit = self._config.identities_max
        if len(self._by_id) >= limit:
            raise QuotaExceeded(
                f"{limit} transactional ids are known here: wait until idle ones are forgotten, or"
                " raise identities_max",
                identities_max=limit,
            )
        created = TransactionalIdMetadata(
            transactional_id=transactional_id,
            producer=self._epochs.first(),
            timeout_ms=timeout_ms,
            last_used_run_time_ms=run_time_ms,
        )
        return self._set(rules.initialised(created, call))

    def take_over(
        self,
        identity: TransactionalIdMetadata,
        call: InitCall,
        *,
        timeout_ms: int,
        run_time_ms: int,
    ) -> TransactionalIdMetadata:
        """Let a new instance take a transactional id over; nothing is ongoing."""
        taken = rules.take_over(
            identity, self._epochs, timeout_ms=timeout_ms, run_time_ms=run_time_ms
        )
        return self._set(rules.initialised(taken, call))

    def keep(
        self,
        identity: TransactionalIdMetadata,
        call: InitCall,
        *,
        timeout_ms: int,
        run_time_ms: int,
    ) -> TransactionalIdMetadata:
        """Let a new instance take a transactional id over with its prepared transaction."""
        kept = rules.keep(identity, self._epochs, timeout_ms=timeout_ms, run_time_ms=run_time_ms)
        return self._set(rules.initialised(kept, call))

    def begin(
        self, identity: TransactionalIdMetadata, txn_id: TxnID, *, run_time_ms: int
    ) -> TransactionalIdMetadata:
        """Note that a transaction has begun."""
        return self._set(rules.begin(identity, txn_id, run_time_ms=run_time_ms))

    def raise_epoch(
        self, identity: TransactionalIdMetadata, *, run_time_ms: int
    ) -> TransactionalIdMetadata:
        """Raise the epoch for an abort of nothing."""
        return self._set(rules.raise_epoch(identity, self._epochs, run_time_ms=run_time_ms))

    def fixed(self, record: StatusChanged, *, run_time_ms: int) -> None:
        """Note that the outcome of a transaction is fixed, which a transactional id owns."""
        identity = self._by_id[self.followed[record.txn_id]]
        action = ACTION_OF[record.new]
        fixed = rules.fix(
            identity,
            action,
            self._epochs,
            run_time_ms=run_time_ms,
            keep_epoch=record.keep_epoch,
        )
        self._set(fixed)

    def completed(self, txn_id: TxnID) -> None:
        """Note that every participant has ended a transaction, if a transactional id owns it."""
        identity = self.of_txn(txn_id)
        if identity is not None:
            self._set(rules.complete(identity))

    def forget(self, txn_id: TxnID, *, run_time_ms: int) -> None:
        """Note that a transaction of a transactional id has ended, and its outcome is forgotten."""
        identity = self.of_txn(txn_id)
        if identity is not None:
            self._set(rules.forget(identity, self._epochs, run_time_ms=run_time_ms))

    def forget_idle(self, run_time_ms: int) -> list[str]:
        """Forget transactional ids that are idle for long and have nothing open; return them."""
        before_ms = run_time_ms - self._config.identity_idle_ms_max
        busy = (TransactionalIdState.ONGOING, *rules.COMPLETED)
        idle = [
            one
            for one in self._by_id.values()
            if one.last_used_run_time_ms < before_ms and one.state not in busy
        ]
        for identity in idle:
            del self._by_id[identity.transactional_id]
            if identity.txn_id is not None:
                del self.followed[identity.txn_id]
            self._delete(identity.transactional_id)
        return [one.transactional_id for one in idle]

    def check(self) -> None:
        """Check the invariants."""
        for identity in self._by_id.values():
            identity.check()

    def _set(self, identity: TransactionalIdMetadata) -> TransactionalIdMetadata:
        before = self._by_id.get(identity.transactional_id)
        if before is not None and before.txn_id not in (None, identity.txn_id):
            assert before.txn_id is not None
            del self.followed[before.txn_id]
        self.restore(identity)
        self._put(identity)
        return identity
