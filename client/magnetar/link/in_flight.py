"""Commands that must reach a partition in order, with several under way at once.

Batches and the acks of transactions are numbered, and their server refuses a number before its
predecessor. So when a broken link or a temporary refusal interrupts the order, everything from the
first unconfirmed item on is sent again, in order. The server recognises repeats.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from magnetar.errors import failure_of
from magnetar.link.connection_base import ConnectionBase
from magnetar.link.runtime import Runtime
from magnetar.link.session import LinkSession, ResponseT, Result
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
from magnetar_core.transport.spliced import Spliced, byte_count_of
from magnetar_core.transport.transport import LinkClosed

# What the envelope and a frame may add to a command.
FRAME_OVERHEAD_BYTES = 1024
# Answers that do not say whether the command had an effect.
EFFECT_UNKNOWN = (InternalError, OutcomeUnknown)


class Item(Generic[ResponseT]):
    """A command on its way. Subclasses say what is in it."""

    __slots__ = (
        "attempts",
        "context",
        "deadline_ms",
        "doubtful",
        "finished",
        "in_flight",
        "lane",
        "ordinal",
        "patient",
        "reply",
    )

    def __init__(self) -> None:
        self.ordinal = 0
        # Items of a later lane wait until all of the earlier ones are confirmed.
        self.lane = 0
        # The server may park it for long.
        self.patient = False
        self.attempts = 0
        # Where its span belongs, if the client makes traces: see ClientTraces.request.
        self.context: object = None
        # Lanes and attempts of copies that may have had an effect, or may still arrive: their
        # answers did not say, or were waited for no longer, as after a broken link.
        self.doubtful: frozenset[tuple[int, int]] = frozenset()
        self.in_flight = False
        self.finished = False
        self.reply: ResponseT | None = None
        self.deadline_ms = 0.0

    @property
    def in_doubt(self) -> bool:
        """Whether a copy may have had an effect, or may still arrive, and no answer will tell."""
        return bool(self.doubtful)

    def renew(self) -> None:
        """Reset an item that left the queue, and is to be submitted again."""
        self.finished = False
        self.in_flight = False
        self.reply = None


ItemT = TypeVar("ItemT", bound=Item[Any])


class ItemOwner(Protocol[ItemT, ResponseT]):
    """The owner of items."""

    def connection(self) -> ConnectionBase:
        """Return the connection to the server that has the partition now."""
        ...

    def build(self, item: ItemT) -> Request[ResponseT] | Spliced:
        """Return the command of an item; called at each attempt."""
        ...

    def confirmed(self, item: ItemT, reply: ResponseT) -> None:
        """Note that an item is confirmed; called in order, once per item."""
        ...

    def refused(self, tail: list[ItemT], error: MagnetarError) -> None:
        """Note that this error took an item, and the unanswered items behind it, from the queue."""
        ...

    def moved(self) -> None:
        """Note that the partition has moved; the next connection() should find it."""
        ...


class InFlightCommands(Generic[ItemT, ResponseT]):
    """An ordered queue of unconfirmed items; its beginning is written on the present link."""

    __slots__ = (
        "_abandoned",
        "_backoff",
        "_deadline",
        "_drain_waiters",
        "_gate_open",
        "_in_flight_max",
        "_items",
        "_ordinal",
        "_owner",
        "_pause",
        "_runtime",
        "_session",
        "_wait_number",
        "_waits_on",
        "_written",
    )

    def __init__(
        self,
        runtime: Runtime,
        owner: ItemOwner[ItemT, ResponseT],
        *,
        in_flight_max: int,
        open_gate: bool = True,
    ) -> None:
        """An empty queue.

        Args:
            open_gate: whether items may leave from the start.
        """
        self._runtime = runtime
        self._owner = owner
        self._in_flight_max = in_flight_max
        self._gate_open = open_gate
        self._abandoned = False
        self._items: deque[ItemT] = deque()
        self._written = 0
        self._ordinal = 0
        self._session: LinkSession | None = None
        self._wait_number: int | None = None
        self._waits_on: ConnectionBase | None = None
        # Made when something is refused for the first time.
        self._backoff: Backoff | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._deadline: int | None = None
        self._drain_waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Iterable[ItemT]:
        """The items in order."""
        return self._items

    def submit(self, item: ItemT, *, timeout_ms: float) -> None:
        """Append an item, which leaves as soon as the items before it allow."""
        if self._abandoned:
            raise BrokenInvariant("nothing is sent once all was given up")
        self._ordinal += 1
        item.ordinal = self._ordinal
        item.deadline_ms = self._runtime.now_ms() + timeout_ms
        if self._runtime.traces is not None:
            item.context = self._runtime.traces.current()
        self._items.append(item)
        self._watch_deadline()
        self._pump()

    def resubmit(self, items: list[ItemT]) -> None:
        """Put back the items that `refused` was just called with, under a later lane."""
        for item in items:
            item.renew()
            item.attempts = 0
            item.doubtful = frozenset()
            self._items.append(item)

    def open(self) -> None:
        """Let items leave."""
        self._gate_open = True
        self._pump()

    def abandon(self, error: MagnetarError) -> None:
        """Refuse items that were not written; wait only for answers under way on this link.

        Source: PIP-31, Transaction#abort, step 1.
        """
        self._abandoned = True
        at = 0
        for item in self._items:
            if not item.in_flight and item.reply is None:
                break
            at += 1
        if at < len(self._items):
            self._refuse_from(at, error)

    def refuse_all(self, error: MagnetarError) -> None:
        """Refuse everything now."""
        self._abandoned = True
        if self._items:
            self._lose_flight()
            self._refuse_from(0, error)

    def retire(self) -> None:
        """Forget the owner, since nothing more comes, so that reference counts free both.

        Otherwise thousands of transactions a second would keep the garbage collector busy.
        """
        if not self._items:
            self._abandoned = True
            del self._owner

    async def drain(self) -> None:
        """Wait until the present items are confirmed or refused."""
        if self._items:
            future: asyncio.Future[None] = self._runtime.loop.create_future()
            self._drain_waiters.append((self._items[-1].ordinal, future))
            await future

    def _pump(self) -> None:
        if not self._gate_open or self._pause is not None or self._abandoned:
            return
        items = self._items
        while self._written < len(items) and self._written < self._in_flight_max:
            session = self._session
            if session is None or session.closed:
                session = self._find_session()
                if session is None:
                    return
            item = items[self._written]
            if item.lane != items[0].lane:
                return
            if item.reply is None:
                try:
                    self._write(session, item)
                except Exception as cause:
                    error = failure_of(cause, f"to write to {session.title}")
                    self._refuse_from(self._written, _in_doubt(item, error))
                    return
            self._written += 1

    def _write(self, session: LinkSession, item: ItemT) -> None:
        body = self._owner.build(item)
        byte_count = byte_count_of(body)
        limit = session.frame_bytes_max
        if byte_count > limit - FRAME_OVERHEAD_BYTES:
            raise MessageTooLarge(f"the server takes {limit} bytes a frame", limit=limit)
        item.attempts += 1
        item.in_flight = True
        session.request(
            body,
            partial(self._on_reply, session, item, item.attempts, item.lane),
            patient=item.patient,
            context=item.context,
            byte_count=byte_count,
        )

    def _find_session(self) -> LinkSession | None:
        """Begin on the present link, or else with the next one."""
        if self._wait_number is not None:
            return None
        connection = self._owner.connection()
        self._session = connection.live_session
        if self._session is not None:
            self._lose_flight()
            return self._session
        self._waits_on = connection
        # -1 while a callback that comes at once is under way.
        self._wait_number = -1
        number = connection.when_connected(self._on_session)
        if self._wait_number == -1:
            self._wait_number = number
        return None

    def _on_session(self, result: LinkSession | MagnetarError) -> None:
        self._wait_number = None
        if not self._items:
            return
        if isinstance(result, MagnetarError):
            self._refuse_from(0, _in_doubt(self._items[0], result))
            return
        self._session = result
        self._lose_flight()
        self._pump()

    def _on_reply(
        self,
        session: LinkSession,
        item: ItemT,
        attempt: int,
        lane: int,
        result: Result[ResponseT],
    ) -> None:
        if isinstance(result, EFFECT_UNKNOWN):
            item.doubtful |= {(lane, attempt)}
        elif isinstance(result, MagnetarError):
            # This copy has no effect, even if the item is no longer in the queue.
            item.doubtful -= {(lane, attempt)}
        if item.finished or item.lane != lane:
            return
        if isinstance(result, LinkClosed):
            if session is self._session:
                self._session = None
                self._lose_flight()
                if self._abandoned:
                    self._refuse_from(0, OutcomeUnknown("given up while the link broke"))
                else:
                    self._pump()
        elif not isinstance(result, MagnetarError):
            item.reply = result
            item.in_flight = False
            if self._backoff is not None:
                self._backoff.reset()
            self._pop_confirmed()
        elif item.in_flight and attempt == item.attempts:
            self._on_error(item, result)

    def _on_error(self, item: ItemT, error: MagnetarError) -> None:
        at = self._items.index(item)
        follows_a_failure = isinstance(error, SequenceGap) and at > 0
        if (error.retriable or follows_a_failure) and not self._abandoned:
            if error.kind is ErrorKind.LOOK_UP:
                self._owner.moved()
                self._session = None
            # What is behind it is still under way, and the link may break before the answers.
            item.in_flight = False
            self._lose_flight()
            if self._pause is None:
                self._backoff = self._backoff or self._runtime.backoff()
                self._pause = self._runtime.call_later(
                    self._fail, self._backoff.next_ms(), self._resume
                )
        else:
            self._refuse_from(at, error)

    def _fail(self, error: MagnetarError) -> None:
        """Refuse unconfirmed items, since a callback of this queue has died."""
        if self._items:
            self._lose_flight()
            self._refuse_from(0, _in_doubt(self._items[0], error))

    def _resume(self) -> None:
        self._pause = None
        self._pump()

    def _lose_flight(self) -> None:
        """Note that all that is unconfirmed has to be written again, if anything is.

        Copies that were not answered may still arrive.
        """
        for item in islice(self._items, self._written):
            if item.in_flight and item.reply is None:
                item.doubtful |= {(item.lane, item.attempts)}
            item.in_flight = False
        self._written = 0

    def _pop_confirmed(self) -> None:
        items = self._items
        while items and (reply := items[0].reply) is not None:
            item = items.popleft()
            item.finished = True
            self._written = max(0, self._written - 1)
            # Whatever fails here, those that drain are told.
            self._runtime.guarded(self._fail, self._owner.confirmed, item, reply)
        self._wake_drained()
        self._pump()

    def _refuse_from(self, at: int, error: MagnetarError) -> None:
        """Let an item and all items behind it leave the queue because of an error.

        Those that are answered already are confirmed: they only waited for the item.
        """
        tail: list[ItemT] = []
        while len(self._items) > at:
            item = self._items.pop()
            item.finished = True
            tail.append(item)
        tail.reverse()
        self._written = min(self._written, at)
        for item in tail:
            if item.reply is not None:
                self._runtime.guarded(self._runtime.fail, self._owner.confirmed, item, item.reply)
        tail = [item for item in tail if item.reply is None]
        self._runtime.guarded(self._runtime.fail, self._owner.refused, tail, error)
        self._wake_drained()
        self._pump()

    def _wake_drained(self) -> None:
        if self._drain_waiters:
            first = self._items[0].ordinal if self._items else None
            still: list[tuple[int, asyncio.Future[None]]] = []
            for ordinal, future in self._drain_waiters:
                if first is not None and ordinal >= first:
                    still.append((ordinal, future))
                elif not future.done():
                    future.set_result(None)
            self._drain_waiters = still
        if not self._items:
            if self._wait_number is not None and self._waits_on is not None:
                self._waits_on.forget(self._wait_number)
                self._wait_number = None
            if self._deadline is not None:
                self._runtime.deadlines.forget(self._deadline)
                self._deadline = None

    def _watch_deadline(self) -> None:
        if self._deadline is None and self._items:
            wait_ms = max(0.0, self._items[0].deadline_ms - self._runtime.now_ms())
            self._deadline = self._runtime.deadlines.call_later(
                self._fail, wait_ms, self._on_deadline
            )

    def _on_deadline(self) -> None:
        self._deadline = None
        if self._items and self._items[0].deadline_ms <= self._runtime.now_ms():
            error: MagnetarError
            title = self._owner.connection().title
            if self._items[0].attempts:
                error = OutcomeUnknown(f"no answer from {title} in time; it may have happened")
            else:
                error = LogUnavailable(f"it could not be sent to {title} in time. No effect")
            self._lose_flight()
            self._refuse_from(0, error)
        self._watch_deadline()


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
