"""Issued TxnIDs, as far as coordinators have announced them.

A coordinator announces how far it has come before it gives a TxnID to a client. So a broker knows
which TxnIDs are valid, and refuses others: no write happens under an id that another client gets
later, and nothing is kept that would never end. The refusal is final if the coordinator was heard
lately and is far from that TxnID. If it is near, the announcement may be on its way: unannounced.py
lets commands wait for it.
Source: docs/design/0001-protocol.md, Invented TxnIDs; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from magnetar_broker.transactions.watermark import Watermarks
from magnetar_core.clock import Clock
from magnetar_core.errors import LogUnavailable, TxnNotFound
from magnetar_core.ids import TxnID

# A coordinator that was heard within this time is reachable: it sends a watermark every second.
HEARD_MS_MAX = 5_000
# A coordinator announces a new bound before it comes farther than this beyond the old bound.
NEAR_COUNT = 1 << 24


class TxnUnannounced(LogUnavailable):
    """The TxnID is not announced, and its coordinator may announce it at any moment.

    Attributes:
        txn_id: the TxnID.
    """

    def __init__(self, message: str, txn_id: TxnID) -> None:
        super().__init__(message, txn_id=txn_id)
        self.txn_id = txn_id


class Issued:
    """TxnIDs that coordinators have announced to this broker.

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
        # When each coordinator was heard last, since the broker's start.
        self._heard_ms: dict[int, float] = {}
        self._waiting: dict[object, Callable[[], None]] = {}

    def hear(self, tcid: int) -> None:
        """Note that a coordinator has sent a command."""
        self._heard_ms[tcid] = self._clock.monotonic_ms()

    def check(self, txn_id: TxnID) -> None:
        """Check that a TxnID is issued.

        Raises:
            TxnNotFound: no coordinator has issued it.
            TxnUnannounced: its coordinator is heard, and may be about to announce it.
            LogUnavailable: its coordinator has not announced it, and is not heard.
        """
        if self._watermarks.is_running(txn_id):
            return
        watermark = self._watermarks.find(txn_id.tcid)
        if watermark is not None and txn_id.incarnation <= watermark.incarnation:
            if txn_id.incarnation < watermark.incarnation:
                return
            if txn_id.counter < watermark.next_counter:
                return
        self._refuse(txn_id)

    def when_announced(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever a coordinator has announced TxnIDs; return what ends that."""
        key = object()
        self._waiting[key] = callback

        def forget() -> None:
            self._waiting.pop(key, None)

        return forget

    def announced(self) -> None:
        """Tell all that wait that a coordinator has announced TxnIDs."""
        for callback in list(self._waiting.values()):
            callback()

    def _is_unknown(self, tcid: int) -> bool:
        return tcid not in self._configured and not self._has_incarnation(tcid)

    def _is_heard(self, tcid: int) -> bool:
        heard_ms = self._heard_ms.get(tcid)
        return heard_ms is not None and self._clock.monotonic_ms() - heard_ms <= HEARD_MS_MAX

    def _refuse(self, txn_id: TxnID) -> NoReturn:
        watermark = self._watermarks.find(txn_id.tcid)
        is_invalid = False
        if watermark is None:
            is_invalid = self._is_unknown(txn_id.tcid)
        elif self._is_heard(txn_id.tcid):
            bound = watermark.counter_bound
            if txn_id.incarnation == watermark.incarnation and txn_id.counter < bound:
                raise TxnUnannounced(_unannounced(txn_id), txn_id)
            is_invalid = (
                txn_id.incarnation > watermark.incarnation or txn_id.counter >= bound + NEAR_COUNT
            )
        if is_invalid:
            raise TxnNotFound(
                f"no coordinator has issued transaction {txn_id}: check where the id comes from",
                txn_id=txn_id,
            )
        raise LogUnavailable(_unannounced(txn_id), txn_id=txn_id)


def _unannounced(txn_id: TxnID) -> str:
    return (
        f"coordinator {txn_id.tcid} has not told this broker of transaction {txn_id}: ask again, or"
        " check where the id comes from"
    )
