"""CommandListTxnChanges: changes among transactions since an earlier answer.

Programs that show transactions would otherwise list all of them again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_coordinator.commands.descriptions import describe, describe_ended, describe_outcome
from magnetar_coordinator.metadata.records import TxnEnded
from magnetar_coordinator.runtime import Runtime
from magnetar_core.ids import TxnID
from magnetar_core.list_limits import rows_of
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.wire import transaction_pb2 as pb

# Of so many transactions that ended last, an answer has all that is kept; of others the outcome.
DETAILED_MAX: Final = 10


class TxnFollowing:
    """Answers to clients that follow a coordinator's transactions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.handlers: Mapping[str, Handler] = each_of({"list_txn_changes": self._list_txn_changes})

    def _list_txn_changes(self, request: pb.CommandListTxnChanges, reply: Reply) -> None:
        runtime = self._runtime
        changes = runtime.changes
        changes.asked(runtime.monotonic_ms())
        limit = rows_of(request.limit)
        place = request.place
        response = pb.CommandListTxnChangesResponse()
        response.place.life = runtime.started_time_ms
        if place.life != runtime.started_time_ms or not changes.knows_since(place.version):
            response.anew = True
            response.place.version = changes.version
            self._add_live(response, TxnID(0, 0), limit)
        elif place.HasField("listed_to"):
            response.place.version = place.version
            self._add_live(response, TxnID.from_wire(place.listed_to), limit)
        else:
            self._add_changes(response, place.version, limit)
        runtime.answer(reply, response)

    def _add_live(
        self, response: pb.CommandListTxnChangesResponse, listed_to: TxnID, limit: int
    ) -> None:
        """Add live transactions behind one that was told, the oldest first."""
        for txn_id, transaction in self._runtime.shard.live.items():
            if txn_id <= listed_to and not response.anew:
                continue
            if len(response.transactions) == limit:
                response.truncated = True
                response.place.listed_to.CopyFrom(response.transactions[-1].txn_id)
                return
            response.transactions.append(describe(self._runtime, transaction))
        # Some of those that were told first may have changed since.
        response.truncated = self._runtime.changes.version > response.place.version

    def _add_changes(
        self, response: pb.CommandListTxnChangesResponse, version: int, limit: int
    ) -> None:
        """Add transactions that have changed after a version."""
        runtime = self._runtime
        response.place.version = version
        ended: list[TxnEnded] = []
        for count, change in enumerate(runtime.changes.since(version)):
            if count == limit:
                response.truncated = True
                break
            response.place.version = change.version
            transaction = runtime.shard.live.get(change.txn_id)
            if transaction is not None:
                response.transactions.append(describe(runtime, transaction))
            elif change.outcome is not None:
                ended.append(change.outcome)
        response.ended.extend(describe_outcome(runtime, one) for one in ended[:-DETAILED_MAX])
        response.ended.extend(describe_ended(runtime, one) for one in ended[-DETAILED_MAX:])
