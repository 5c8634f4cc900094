"""Commands that are sent again, in order, until a shard has answered them.

Batches and the acks of transactions are numbered, and their server refuses a number before its
predecessor. So the commands of a writer to a participant are a stream. When a link breaks or the
shard moves, everything of the shard that is not answered is written on the next link, in the order
in which it was submitted. What is refused for now goes again after a pause, together with all that
follows it in its stream; other streams go on meanwhile. The server recognises repeats.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from magnetar.errors import failure_of
from magnetar.link.runtime import Runtime
from magnetar.link.session import AnswerT, LinkSession, Result
from magnetar_core.backoff import Backoff
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import (
    InternalError,
    LogUnavailable,
    MagnetarError,
    MessageTooLarge,
    OutcomeUnknown,
    SequenceGap,
)
from magnetar_core.invariants import BrokenInvariant
from magnetar_core.requests import Request
from magnetar_core.transport.columns.kinds import Row
from magnetar_core.transport.spliced import Spliced
from magnetar_core.transport.transport import LinkClosed

# What the envelope and a frame may add to a command.
FRAME_OVERHEAD_BYTES = 1024
# Answers that do not say whether the command had an effect.
EFFECT_UNKNOWN = (InternalError, OutcomeUnknown)


class Item(Generic[AnswerT]):
    """A command on its way. Subclasses say what is in it."""

    # Lanes and attempts of copies that may have had an effect, or may still arrive: their answers
    # did not say, or were waited for no longer, as after a broken link.
    doubtful: frozenset[tuple[int, int]] = frozenset()
    deadline_ms = 0.0

    def __init__(self) -> None:
        # Attributes of a class, as `doubtful`, are for rare cases: Python finds them slowly.
        # Items of a later lane wait until all of the earlier ones are confirmed.
        self.lane = 0
        # The server may park it for long.
        self.patient = False
        self.attempts = 0
        # Where its span belongs, if the client makes traces: see ClientTraces.request.
        self.context: object = None
        self.in_flight = False
        self.finished = False
        self.reply: AnswerT | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether a copy may have had an effect, or may still arrive, and no answer will tell."""
        return bool(self.doubtful)

    def renew(self) -> None:
        """Reset an item that left its stream, and is to be submitted again."""
        self.finished = False
        self.in_flight = False
        self.reply = None


ItemT = TypeVar("ItemT", bound=Item[Any])


class Repeated(Protocol):
    """A source of items that are not answered: a stream, or a single request."""

    def write_next(self) -> bool:
        """Write the next item, if it may leave now; return whether it is written or answered."""
        ...

    def lose_link(self) -> None:
        """Note that nothing is written: answers under way may still come."""
        ...

    def expire(self, now_ms: float) -> None:
        """Refuse items whose deadline has passed."""
        ...

    def fail(self, error: MagnetarError) -> None:
        """Refuse all items: they cannot be sent again, or a callback has died."""
        ...


class Links(Protocol):
    """The links to the server of a shard: see ConnectionBase."""

    @property
    def title(self) -> str:
        """The name of the server in messages for people."""
        ...

    @property
    def live_session(self) -> LinkSession | None:
        """The present link; None without."""
        ...

    def when_connected(self, on_session: Callable[[LinkSession | MagnetarError], None]) -> int:
        """Call back with a link, or with the error that makes a link impossible."""
        ...

    def forget(self, number: int) -> None:
        """Cancel a call of `when_connected`."""
        ...


class Unanswered:
    """The items that a shard has not answered, and the link on which they are written."""

    def __init__(self, runtime: Runtime, connection: Links) -> None:
        """Nothing is sent yet.

        Args:
            connection: finds the shard's server, and opens a link to it.
        """
        self._runtime = runtime
        self.connection = connection
        # In the order in which they were submitted.
        self._unanswered: dict[Item[Any], Repeated] = {}
        self._session: LinkSession | None = None
        # The number of the call that waits for a link; None: none does.
        self._wait_number: int | None = None
        # One timer, for the earliest deadline.
        self._alarm: int | None = None
        self._alarm_at_ms = 0.0

    @property
    def title(self) -> str:
        """The name of the server in messages for people."""
        return self.connection.title

    @property
    def session(self) -> LinkSession | None:
        """The link to write on; None: everything will be written when there is one."""
        session = self._session
        if session is not None and not session.closed:
            return session
        self.lost()
        if self._session is None and self._wait_number is None:
            self._find_link()
        return self._session

    def add(self, item: Item[Any], stream: Repeated) -> None:
        """Watch over an item until it is removed."""
        self._unanswered[item] = stream
        if self._alarm is None or item.deadline_ms < self._alarm_at_ms:
            self._wait_until(item.deadline_ms)

    def remove(self, item: Item[Any]) -> None:
        """Forget an item that was answered or has failed."""
        del self._unanswered[item]
        if not self._unanswered and self._wait_number is not None:
            self.connection.forget(self._wait_number)
            self._wait_number = None

    def lost(self) -> None:
        """Write everything again if the link has broken."""
        if self._session is not None and self._session.closed:
            self.leave_link()

    def leave_link(self) -> None:
        """Write everything again on the shard's present link. Answers on the former one count."""
        if self._session is None:
            return
        self._session = None
        for stream in self._streams():
            stream.lose_link()
        if self._unanswered:
            self._find_link()

    def _find_link(self) -> None:
        # -1 while a callback that comes at once is under way.
        self._wait_number = -1
        number = self.connection.when_connected(self._on_link)
        if self._wait_number == -1:
            self._wait_number = number

    def _on_link(self, result: LinkSession | MagnetarError) -> None:
        self._wait_number = None
        if isinstance(result, MagnetarError):
            self._runtime.fail_each([stream.fail for stream in self._streams()], result)
            return
        self._session = result
        for stream in list(self._unanswered.values()):
            stream.write_next()

    def _streams(self) -> Iterable[Repeated]:
        return dict.fromkeys(self._unanswered.values())

    def _wait_until(self, at_ms: float) -> None:
        deadlines = self._runtime.deadlines
        if self._alarm is not None:
            deadlines.forget(self._alarm)
        wait_ms = max(0.0, at_ms - self._runtime.now_ms())
        self._alarm_at_ms = at_ms
        self._alarm = deadlines.call_later(self._died, wait_ms, self._on_alarm)

    def _on_alarm(self) -> None:
        """Refuse overdue items. Mostly there are none: the item of this alarm was answered."""
        self._alarm = None
        now_ms = self._runtime.now_ms()
        late = [stream for item, stream in self._unanswered.items() if item.deadline_ms <= now_ms]
        for stream in dict.fromkeys(late):
            stream.expire(now_ms)
        if self._unanswered and self._alarm is None:
            self._wait_until(min(item.deadline_ms for item in self._unanswered))

    def _died(self, error: MagnetarError) -> None:
        """Fail everything: it would never expire."""
        self._runtime.fail_each([stream.fail for stream in self._streams()], error)


class Stream(ABC, Generic[ItemT, AnswerT]):
    """The commands of a writer to a participant, in order; the first are written on the link.

    A subclass builds the commands, and is told what becomes of them.
    """

    def __init__(
        self, runtime: Runtime, unanswered: Unanswered, in_flight_max: int, is_open: bool
    ) -> None:
        """A stream without items.

        Args:
            unanswered: of the shard that the items go to.
            in_flight_max: how many items may be written and not answered.
            is_open: whether items may leave.
        """
        self._runtime = runtime
        self.unanswered = unanswered
        self._in_flight_max = in_flight_max
        self._is_open = is_open
        self._is_abandoned = False
        # How many items are written on the present link, or answered.
        self._written = 0
        # Made when something is refused for the first time.
        self._backoff: Backoff | None = None
        self._pause: asyncio.TimerHandle | None = None
        self.items: deque[ItemT] = deque()
        # Callers that wait until an item has left.
        self._drain_waiters: list[tuple[ItemT, asyncio.Future[None]]] = []

    @abstractmethod
    def build(self, item: ItemT) -> Spliced[Request[Any]] | Row:
        """Return the command of an item; called at each attempt."""

    @abstractmethod
    def confirmed(self, item: ItemT, reply: AnswerT) -> None:
        """Note that an item is confirmed; called in order, once per item."""

    @abstractmethod
    def refused(self, tail: list[ItemT], error: MagnetarError) -> None:
        """Note that this error took an item, and the unanswered items behind it, from here."""

    @abstractmethod
    def moved(self) -> None:
        """Note that the participant has moved: another server should be looked for."""

    def submit(self, item: ItemT, *, timeout_ms: float) -> None:
        """Append an item, which leaves as soon as the items before it allow."""
        if self._is_abandoned:
            raise BrokenInvariant("nothing is sent once all was given up")
        item.deadline_ms = self._runtime.now_ms() + timeout_ms
        if self._runtime.traces is not None:
            item.context = self._runtime.traces.current()
        self.items.append(item)
        self.unanswered.add(item, self)
        # Whatever lets earlier ones leave has done so.
        self.write_next()

    def resubmit(self, items: list[ItemT]) -> None:
        """Put back the items that `refused` was just called with, under a later lane."""
        for item in items:
            item.renew()
            item.attempts = 0
            item.doubtful = frozenset()
            self.items.append(item)
            self.unanswered.add(item, self)

    def open(self) -> None:
        """Let items leave."""
        self._is_open = True
        self._pump()

    def abandon(self, error: MagnetarError) -> None:
        """Refuse items that were not written; wait only for answers under way on this link.

        Source: PIP-31, Transaction#abort, step 1.
        """
        self._is_abandoned = True
        for at, item in enumerate(self.items):
            if not item.in_flight and item.reply is None:
                self._refuse_from(at, error)
                return

    def give_up(self, error: MagnetarError) -> None:
        """Refuse everything that is not confirmed, now."""
        self._is_abandoned = True
        if self.items:
            self._lose_from(0)
            self._refuse_from(0, error)

    @property
    def has_unanswered(self) -> bool:
        """Whether there are items that are neither confirmed nor refused."""
        return bool(self.items)

    async def drain(self) -> None:
        """Wait until the present items are confirmed or refused."""
        if self.items:
            future: asyncio.Future[None] = self._runtime.loop.create_future()
            self._drain_waiters.append((self.items[-1], future))
            await future

    # What Unanswered calls.

    def write_next(self) -> bool:
        """Write the next item, if it may leave now; return whether it is written or answered."""
        if not self._is_open or self._pause is not None or self._is_abandoned:
            return False
        # If this finds another link, it has written on it what may leave.
        session = self.unanswered.session
        items, at = self.items, self._written
        if session is None or at >= len(items):
            return False
        item = items[at]
        if at and (at >= self._in_flight_max or item.lane != items[0].lane):
            return False
        if item.reply is None:
            try:
                body = self.build(item)
                limit = session.frame_bytes_max
                if body.byte_count > limit - FRAME_OVERHEAD_BYTES:
                    raise MessageTooLarge(f"the server takes {limit} bytes a frame", limit=limit)
                item.attempts += 1
                item.in_flight = True
                session.request(
                    body,
                    partial(self._on_reply, item, item.attempts, item.lane),
                    patient=item.patient,
                    context=item.context,
                )
            except Exception as cause:
                error = failure_of(cause, f"to write to {session.title}")
                self._refuse_from(at, _in_doubt(item, error))
                return False
        self._written += 1
        return True

    def lose_link(self) -> None:
        """Note that nothing is written: answers under way may still come."""
        self._lose_from(0)
        if self._is_abandoned:
            self._refuse_from(0, OutcomeUnknown("given up while the link broke"))

    def expire(self, now_ms: float) -> None:
        """Refuse the first item whose deadline has passed, and all behind it."""
        for at, item in enumerate(self.items):
            if item.deadline_ms <= now_ms:
                error: MagnetarError
                if item.attempts:
                    error = OutcomeUnknown(
                        f"no answer from {self.unanswered.title} in time; it may have happened"
                    )
                else:
                    error = LogUnavailable(
                        f"it could not be sent to {self.unanswered.title} in time. No effect"
                    )
                self._lose_from(at)
                self._refuse_from(at, error)
                return

    def fail(self, error: MagnetarError) -> None:
        """Refuse unconfirmed items: they cannot be sent again, or a callback has died."""
        if self.items:
            self._lose_from(0)
            self._refuse_from(0, _in_doubt(self.items[0], error))

    def _pump(self) -> None:
        while self._written < len(self.items) and self.write_next():
            pass

    def _on_reply(self, item: ItemT, attempt: int, lane: int, result: Result[AnswerT]) -> None:
        if not isinstance(result, Exception):
            if not item.finished and item.lane == lane:
                item.reply = result
                item.in_flight = False
                if self._backoff is not None:
                    self._backoff.reset()
                self._pop_confirmed()
            return
        if isinstance(result, EFFECT_UNKNOWN):
            item.doubtful |= {(lane, attempt)}
        elif isinstance(result, MagnetarError):
            # This copy has no effect, even if the item has left.
            item.doubtful -= {(lane, attempt)}
        if item.finished or item.lane != lane or not item.in_flight or attempt != item.attempts:
            return
        if isinstance(result, LinkClosed):
            self.unanswered.lost()
        else:
            self._on_error(item, result)

    def _on_error(self, item: ItemT, error: MagnetarError) -> None:
        at = self.items.index(item)
        lacks_earlier_ones = isinstance(error, SequenceGap) and at > 0
        if (error.retriable or lacks_earlier_ones) and not self._is_abandoned:
            if error.kind is ErrorKind.LOOK_UP:
                self.moved()
            # What is behind it is still under way, and the link may break before the answers.
            item.in_flight = False
            self._lose_from(0 if lacks_earlier_ones else at)
            if self._pause is None:
                self._backoff = self._backoff or self._runtime.backoff()
                self._pause = self._runtime.call_later(
                    self.fail, self._backoff.next_ms(), self._resume
                )
        else:
            self._refuse_from(at, error)

    def _resume(self) -> None:
        self._pause = None
        self._pump()

    def _lose_from(self, at: int) -> None:
        """Note that this item and all behind it have to be written again, if they are.

        Copies that were not answered may still arrive.
        """
        for number in range(at, self._written):
            item = self.items[number]
            if item.in_flight:
                item.doubtful |= {(item.lane, item.attempts)}
                item.in_flight = False
        self._written = min(self._written, at)

    def _pop_confirmed(self) -> None:
        items = self.items
        while items and (reply := items[0].reply) is not None:
            item = items.popleft()
            item.finished = True
            if self._written:
                self._written -= 1
            self.unanswered.remove(item)
            # Whatever fails here, those that drain are told.
            self._runtime.guarded(self.fail, self.confirmed, item, reply)
        if self._drain_waiters:
            self._wake_drained()
        if items:
            self._pump()

    def _refuse_from(self, at: int, error: MagnetarError) -> None:
        """Let an item and all items behind it leave because of an error.

        Those that are answered already are confirmed: they only waited for the item.
        """
        tail: list[ItemT] = []
        while len(self.items) > at:
            item = self.items.pop()
            item.finished = True
            self.unanswered.remove(item)
            tail.append(item)
        tail.reverse()
        self._written = min(self._written, at)
        for item in tail:
            if item.reply is not None:
                self._runtime.guarded(self._runtime.fail, self.confirmed, item, item.reply)
        tail = [item for item in tail if item.reply is None]
        self._runtime.guarded(self._runtime.fail, self.refused, tail, error)
        self._wake_drained()
        self._pump()

    def _wake_drained(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for item, future in waiters:
            if not item.finished:
                self._drain_waiters.append((item, future))
            elif not future.done():
                future.set_result(None)


def _in_doubt(item: Item[Any], error: MagnetarError) -> MagnetarError:
    """Return the error of an item that this error keeps from being sent again.

    The error says that nothing happened, which holds for this attempt only.
    """
    if not item.attempts:
        return error
    doubt = OutcomeUnknown(f"it may have happened, and cannot be sent again to know: {error}")
    doubt.__cause__ = error
    return doubt


def copy_error(error: MagnetarError) -> MagnetarError:
    """Copy an error for another future: an exception raised twice mixes its tracebacks."""
    copy = type(error)(str(error))
    copy.details = error.details
    copy.__cause__ = error.__cause__
    return copy
