"""Commands that overtook the announcement of their TxnID: they wait a moment for it.

A coordinator announces a TxnID to brokers before it answers its client, but on another connection.
On a busy machine the client's first commands are often read earlier. Without a wait they are
refused, and their client pauses before it sends them again. Nothing is written under a TxnID that
is not announced: a command that waits has had no effect.
Source: docs/design/0001-protocol.md, Invented TxnIDs; docs/protocol/rules.md, rule f.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from typing import Any

from magnetar_broker.budgets.parked_bytes import ParkedBytes
from magnetar_broker.environment import Environment
from magnetar_broker.replies import Replies
from magnetar_broker.transactions.issued import TxnUnannounced
from magnetar_broker.transactions.watermark import Watermark
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import TxnID
from magnetar_core.server.commands import CommandSession, Handler, Reply, Run
from magnetar_core.transport.frames import detached
from magnetar_core.transport.spliced import byte_count_of

# How long a TxnID waits. The announcement has left already: it waits in a socket until the event
# loop of this broker, or of the coordinator, gets the processor. On two cores with ten busy
# processes that took some tens of milliseconds. A wait that is much longer would keep a TxnID that
# a client invented, or a coordinator that has just ended, from being told.
WAIT_SECONDS = 0.1
# How many commands wait, in all and from a connection. When they are announced together, all of
# them are handled in a turn of the event loop: a tenth of a second.
WAITING_MAX = 2_000
CONNECTION_WAITING_MAX = 1_000

# The commands of a client or coordinator that are refused before their TxnID is announced.
NAMING_TXNS = (
    "send",
    "publish",
    "ack",
    "end_txn_on_partition",
    "end_txn_on_subscription",
    "end_txn_on_participants",
)

_Call = Callable[[], None]


class _Waiting:
    """Commands of a TxnID, in the order in which they came.

    They are handled together, so that no later one overtakes an earlier one.
    """

    __slots__ = ("calls", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.calls: list[_Call] = []


class Unannounced:
    """Commands whose TxnIDs are not announced."""

    def __init__(
        self, environment: Environment, replies: Replies, parked_bytes: ParkedBytes
    ) -> None:
        self._environment = environment
        self._replies = replies
        self._parked_bytes = parked_bytes
        # In the order in which their first commands came, which is that of their deadlines.
        self._waiting: dict[TxnID, _Waiting] = {}
        # Their TxnIDs in ascending order, so that an announcement is a range of them.
        self._txn_ids: list[TxnID] = []
        self._counts: Counter[CommandSession] = Counter()
        self._is_watching = False

    def waiting_for_announcement(self, handler: Handler) -> Handler:
        """Return a handler whose commands wait until their TxnID is announced."""

        def handle(run: Run) -> None:
            def failed(error: Exception, command: Any, reply: Reply) -> None:
                # The broker is not told when the caller of a unary form is gone.
                if (
                    not isinstance(error, TxnUnannounced)
                    or reply.session is None
                    or not self._has_room(reply.session)
                ):
                    run.failed(error, command, reply)
                    return
                try:
                    self._park(error.txn_id, handler, detached(command), reply)
                except MagnetarError as refusal:
                    run.failed(refusal, command, reply)

            handler(Run(run.items, failed))

        return handle

    def announced(self, tcid: int, watermark: Watermark) -> None:
        """Handle the commands whose TxnIDs a coordinator has announced."""
        if not self._txn_ids:
            return
        first = bisect_left(self._txn_ids, TxnID.of(tcid, 0, 0))
        end = bisect_left(
            self._txn_ids, TxnID.of(tcid, watermark.incarnation, watermark.next_counter)
        )
        self._handle(self._txn_ids[first:end])

    def _has_room(self, session: CommandSession) -> bool:
        return self._counts.total() < WAITING_MAX and self._counts[session] < CONNECTION_WAITING_MAX

    def _park(self, txn_id: TxnID, handler: Handler, command: Any, reply: Reply) -> None:
        """Keep a command until its TxnID is announced, or its time is up.

        Raises:
            LogUnavailable: too many bytes wait.
        """
        session = reply.session
        assert session is not None
        give_back = self._parked_bytes.take(
            byte_count_of(command), reply, f"the announcement of transaction {txn_id}"
        )
        self._counts[session] += 1

        def call() -> None:
            give_back()
            self._counts[session] -= 1
            if not self._counts[session]:
                del self._counts[session]
            if not session.closed:
                self._replies.handle(handler, command, reply)

        waiting = self._waiting.get(txn_id)
        if waiting is None:
            until_s = asyncio.get_running_loop().time() + WAIT_SECONDS
            waiting = self._waiting[txn_id] = _Waiting(until_s)
            insort(self._txn_ids, txn_id)
        waiting.calls.append(call)
        self._environment.metrics.unannounced.inc()
        if not self._is_watching:
            self._is_watching = True
            self._environment.spawn(self._watch())

    async def _watch(self) -> None:
        """Handle commands that have waited for too long, which are refused then."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            txn_id, waiting = next(iter(self._waiting.items()))
            if waiting.until_s > loop.time():
                await asyncio.sleep(waiting.until_s - loop.time())
            else:
                self._handle([txn_id])
        self._is_watching = False

    def _handle(self, txn_ids: list[TxnID]) -> None:
        for txn_id in txn_ids:
            del self._txn_ids[bisect_left(self._txn_ids, txn_id)]
            for call in self._waiting.pop(txn_id).calls:
                call()
