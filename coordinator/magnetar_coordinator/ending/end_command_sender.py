"""Sender of end commands to a broker, with the time at which each is sent again.

An end command is sent until all of its participants have answered: again when no answer comes
within a deadline, or some time after an error, and at once when a broken link comes back. Its
states are in end_state.py.
Source: PIP-31, TC Startup, committing and aborting; docs/design/0001-protocol.md, Ends at a
participant.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from random import Random
from typing import Any

from magnetar_coordinator.config import CoordinatorConfig
from magnetar_coordinator.ending.end_commands import end_command, participant_of
from magnetar_coordinator.ending.end_state import EndEvent, EndState, OnEnded, OnError, PendingEnd
from magnetar_coordinator.ending.transaction_traces import TransactionTraces
from magnetar_coordinator.metadata.transaction import Participant, Transaction
from magnetar_coordinator.metrics import CoordinatorMetrics
from magnetar_core.backoff import delay_ms
from magnetar_core.clock import Clock
from magnetar_core.errors import END_REFUSALS, code_name
from magnetar_core.link.broker_link import BrokerLink
from magnetar_core.traces.descriptions import ERROR_TYPE
from magnetar_core.traces.spans import Span
from magnetar_core.transport.columns.ends import EndOnParticipants
from magnetar_core.transport.frames import Numbered, detached
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import transaction_pb2 as pb

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 0.1
_ENDED_TOGETHER = "end_txn_on_participants_response"
_ENDED_NAMES = frozenset(
    {"end_txn_on_partition_response", "end_txn_on_subscription_response", _ENDED_TOGETHER}
)
# The participant was deleted, and its part of the transaction with it.
GONE_CODES = frozenset({common.GONE, common.TOPIC_NOT_FOUND, common.SUBSCRIPTION_NOT_FOUND})
# Only an administrator can help.
_REFUSAL_CODES = frozenset(error.code for error in END_REFUSALS)


class EndCommandSender:
    """Sends end commands to a broker, until each is answered."""

    def __init__(
        self,
        link: BrokerLink,
        config: CoordinatorConfig,
        clock: Clock,
        random: Random,
        metrics: CoordinatorMetrics,
        traces: TransactionTraces | None = None,
        *,
        incarnation: int,
    ) -> None:
        self._link = link
        self._incarnation = incarnation
        self._constants = config.constants
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._traces = traces
        # Spans of end commands without an answer, by request id; few are traced.
        self._spans: dict[int, Span] = {}
        # End commands without an answer, by request id.
        self._ends: dict[int, PendingEnd] = {}
        # Commands in state SENT, in order of time: most get an answer soon, and leave.
        self._first: dict[int, PendingEnd] = {}
        # Commands in state DUE. Entries whose command has another due_ms by now are skipped.
        self._later: list[tuple[float, int, PendingEnd]] = []
        self._sweep_timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Send nothing more."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def add(
        self,
        transaction: Transaction,
        participants: Sequence[Participant],
        *,
        on_ended: OnEnded,
        on_error: OnError,
    ) -> PendingEnd:
        """Add an end command, for send_first()."""
        request_id = self._link.next_request_id()
        end = PendingEnd(transaction, participants, request_id, on_ended, on_error)
        self._ends[request_id] = end
        if self._traces is not None:
            span = self._traces.ending(transaction, participants)
            if span is not None:
                self._spans[request_id] = span
        return end

    def send_first(self, ends: Sequence[PendingEnd], now_ms: float) -> None:
        """Send new end commands, now or when the link comes back."""
        if not self._link.is_up:
            return
        self._send(ends)
        due_ms = now_ms + self._constants.answer_deadline_ms
        for end in ends:
            end.move(EndEvent.FIRST_SENT)
            end.due_ms = due_ms
            self._first[end.request_id] = end
        self._sweep_later()

    def send_again(self, end: PendingEnd, now_ms: float) -> None:
        """Repeat an end command, if the link is up."""
        if not self._link.is_up:
            return
        self._metrics.repeated.inc()
        self._send((end,))
        due_ms = now_ms + self._constants.answer_deadline_ms + self._delay_ms(end)
        self._due_later(end, EndEvent.SENT_AGAIN, due_ms)

    def link_is_up(self) -> None:
        """Send all unanswered end commands again."""
        now_ms = self._clock.monotonic_ms()
        self._send(self._ends.values())
        for end in self._ends.values():
            end.attempts = 0
            self._due_later(end, EndEvent.SENT_AGAIN, now_ms + self._constants.answer_deadline_ms)

    def link_is_down(self) -> None:
        """Note that no answer will come on the old link."""
        self._first.clear()
        self._later.clear()
        for end in self._ends.values():
            end.move(EndEvent.LINK_DOWN)

    def on_answer(self, request_id: int, name: str, body: Any) -> bool:
        """Take an answer; return whether it answered an end command."""
        end = self._ends.get(request_id)
        if end is None:
            return False
        if name == _ENDED_TOGETHER and body.unfinished:
            self._partly_ended(end, {participant_of(one): one for one in body.unfinished})
        elif name in _ENDED_NAMES:
            self._ended(end)
        elif name == "error":
            if body.code in GONE_CODES and len(end.participants) == 1:
                self._ended(end)
            else:
                self._on_errors(end, dict.fromkeys(end.participants, body))
        return True

    def _ended(self, end: PendingEnd) -> None:
        """Take the answer that all participants have ended a transaction, or are gone."""
        self._forget(end)
        end.move(EndEvent.ANSWER)
        if self._spans and (span := self._spans.pop(end.request_id, None)) is not None:
            span.end()
        ended, end.participants = end.participants, ()
        end.on_ended(end, ended)

    def _partly_ended(
        self, end: PendingEnd, unfinished: Mapping[Participant, pb.UnfinishedParticipant]
    ) -> None:
        """Take the answer that all participants have ended a transaction, but for some."""
        ended: list[Participant] = []
        errors: dict[Participant, common.ServerError | None] = {}
        for participant in end.participants:
            one = unfinished.get(participant)
            if one is None:
                ended.append(participant)
            elif not one.HasField("error"):
                errors[participant] = None
            elif one.error.code in GONE_CODES:
                ended.append(participant)
            else:
                # The answer itself would keep its whole frame alive.
                errors[participant] = detached(one.error)
        if not errors:
            self._ended(end)
            return
        if ended:
            self._leave(end, list(errors))
            end.on_ended(end, ended)
        self._on_errors(end, errors)

    def _leave(self, end: PendingEnd, participants: Sequence[Participant]) -> None:
        """Continue an end for fewer participants, under another number.

        The answer to an earlier copy of the command is about more participants than these.
        """
        before = end.request_id
        self._forget(end)
        end.request_id = self._link.next_request_id()
        end.participants = participants
        self._ends[end.request_id] = end
        if self._spans and (span := self._spans.pop(before, None)) is not None:
            self._spans[end.request_id] = span

    def _forget(self, end: PendingEnd) -> None:
        del self._ends[end.request_id]
        self._first.pop(end.request_id, None)

    def _on_errors(
        self, end: PendingEnd, errors: Mapping[Participant, common.ServerError | None]
    ) -> None:
        """Take the errors of all participants that are left; None: it waits for the others."""
        is_refused = False
        passes = False
        for participant, error in errors.items():
            if error is None:
                continue
            self._tell_error(end, participant, error)
            refuses = error.code in _REFUSAL_CODES
            is_refused = is_refused or refuses
            passes = passes or not refuses
            end.on_error(end, participant, error, refuses)
        now_ms = self._clock.monotonic_ms()
        if is_refused and not passes:
            due_ms = now_ms + self._constants.refused_retry_delay_ms
        else:
            due_ms = now_ms + self._delay_ms(end)
        self._due_later(end, EndEvent.ERROR, due_ms)

    def _tell_error(
        self, end: PendingEnd, participant: Participant, error: common.ServerError
    ) -> None:
        """Tell an error to the trace, and once to the log if an administrator can mend it."""
        if self._spans and (span := self._spans.get(end.request_id)) is not None:
            span.event("refused", {ERROR_TYPE: code_name(error.code)})
        before = end.transaction.unfinished[participant]
        if error.code == common.PARTITION_MOVED and (before is None or before.code != error.code):
            # Never "ended": the broker speaks for its own partitions only, and asking again is
            # safe.
            log.warning(
                "transaction %s waits for %s, which the broker at %s does not keep: %s; if this"
                " lasts, start all servers with the same list of members",
                end.transaction.txn_id,
                participant,
                self._link.address,
                error.message,
                extra={"txn_id": end.transaction.txn_id, "participant": participant},
            )

    def _send(self, ends: Iterable[PendingEnd]) -> None:
        """Send end commands, which leave together."""
        rows: list[Numbered] = []
        for end in ends:
            traceparent = b""
            if self._spans and (span := self._spans.get(end.request_id)) is not None:
                span.event("sent")
                traceparent = span.traceparent
            try:
                command = end_command(end.transaction, end.participants, self._incarnation)
                if isinstance(command, EndOnParticipants):
                    rows.append((end.request_id, traceparent, command))
                else:
                    self._link.send(command, end.request_id, traceparent)
            except Exception:
                # The others leave; this one is tried again when it is due.
                log.exception("an end command of %s failed", end.transaction.txn_id)
        if rows:
            self._link.send_rows(rows)

    def _due_later(self, end: PendingEnd, event: EndEvent, due_ms: float) -> None:
        self._first.pop(end.request_id, None)
        end.move(event)
        end.due_ms = due_ms
        heapq.heappush(self._later, (due_ms, end.request_id, end))
        self._sweep_later()

    def _delay_ms(self, end: PendingEnd) -> float:
        constants = self._constants
        wait_ms = delay_ms(
            end.attempts,
            constants.retry_delay_ms_min,
            constants.retry_delay_ms_max,
            self._random,
        )
        end.attempts += 1
        return wait_ms

    def _sweep_later(self) -> None:
        if self._sweep_timer is None:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Repeat the end commands that are due."""
        self._sweep_timer = None
        now_ms = self._clock.monotonic_ms()
        for end in list(takewhile(lambda one: one.is_due(now_ms), self._first.values())):
            self.send_again(end, now_ms)
        later = self._later
        while later and (later[0][0] <= now_ms or later[0][2].state is not EndState.DUE):
            due_ms, _, end = heapq.heappop(later)
            if end.state is EndState.DUE and end.due_ms == due_ms:
                self.send_again(end, now_ms)
        if self._first or later:
            self._sweep_later()
