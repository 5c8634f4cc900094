"""Which TxnIDs have been issued, as far as coordinators have said.

A coordinator says how far it has come before it tells a client its TxnID, so a broker knows what
may be used, and refuses the rest at once: nothing is done under an id that somebody else is given
later, and nothing is kept that nobody would end. The refusal is final where the coordinator cannot
be about to issue it: it is heard, and far from there.
Source: docs/design/0001-protocol.md, TxnIDs that nobody issued; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from magnetar_broker.watermark import Watermarks
from magnetar_core.clock import Clock
from magnetar_core.errors import LogUnavailable, TxnNotFound
from magnetar_core.ids import TxnID

# A coordinator that was heard within this time is reachable: it speaks every second.
HEARD_MS_MAX = 5_000
# Farther than that beyond its bound it does not come before this broker hears of it.
NEAR_COUNT = 1 << 24


class Issued:
    """What this broker was told of the TxnIDs of each coordinator.

    Args:
        configured: the TCIDs of this cluster.
        has_incarnation: whether a coordinator of that TCID took an incarnation here.
    """

    def __init__(
        self,
        watermarks: Watermarks,
        clock: Clock,
        configured: Collection[int],
        has_incarnation: Callable[[int], bool],
    ) -> None:
        self._watermarks = watermarks
        self._clock = clock
        self._configured = frozenset(configured)
        self._has_incarnation = has_incarnation
        # When each coordinator spoke last, in this life of the broker.
        self._heard_ms: dict[int, float] = {}

    def hear(self, tcid: int) -> None:
        """A coordinator has spoken."""
        self._heard_ms[tcid] = self._clock.monotonic_ms()

    def check(self, txn_id: TxnID) -> None:
        """Whether this TxnID is issued, or never will be.

        Raises:
            TxnNotFound: no coordinator has issued it.
            LogUnavailable: its coordinator has not said so yet, and is not heard.
        """
        watermark = self._watermarks.find(txn_id.tcid)
        if watermark is not None and txn_id.incarnation <= watermark.incarnation:
            if txn_id.incarnation < watermark.incarnation:
                return
            next_counter = watermark.next_counter
            if next_counter is None and txn_id.tcid in self._heard_ms:
                return  # Of a version that does not say.
            if next_counter is not None and txn_id.counter < next_counter:
                return
        self._refuse(txn_id)

    def cannot_exist(self, txn_id: TxnID) -> bool:
        """Whether what is open here under a TxnID is nobody's, since nobody has issued it.

        It was accepted by a version that did not ask.
        """
        watermark = self._watermarks.find(txn_id.tcid)
        if watermark is None:
            return self._is_unknown(txn_id.tcid)
        if txn_id.tcid not in self._heard_ms or txn_id.incarnation < watermark.incarnation:
            return False
        if txn_id.incarnation > watermark.incarnation:
            return True
        bound = watermark.counter_bound
        # More may have been said to be issued since the bound was told.
        return bound is not None and txn_id.counter >= max(bound, watermark.next_counter or 0)

    def _is_unknown(self, tcid: int) -> bool:
        return tcid not in self._configured and not self._has_incarnation(tcid)

    def _is_certain(self, txn_id: TxnID) -> bool:
        """Whether its coordinator cannot be about to say that it issues this one."""
        tcid = txn_id.tcid
        watermark = self._watermarks.find(tcid)
        if watermark is None:
            return self._is_unknown(tcid)
        heard_ms = self._heard_ms.get(tcid)
        if heard_ms is None or self._clock.monotonic_ms() - heard_ms > HEARD_MS_MAX:
            return False
        bound = watermark.counter_bound or 0
        return txn_id.incarnation > watermark.incarnation or txn_id.counter >= bound + NEAR_COUNT

    def _refuse(self, txn_id: TxnID) -> NoReturn:
        if self._is_certain(txn_id):
            raise TxnNotFound(
                f"no coordinator has issued transaction {txn_id}: check where the id comes from",
                txn_id=txn_id,
            )
        raise LogUnavailable(
            f"coordinator {txn_id.tcid} has not told this broker of transaction {txn_id}: ask"
            " again, or check where the id comes from",
            txn_id=txn_id,
        )
