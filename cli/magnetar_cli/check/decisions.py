"""Comparison of coordinators with brokers: whether every participant has what was decided.

A coordinator stores a decision before it tells any broker, and an outcome after every broker has
answered. So for servers that were killed at any moments, a broker never knows more than its
coordinator, and what a coordinator calls ended is open nowhere. Outcomes are forgotten after their
retention: a transaction that is older than the oldest of them may be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_broker.offline.broker import OfflineBroker
from magnetar_coordinator.metadata.transaction import TxnStatus
from magnetar_coordinator.offline.check import OfflineCoordinator
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_storage.offline.findings import Findings

# What a participant may be, while the coordinator has this status.
_POSSIBLE: Mapping[TxnStatus, frozenset[int]] = {
    TxnStatus.OPEN: frozenset({common.OPEN}),
    TxnStatus.COMMITTING: frozenset({common.OPEN, common.COMMITTED}),
    TxnStatus.ABORTING: frozenset({common.OPEN, common.ABORTED}),
    TxnStatus.COMMITTED: frozenset({common.COMMITTED, common.ABORTED}),
    TxnStatus.ABORTED: frozenset({common.OPEN, common.ABORTED}),
}


class Decisions:
    """Compares what coordinators say about transactions with what participants have.

    Args:
        coordinators: by TCID.
        findings: gets the contradictions.
    """

    def __init__(self, coordinators: Mapping[int, OfflineCoordinator], findings: Findings) -> None:
        self._coordinators = coordinators
        self._findings = findings

    def saw(self, server: str, txn_id: TxnID, where: str, status: common.TxnStatus) -> None:
        """Note that a participant holds a transaction with a status."""
        coordinator = self._coordinators.get(txn_id.tcid)
        if coordinator is None:
            return
        at_coordinator = coordinator.status_of(txn_id)
        place = f"{server}: {where}: {txn_id}"
        here = common.TxnStatus.Name(status)
        if at_coordinator is None:
            self._check_unknown(coordinator, txn_id, place, here)
        elif status not in _POSSIBLE[at_coordinator]:
            self._findings.damage(
                "decision",
                place,
                f"it is {here} here, and {at_coordinator.name} at its coordinator",
            )

    def check_watermarks(self, server: str, broker: OfflineBroker) -> None:
        """Check that no broker knows of ends or TxnIDs that its coordinators do not know."""
        for tcid, watermark in broker.watermarks.known():
            coordinator = self._coordinators.get(tcid)
            if coordinator is None:
                continue
            where = f"{server}: coordinator {tcid}"
            if watermark.incarnation > coordinator.incarnation:
                self._findings.damage(
                    "incarnation",
                    where,
                    f"it announced incarnation {watermark.incarnation}, and its store has"
                    f" {coordinator.incarnation}",
                )
            if watermark.incarnation != coordinator.incarnation:
                continue
            if watermark.low_watermark > coordinator.counter_bound:
                self._findings.damage(
                    "watermark",
                    where,
                    f"it announced that all below {watermark.low_watermark} have ended, and its"
                    f" store has issued those below {coordinator.counter_bound} at most",
                )
            for txn_id in coordinator.live:
                if watermark.covers(txn_id):
                    self._findings.damage(
                        "watermark",
                        f"{where}: {txn_id}",
                        "the broker heard that it has ended, and it is live in the store",
                    )

    def _check_unknown(
        self, coordinator: OfflineCoordinator, txn_id: TxnID, place: str, here: str
    ) -> None:
        if txn_id.incarnation > coordinator.incarnation:
            text = f"the incarnation of its coordinator's store is {coordinator.incarnation}"
        elif txn_id.incarnation < coordinator.incarnation or coordinator.next_unopened is None:
            return
        elif txn_id.counter >= coordinator.next_unopened:
            if here == "OPEN":
                # A client may write in a transaction whose record is not durable yet.
                return
            text = f"its coordinator opened none from {coordinator.next_unopened} on"
        elif coordinator.oldest_outcome is None or txn_id < coordinator.oldest_outcome:
            return
        elif coordinator.is_whole:
            text = "its coordinator opened it, and has neither records nor an outcome of it"
        else:
            return
        self._findings.damage("decision", place, f"it is {here} here, but {text}")
