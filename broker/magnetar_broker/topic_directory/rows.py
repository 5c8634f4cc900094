"""Rows of the first broker, besides those of topics: stores of the other brokers, and past calls.

Incarnations of coordinators have their rows in `coordinators/incarnations.py`.
Source: docs/design/0008-cluster.md, The directory; docs/protocol/rules.md, rule n.
"""

from __future__ import annotations

from magnetar_broker import keys
from magnetar_broker.coordinators.store_tokens import check_token, works_with_another
from magnetar_broker.environment import Environment
from magnetar_core.errors import DataLoss, LogUnavailable
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import end_of_prefix

# How many earlier stores of a broker are remembered, to recognise them.
PAST_STORES_MAX = 16
# How many calls are remembered, the latest ones.
CALLS_MAX = 1_000


class BrokerStores:
    """Stores of the other brokers, as the first broker knows them: a token for each.

    A broker whose data directory has vanished would come back with an empty store, and everything
    that was committed there would be gone unnoticed. So each broker introduces its store, and
    another store than the known one is refused until an operator has accepted the loss there.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rows: dict[str, records.BrokerStoreRow] = {}

    async def recover(self) -> None:
        """Read the rows.

        Raises:
            StoreFailed: the store cannot be read.
        """
        start = keys.META_BROKER_STORE
        for key, value in await self._environment.store.scan(
            keys.META, start, end_of_prefix(start), rows_max=1 << 16
        ):
            name = key[len(start) :].decode()
            self._rows[name] = records.BrokerStoreRow.FromString(value)

    def introduce(
        self, name: str, store_token: str, accepted_losses: int, *, is_linked: bool
    ) -> None:
        """Take a broker's word of its store.

        A late copy from an earlier store changes nothing.

        Args:
            is_linked: whether a broker of this name follows now.
        Raises:
            InvalidArgument: the token is malformed.
            DataLoss: the broker has another store, and an operator has not accepted that.
            LogUnavailable: the broker works with another store now.
        """
        check_token(store_token)
        row = self._rows.get(name)
        past: list[records.PastBrokerStore] = []
        if row is not None:
            if row.store_token == store_token:
                if accepted_losses > row.accepted_losses:
                    row.accepted_losses = accepted_losses
                    self._put(name, row)
                return
            known = {one.store_token: one.accepted_losses for one in row.past}
            if accepted_losses <= known.get(store_token, 0):
                raise DataLoss(
                    f"{name} has another store than the one that it had: its data directory"
                    " vanished, or it was started on another one. Stop it, and put the directory"
                    " back; or go on without what was in it, which may tear transactions apart:"
                    " magnetar storage accept-loss --everything DATA_DIR"
                )
            if is_linked:
                raise LogUnavailable(works_with_another(name))
            latest = records.PastBrokerStore(
                store_token=row.store_token, accepted_losses=row.accepted_losses
            )
            others = [one for one in row.past if one.store_token != store_token]
            past = [*others, latest][-PAST_STORES_MAX:]
        taken = records.BrokerStoreRow(
            store_token=store_token, accepted_losses=accepted_losses, past=past
        )
        self._put(name, taken)

    def _put(self, name: str, row: records.BrokerStoreRow) -> None:
        self._rows[name] = row
        self._environment.commits.batch.put(
            keys.META, keys.broker_store(name), row.SerializeToString()
        )


class PastCalls:
    """The latest calls that created or deleted topics, in the order in which they were carried out.

    A server remembers the calls that it has answered in memory: a copy travels on a link to it, and
    does not outlive it. But a follower passes calls on: a late copy that reaches it may meet a
    first broker that has restarted since, and would delete a topic that was created anew.
    Source: docs/design/0001-protocol.md, Late copies.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._calls: dict[int, records.PastCallRow] = {}
        # Numbers of the rows, by token.
        self._numbers: dict[int, int] = {}
        self._next_number = 0

    async def recover(self) -> None:
        """Read the rows.

        Raises:
            StoreFailed: the store cannot be read.
        """
        start = keys.META_PAST_CALL
        for key, value in await self._environment.store.scan(
            keys.META, start, end_of_prefix(start), rows_max=2 * CALLS_MAX
        ):
            row = records.PastCallRow.FromString(value)
            self._calls[row.call_token] = row
            self._numbers[row.call_token] = keys.last_u64(key)
            self._next_number = keys.last_u64(key) + 1

    def topic_of(self, call_token: int) -> int | None:
        """Return the id of the topic that a call created or deleted; None: it is not known."""
        row = self._calls.get(call_token)
        return row.topic_id if row is not None else None

    def note(self, call_token: int, topic_id: int) -> None:
        """Note that a call was carried out."""
        if not call_token:
            return
        batch = self._environment.commits.batch
        row = records.PastCallRow(call_token=call_token, topic_id=topic_id)
        self._calls[call_token] = row
        self._numbers[call_token] = self._next_number
        batch.put(keys.META, keys.past_call(self._next_number), row.SerializeToString())
        self._next_number += 1
        if len(self._calls) > CALLS_MAX:
            oldest = next(iter(self._calls))
            del self._calls[oldest]
            batch.delete(keys.META, keys.past_call(self._numbers.pop(oldest)))
