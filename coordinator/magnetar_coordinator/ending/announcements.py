"""Announcements of TxnIDs to brokers: the low watermark, the issued range, and orphans.

Nothing leaves before the records that it rests on are durable.
Source: docs/design/0001-protocol.md, Low watermark, and Orphaned participants; rules c and f.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.finisher import Finisher
from magnetar_coordinator.metadata.transaction import Participant
from magnetar_coordinator.metadata_store import TransactionMetadataStore
from magnetar_coordinator.transactions.orphans import OrphanVerdict, judge
from magnetar_coordinator.transactions.shard import Shard
from magnetar_core.ids import TxnID
from magnetar_core.process.run_time import RunTime
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_storage.group_commit import GroupCommit

log = logging.getLogger(__name__)


class Announcements:
    """Sends a coordinator's announcements to all brokers."""

    _shard: Shard
    _metadata: TransactionMetadataStore
    _run_time: RunTime

    def __init__(self, config: CoordinatorConfig, commits: GroupCommit, finisher: Finisher) -> None:
        self._config = config
        self._commits = commits
        self._finisher = finisher
        self._telling_issued = False
        # Answers with new TxnIDs, which leave behind the announcement of these.
        self._answers: list[Callable[[], None]] = []
        # Brokers hear of no counter beyond this bound.
        self._durable_bound = 0

    def recovered(
        self, shard: Shard, metadata: TransactionMetadataStore, run_time: RunTime
    ) -> None:
        """Begin: the store is read, and its present bound is durable."""
        self._shard, self._metadata, self._run_time = shard, metadata, run_time
        self._durable_bound = metadata.counter_bound

    def advance_watermark(self) -> None:
        """Tell brokers up to where transactions have ended."""
        shard, metadata = self._shard, self._metadata
        watermark = shard.watermark.advance(self._run_time.now_ms())
        metadata.reserve(shard.next_counter)
        command = pb.CommandLowWatermark(
            tcid=self._config.tcid,
            incarnation=shard.incarnation,
            low_watermark=watermark.low_watermark,
            live=[pb.TxnRange(first=first, last=last) for first, last in watermark.live],
            counter_bound=metadata.counter_bound,
            next_counter=shard.next_counter,
            store_token=metadata.store_token,
        )
        tell = partial(self._tell_watermark, command)
        self._commits.when_durable(self._commits.position(), tell)

    def _tell_watermark(self, command: pb.CommandLowWatermark) -> None:
        self._durable_bound = max(self._durable_bound, command.counter_bound)
        self._finisher.tell_watermark(command)

    def tell_issued_soon(self) -> None:
        """Tell brokers of new TxnIDs at the end of this turn, before any client hears of them.

        If such TxnIDs are lost before they are durable, nobody gets them again: a restart skips
        them.
        """
        if not self._telling_issued:
            self._telling_issued = True
            asyncio.get_running_loop().call_soon(self._tell_issued)

    def when_told(self, answer: Callable[[], None]) -> None:
        """Call back when brokers are told of all TxnIDs issued so far.

        Then a bound ahead of these TxnIDs is durable, their records perhaps not. No store issues
        them again, and one that has lost their records says that they are aborted.
        """
        self._answers.append(answer)
        self.tell_issued_soon()

    def _tell_issued(self) -> None:
        self._telling_issued = False
        next_counter, counter_bound = self._shard.next_counter, self._metadata.counter_bound
        answers, self._answers = self._answers, []
        if next_counter <= self._durable_bound:
            self._announce(next_counter, self._durable_bound, answers)
        else:
            # A bound that is lost before it is durable would be issued again.
            announce = partial(self._announce, next_counter, counter_bound, answers)
            self._commits.when_durable(self._commits.position(), announce)

    def _announce(
        self, next_counter: int, counter_bound: int, answers: list[Callable[[], None]]
    ) -> None:
        self._durable_bound = max(self._durable_bound, counter_bound)
        issued = pb.CommandTxnsIssued(
            tcid=self._config.tcid,
            incarnation=self._shard.incarnation,
            next_counter=next_counter,
        )
        self._finisher.tell_issued(issued, self._durable_bound)
        for answer in answers:
            answer()

    def judge_orphan(self, txn_id: TxnID, participant: Participant) -> OrphanVerdict:
        """Decide about a transaction that a broker holds open at a participant."""
        self.pass_over(txn_id)
        return judge(self._shard, txn_id, participant)

    def pass_over(self, txn_id: TxnID) -> None:
        """Never issue a TxnID that a client invented, if brokers may believe that it is issued."""
        shard = self._shard
        if shard.is_issued(txn_id) or not shard.is_own(txn_id):
            return
        if txn_id.counter < self._metadata.counter_bound:
            log.warning("transaction %s was invented by a client: it will never be issued", txn_id)
            shard.skip(txn_id)
            # At once: the next TxnID may lie close to the bound, or beyond it.
            self.advance_watermark()
