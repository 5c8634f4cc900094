"""Traces of transactions at their coordinator: causes of decisions, and spans of ends.

No decision depends on this module. A transaction that is not traced leaves nothing.
Source: docs/design/0013-traces.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from magnetar_coordinator.ending.end_commands import end_command
from magnetar_coordinator.metadata.records import Record, StatusChanged
from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnAction
from magnetar_core.ids import TxnID
from magnetar_core.traces.descriptions import (
    PARTICIPANT_COUNT,
    TXN_ACTION,
    Description,
    describe,
    txn_attributes,
)
from magnetar_core.traces.spans import ServerTraces, Span
from magnetar_core.traces.traceparent import trace_id_of
from magnetar_core.transport.frames import name_of

# How many transactions that have ended are remembered with their traces, for people.
ENDED_MAX: Final = 10_000


class TransactionTraces:
    """The transactions that are traced: live ones, and those that ended last.

    Args:
        traces: makes the spans.
    """

    def __init__(self, traces: ServerTraces) -> None:
        self._traces = traces
        # Traceparents of the spans that decisions belong to: that of EndTxn, or that of NewTxn as
        # long as no EndTxn has come.
        self._causes: dict[TxnID, bytes] = {}
        # The same of transactions that have ended, the oldest first.
        self._ended: dict[TxnID, bytes] = {}
        # From the decision until every participant has answered.
        self._finishing: dict[TxnID, Span] = {}

    def note(self, txn_id: TxnID, span: Span | None) -> None:
        """Note the command that began or ended a transaction."""
        if span is not None:
            self._causes[txn_id] = span.traceparent

    def restore(self, traceparents: Mapping[TxnID, bytes]) -> None:
        """Go on with what was decided before a restart."""
        self._causes.update(traceparents)

    def marked(self, record: Record) -> Record:
        """Return a record with the span that decided, if it is a decision that is traced."""
        cause = self._causes.get(record.txn_id)
        if cause is None or not isinstance(record, StatusChanged):
            return record
        return record._replace(traceparent=cause)

    def finishing(self, transaction: Transaction) -> None:
        """Begin the span of a decision that is carried out."""
        cause = self._causes.get(transaction.txn_id)
        if cause is None:
            return
        attributes = txn_attributes(transaction.txn_id)
        is_commit = transaction.action is TxnAction.COMMIT
        attributes[TXN_ACTION] = "commit" if is_commit else "abort"
        attributes[PARTICIPANT_COUNT] = len(transaction.unfinished)
        span = self._traces.work(Description("finish transaction", attributes), cause)
        if span is not None:
            self._finishing[transaction.txn_id] = span

    def ending(
        self, transaction: Transaction, participants: Collection[Participant]
    ) -> Span | None:
        """Begin the span of an end command; None: its transaction is not traced."""
        finishing = self._finishing.get(transaction.txn_id)
        if finishing is None:
            return None
        command = end_command(transaction, participants, incarnation=0)
        description = describe(name_of(command), command)
        assert description is not None
        return self._traces.work(description, finishing.traceparent, is_request=True)

    def finished(self, txn_id: TxnID) -> None:
        """End the span of a decision: every participant has answered."""
        span = self._finishing.pop(txn_id, None)
        if span is not None:
            span.end()

    def forget(self, txn_id: TxnID) -> None:
        """Forget a transaction that has ended everywhere, but for its trace."""
        cause = self._causes.pop(txn_id, None)
        if cause is not None:
            self._ended[txn_id] = cause
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def trace_id(self, txn_id: TxnID) -> str:
        """Return the id of a transaction's trace; empty: it is not known to be traced."""
        return trace_id_of(self._causes.get(txn_id) or self._ended.get(txn_id, b""))
