"""Incarnations of coordinators' stores: a durable counter for each TCID.

A coordinator takes an incarnation whenever it creates a store, before its first TxnID, so that no
TxnID is ever issued twice, also when its disk was lost. Incarnations are part of the cluster's
metadata, as topics are.

A store shows with a random token which incarnations are its own. The coordinator repeats the token
in its watermarks: so no other server ends its transactions, and no incarnation counts that was not
taken here.
Source: docs/design/0001-protocol.md, Who speaks for a coordinator.
"""

from __future__ import annotations

from magnetar_broker import keys
from magnetar_broker.coordinators.store_tokens import check_token, digest_of
from magnetar_broker.environment import Environment
from magnetar_core.errors import InvalidArgument, InvalidTxnState
from magnetar_core.ids import TCID_MAX
from magnetar_core.wire import record_pb2 as records
from magnetar_core.wire import topic_pb2 as wire
from magnetar_storage.store import end_of_prefix

# How many earlier stores of a coordinator are remembered, to recognise their late copies.
PAST_STORES_MAX = 16
# So many incarnations lie between two losses: more than any coordinator takes.
INCARNATION_BITS = 16


_ANOTHER = (
    "If its data directory is the right one, let it take another incarnation: stop it, then"
    " magnetar storage accept-loss --everything DATA_DIR"
)


def not_taken(tcid: int, incarnation: int) -> InvalidTxnState:
    """Return the refusal of a store of a coordinator that is not known."""
    return InvalidTxnState(
        f"in this cluster no store of coordinator {tcid} with this token took incarnation"
        f" {incarnation}. {_ANOTHER}"
    )


def superseded(tcid: int, incarnation: int) -> InvalidTxnState:
    """Return the refusal of a store of a coordinator that has another one by now."""
    return InvalidTxnState(
        f"coordinator {tcid} has a newer incarnation than {incarnation}. {_ANOTHER}"
    )


class Incarnations:
    """The newest incarnation of each coordinator."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._rows: dict[int, records.IncarnationRow] = {}
        self._losses = 0
        # Before a loss, higher incarnations than the known ones may have been given out, up to it.
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

    def stores(self) -> list[wire.CoordinatorStore]:
        """Return the present store of each coordinator, as other brokers know them."""
        return [
            wire.CoordinatorStore(
                tcid=tcid, incarnation=row.incarnation, token_digest=digest_of(row.store_token)
            )
            for tcid, row in sorted(self._rows.items())
        ]

    def find(self, tcid: int, store_token: str) -> int | None:
        """Return the incarnation that a coordinator's store took, now or earlier; None: none."""
        row = self._rows.get(tcid)
        if row is None:
            return None
        if row.store_token == store_token:
            return row.incarnation
        past = (one.incarnation for one in row.past if one.store_token == store_token)
        return next(past, None)

    def go_on_after(self, losses: int, *, wall_ms: int) -> None:
        """Give out higher incarnations only than those that accepted losses may have taken.

        Args:
            losses: how many were accepted.
            wall_ms: restored stores took incarnations below it.
        """
        self._losses = losses
        self._floor = max(losses << INCARNATION_BITS, wall_ms) if losses else 0

    def take(self, tcid: int, store_token: str) -> int:
        """Return the next incarnation; the same incarnation again for the same store.

        Raises:
            InvalidArgument: the token is malformed, or the TCID does not fit 16 bits.
        """
        check_token(store_token)
        if tcid > TCID_MAX:
            raise InvalidArgument(f"there is no coordinator {tcid}: a TCID has 16 bits")
        known = self.find(tcid, store_token)
        if known is not None:
            # A late copy takes nothing from a newer store.
            return known
        before = self._rows[tcid].incarnation if tcid in self._rows else 0
        incarnation = max(before, self._floor) + 1
        self._put(tcid, incarnation, store_token)
        return incarnation

    def admit(self, tcid: int, incarnation: int, store_token: str) -> bool:
        """Check that a store took an incarnation here; return whether it was not known before.

        An accepted loss may have taken the row of a store. So the store that speaks first after a
        loss is believed, once for each coordinator.

        Raises:
            InvalidTxnState: it did not.
        """
        row = self._rows.get(tcid) or records.IncarnationRow()
        is_known = self.find(tcid, store_token) == incarnation
        is_present = row.incarnation <= incarnation <= max(self._floor, row.incarnation)
        if row.accepted_losses < self._losses and is_present:
            check_token(store_token)
            self._put(tcid, incarnation, store_token)
        elif not is_known:
            raise not_taken(tcid, incarnation)
        return not is_known

    def _put(self, tcid: int, incarnation: int, store_token: str) -> None:
        """Let a store be the present one of its coordinator."""
        row = self._rows.get(tcid)
        past: list[records.PastStore] = []
        if row is not None:
            latest = records.PastStore(incarnation=row.incarnation, store_token=row.store_token)
            others = [one for one in (*row.past, latest) if one.store_token != store_token]
            past = others[-PAST_STORES_MAX:]
        taken = records.IncarnationRow(
            incarnation=incarnation,
            store_token=store_token,
            past=past,
            accepted_losses=self._losses,
        )
        self._rows[tcid] = taken
        self._environment.commits.batch.put(
            keys.META, keys.incarnation(tcid), taken.SerializeToString()
        )
