"""Named sequences of a coordinator, in memory and as rows.

A change enters the open group together with the record that causes it, so the row of a transaction
and the row of its named sequence are never apart, whenever the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.metadata import named_sequences as rules
from magnetar_coordinator.metadata.named_sequences import NamedSequence, NamedSequenceState
from magnetar_coordinator.metadata.records import StatusChanged
from magnetar_coordinator.metadata.transaction import ACTION_OF, TxnAction
from magnetar_coordinator.transactions.transactional_ids import TRANSACTIONAL_ID_CHARACTERS_MAX
from magnetar_core.errors import InvalidArgument, QuotaExceeded, ResourceInUse
from magnetar_core.ids import TxnID

log = logging.getLogger(__name__)


class NamedSequences:
    """All named sequences of a coordinator.

    Args:
        config: limits.
        put: adds a row to the open group.
        delete: removes a row with the open group.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        put: Callable[[NamedSequenceState], None],
        delete: Callable[[str], None],
    ) -> None:
        self._config = config
        self._put = put
        self._delete = delete
        self._by_name: dict[str, NamedSequenceState] = {}
        # The name of each OPEN transaction.
        self.followed: dict[TxnID, str] = {}

    def restore(self, name: NamedSequenceState) -> None:
        """Take a named sequence from its stored row."""
        self._by_name[name.name] = name
        if name.open_txn_id is not None:
            self.followed[name.open_txn_id] = name.name

    def get(self, name: str) -> NamedSequenceState:
        """Return the state of a name; a new state if the name is unknown. It is kept once used."""
        return self._by_name.get(name) or NamedSequenceState(name)

    def check_new(self, asked: NamedSequence) -> None:
        """Check the name, the run token and the quota of a requested sequence.

        Raises:
            InvalidArgument: the name or the run token is malformed.
            QuotaExceeded: too many names are known.
        """
        for text in (asked.name, asked.run_token):
            if not 0 < len(text) <= TRANSACTIONAL_ID_CHARACTERS_MAX or not text.isprintable():
                raise InvalidArgument(
                    f"{text!r} is not a name or a run token: 1 to"
                    f" {TRANSACTIONAL_ID_CHARACTERS_MAX} printable characters"
                )
        limit = self._config.names_max
        if asked.name not in self._by_name and len(self._by_name) >= limit:
            raise QuotaExceeded(
                f"{limit} names are known here: remove some, or raise names_max", names_max=limit
            )

    def begun(self, name: NamedSequenceState, asked: NamedSequence, txn_id: TxnID) -> None:
        """Note that the transaction of a sequence has begun."""
        self._set(rules.begun(name, asked, txn_id))

    def joined(self, name: NamedSequenceState, asked: NamedSequence) -> None:
        """Note that another client takes part in the open run."""
        changed = rules.joined(name, asked)
        if changed is not name:
            self._set(changed)

    def fixed(self, record: StatusChanged, *, run_time_ms: int) -> None:
        """Note that the outcome of a transaction is fixed, which belongs to a name."""
        found = self._by_name[self.followed.pop(record.txn_id)]
        self._set(rules.fixed(found, ACTION_OF[record.new], record.fingerprint))

    def forget(self, txn_id: TxnID) -> None:
        """Note that a transaction of a name has ended, and its outcome is forgotten.

        The sequence may be written again: then it may be there twice.
        """
        found = self.followed.pop(txn_id, None)
        if found is not None:
            log.critical(
                "whether the open sequence of %r was committed is forgotten: look into its topics"
                " before it runs again",
                found,
            )
            self._set(rules.fixed(self._by_name[found], TxnAction.ABORT, ""))

    def of_txn(self, txn_id: TxnID) -> NamedSequence | None:
        """Return the open sequence of a transaction, if it belongs to a name."""
        found = self.followed.get(txn_id)
        return None if found is None else self._by_name[found].open

    def remove(self, name: str) -> None:
        """Forget a name.

        Raises:
            InvalidArgument: the name is unknown.
            ResourceInUse: a transaction of the name is open.
        """
        found = self._by_name.get(name)
        if found is None:
            raise InvalidArgument(f"no name {name!r} is known here")
        if found.open is not None:
            raise ResourceInUse(f"a transaction of {name!r} is open: end it first")
        del self._by_name[name]
        self._delete(name)

    def _set(self, name: NamedSequenceState) -> None:
        self.restore(name)
        self._put(name)
