"""Incarnations of coordinators' stores: a durable counter for each TCID.

A coordinator takes an incarnation whenever it creates a store, before its first TxnID, so that no
TxnID is ever issued twice, also when its disk was lost. Incarnations are part of the cluster's
metadata, as topics are.
"""

from __future__ import annotations

from magnetar_broker import keys
from magnetar_broker.environment import Environment
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TCID_MAX
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import end_of_prefix

# How many earlier stores of a coordinator are remembered, to recognise their late copies.
PAST_STORES_MAX = 16


class Incarnations:
    """The newest incarnation of each coordinator."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rows: dict[int, records.IncarnationRow] = {}
        # Lower bound for every coordinator: before a loss, higher incarnations than the known ones
        # may have been given out.
        self._floor = 0

    async def recover(self) -> None:
        """Read the incarnations.

        Raises:
            StoreFailed: the store cannot be read.
        """
        start = keys.META_INCARNATION
        for key, value in await self._environment.store.scan(
            keys.META, start, end_of_prefix(start), rows_max=TCID_MAX + 1
        ):
            tcid = int.from_bytes(key[-2:], "big")
            self._rows[tcid] = records.IncarnationRow.FromString(value)

    def has(self, tcid: int) -> bool:
        """Return whether a coordinator of that TCID took an incarnation."""
        return tcid in self._rows

    @property
    def tcids(self) -> list[int]:
        """The coordinators that took an incarnation."""
        return list(self._rows)

    def raise_floor(self, floor: int) -> None:
        """Give out only higher incarnations from now on."""
        self._floor = max(self._floor, floor)

    def take(self, tcid: int, store_token: str) -> int:
        """Return the next incarnation; the same incarnation again for the same store.

        Raises:
            InvalidArgument: the token is missing, or the TCID does not fit 16 bits.
        """
        if not store_token or tcid > TCID_MAX:
            raise InvalidArgument("a store token and a TCID of 16 bits are needed")
        row = self._rows.get(tcid)
        past: list[records.PastStore] = []
        if row is not None:
            if row.store_token == store_token:
                return row.incarnation
            for one in row.past:
                if one.store_token == store_token:
                    # A late copy takes nothing from the newer store.
                    return one.incarnation
            latest = records.PastStore(incarnation=row.incarnation, store_token=row.store_token)
            past = [*row.past, latest][-PAST_STORES_MAX:]
        taken = records.IncarnationRow(
            incarnation=max(row.incarnation if row is not None else 0, self._floor) + 1,
            store_token=store_token,
            past=past,
        )
        self._rows[tcid] = taken
        self._environment.commits.batch.put(
            keys.META, keys.incarnation(tcid), taken.SerializeToString()
        )
        return taken.incarnation
