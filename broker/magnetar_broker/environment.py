"""Environment of a broker's parts: what every part needs from its process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from magnetar_broker.ages import Ages
from magnetar_broker.budgets.open_bytes import OpenBytes
from magnetar_broker.budgets.tails import Tails
from magnetar_broker.config import BrokerConfig
from magnetar_broker.metrics import BrokerMetrics
from magnetar_broker.transactions.issued import Issued
from magnetar_broker.transactions.orphan_candidates import OrphanCandidates, Participant
from magnetar_broker.transactions.recent_messages import RecentMessages
from magnetar_broker.transactions.transaction_index import TransactionIndex
from magnetar_broker.transactions.watermark import Watermarks
from magnetar_core.clock import Clock
from magnetar_core.history.history import History
from magnetar_core.membership.address_book import AddressBook
from magnetar_core.process.run_time import RunTime
from magnetar_core.server.commands import Handler
from magnetar_core.server.membership_refusals import MEMBERSHIP_REFUSALS
from magnetar_storage.disk_reserve import DiskReserve
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.store import Store


@dataclass(frozen=True, slots=True)
class Environment:
    """Services of the process, handed to partitions and subscriptions.

    Attributes:
        addresses: where the cluster's servers are now.
        disk_reserve: asked before anything that takes room is applied.
        spawn: runs a coroutine as a task of this broker; a failure in it ends the process.
        deferred_rows: objects that add rows when the open group is sealed; insertion order.
        history: notes the events of the protocol; None: there is none.
        membership: handlers of commands about members of the cluster, of the process.
    """

    config: BrokerConfig
    addresses: AddressBook
    store: Store
    commits: GroupCommit
    disk_reserve: DiskReserve
    clock: Clock
    watermarks: Watermarks
    issued: Issued
    orphan_candidates: OrphanCandidates
    metrics: BrokerMetrics
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    deferred_rows: dict[Any, None]
    open_bytes: OpenBytes
    tails: Tails
    recent_messages: RecentMessages
    run_time: RunTime
    ages: Ages
    history: History | None = None
    membership: Mapping[str, Handler] = field(default_factory=lambda: MEMBERSHIP_REFUSALS)

    def new_index(self, participant: Participant) -> TransactionIndex:
        """Create the transaction index of a participant."""
        candidates, now_ms = self.orphan_candidates, self.clock.monotonic_ms
        return TransactionIndex(
            self.watermarks.is_running,
            self.watermarks.covers,
            self.watermarks.covered,
            self.watermarks.is_superseded,
            self.issued.check,
            on_opened=lambda txn_id: candidates.opened(txn_id, participant, now_ms()),
            on_closed=partial(candidates.known, participant),
            name=participant,
            history=self.history,
        )

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back when everything applied so far outlives the process.

        With durability "synced" that is when it is durable. It is enough for plain messages and
        plain acks, but not for rows that a coordinator or another broker relies on.
        Source: docs/design/0014-durability.md.
        """
        self.commits.when_written(self.commits.position(), callback)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back when everything applied so far is durable."""
        self.commits.when_durable(self.commits.position(), callback)

    def defer_rows(self, owner: Any) -> None:
        """Call owner.write_deferred_rows(batch) when the open group is sealed."""
        if owner not in self.deferred_rows:
            self.deferred_rows[owner] = None
            self.commits.mark_deferred()
