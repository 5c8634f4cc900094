"""CommandListTxns: live transactions from memory, ended ones from their outcomes.

Source: KIP-664, ListTransactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from magnetar_coordinator.commands.descriptions import describe, describe_ended
from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_coordinator.metadata.transaction import TxnOwner, TxnStatus
from magnetar_coordinator.runtime import Runtime
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import TxnID
from magnetar_core.list_limits import rows_of
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.wildcards import matcher
from magnetar_core.wire import transaction_pb2 as pb

_LIVE = frozenset({TxnStatus.OPEN, TxnStatus.COMMITTING, TxnStatus.ABORTING})
_ENDED = frozenset({TxnStatus.COMMITTED, TxnStatus.ABORTED})
# Outcomes that are read at once, and for a command: with strict filters the listing ends early.
_PAGE_ROWS = 1_000
_ROWS_MAX = 100_000


class TxnListing:
    """Listing of a coordinator's transactions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.handlers: Mapping[str, Handler] = each_of({"list_txns": self._list_txns})

    def _list_txns(self, request: pb.CommandListTxns, reply: Reply) -> None:
        runtime = self._runtime
        statuses = _statuses(request.statuses) or _LIVE
        limit = rows_of(request.limit)
        chosen = _Filter(request)
        response = pb.CommandListTxnsResponse()
        self._add_live(response, statuses, chosen, limit)
        if statuses & _ENDED and not response.truncated:
            recent = runtime.shard.recent_outcomes()
            runtime.answer_later(reply, self._add_ended(response, statuses, chosen, limit, recent))
            return
        runtime.answer(reply, response)

    def _add_live(
        self,
        response: pb.CommandListTxnsResponse,
        statuses: frozenset[TxnStatus],
        chosen: _Filter,
        limit: int,
    ) -> None:
        """Add live transactions, the oldest first."""
        runtime = self._runtime
        run_time_ms = runtime.run_time_ms()
        for transaction in runtime.shard.select(statuses):
            if run_time_ms - transaction.start_run_time_ms < chosen.age_ms_min:
                break  # All later transactions are younger.
            if not chosen.takes(transaction.txn_owner):
                continue
            if len(response.transactions) == limit:
                response.truncated = True
                break
            response.transactions.append(describe(runtime, transaction))

    async def _add_ended(
        self,
        response: pb.CommandListTxnsResponse,
        statuses: frozenset[TxnStatus],
        chosen: _Filter,
        limit: int,
        recent: list[TxnEnded],
    ) -> pb.CommandListTxnsResponse:
        """Add ended transactions, the latest beginning first.

        Args:
            recent: recent outcomes, which may not be written yet; some of them are written.
        """
        runtime = self._runtime
        run_time_ms = runtime.run_time_ms()
        room = limit - len(response.transactions)
        found: dict[TxnID, TxnEnded] = {}

        def consider(outcome: TxnEnded) -> None:
            age_ms = run_time_ms - outcome.end_run_time_ms
            if (
                outcome.status in statuses
                and age_ms >= chosen.age_ms_min
                and chosen.takes(outcome.txn_owner)
            ):
                found[outcome.txn_id] = outcome

        for outcome in recent:
            consider(outcome)
        end: bytes | None = None
        scanned = 0
        while True:
            rows = await runtime.metadata.outcomes_before(end, rows_max=_PAGE_ROWS)
            for _, outcome in rows:
                consider(outcome)
            scanned += len(rows)
            if len(rows) < _PAGE_ROWS:
                break
            end = rows[-1][0]
            # A recent outcome may come further down.
            certain = sum(one.to_bytes() >= end for one in found)
            if certain > room or scanned >= _ROWS_MAX:
                response.truncated = True
                break
        newest_first = sorted(found.values(), key=lambda one: one.txn_id, reverse=True)
        response.truncated |= len(newest_first) > room
        for outcome in newest_first[:room]:
            response.transactions.append(describe_ended(runtime, outcome))
        return response


class _Filter:
    """Filters of a command, besides states."""

    def __init__(self, request: pb.CommandListTxns) -> None:
        self.age_ms_min = request.age_ms_min
        self._matches = matcher(request.transactional_id_pattern or "*")
        self._producer_ids = frozenset(request.producer_ids)

    def takes(self, txn_owner: TxnOwner | None) -> bool:
        """Return whether the filters let transactions of this owner through."""
        if self._producer_ids and (
            txn_owner is None or txn_owner.pair[0] not in self._producer_ids
        ):
            return False
        return self._matches(txn_owner.transactional_id if txn_owner is not None else "")


def _statuses(wire: Iterable[int]) -> frozenset[TxnStatus]:
    try:
        return frozenset(TxnStatus(status) for status in wire)
    except ValueError as error:
        raise InvalidArgument("an unknown status") from error
