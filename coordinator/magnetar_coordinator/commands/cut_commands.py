"""Command CloseCut: the past of a coordinator is closed, for a consistent cut.

Source: docs/design/0015-cuts.md, Taking a cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from magnetar_coordinator.ending.cut_closings import CutClosing
from magnetar_coordinator.metadata.wire import put_txn_id
from magnetar_coordinator.runtime import Runtime
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.wire import transaction_pb2 as pb

WAIT_MS_MAX = 60_000
UNFINISHED_TOLD_MAX = 100


class CutCommands:
    """Handler of CloseCut."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.handlers: Mapping[str, Handler] = each_of({"close_cut": self._close_cut})

    def _close_cut(self, request: pb.CommandCloseCut, reply: Reply) -> None:
        """Handle CloseCut. A copy does the same again, which changes nothing."""
        runtime = self._runtime
        runtime.hear(request.stamp)
        unfinished = runtime.shard.unfinished_up_to(request.stamp)
        if not unfinished or not request.wait_ms:
            self._answer(reply, unfinished)
            return
        closing = CutClosing(unfinished, partial(self._answer, reply), reply.session)
        runtime.cut_closings.add(closing)
        wait_s = min(request.wait_ms, WAIT_MS_MAX) / 1_000
        loop = asyncio.get_running_loop()
        timer = loop.call_later(wait_s, runtime.cut_closings.time_is_up, closing)
        closing.stop_timer = timer.cancel

    def _answer(self, reply: Reply, unfinished: Sequence[TxnID]) -> None:
        runtime = self._runtime
        shard = runtime.shard
        response = pb.CommandCloseCutResponse(
            tcid=runtime.config.tcid,
            incarnation=shard.incarnation,
            clock=shard.clock.now(runtime.time_ms()),
            truncated=len(unfinished) > UNFINISHED_TOLD_MAX,
        )
        runtime.metadata.reserve_stamps(response.clock)
        for txn_id in unfinished[:UNFINISHED_TOLD_MAX]:
            put_txn_id(response.unfinished.add(), txn_id)
        # The bound above the command's stamp is durable before a client relies on it.
        runtime.answer(reply, response)
