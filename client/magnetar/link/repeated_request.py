"""A request that is written again until there is an answer, or its time is up.

Other commands of the shard neither wait for it nor have to come before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol

from google.protobuf.message import Message

from magnetar.errors import failure_of
from magnetar.link.runtime import Runtime
from magnetar.link.session import ResponseT, Result
from magnetar.link.unanswered import Item, Unanswered
from magnetar_core.backoff import Backoff
from magnetar_core.error_kinds import ErrorKind
from magnetar_core.errors import LogUnavailable, MagnetarError, OutcomeUnknown
from magnetar_core.requests import Request
from magnetar_core.transport.columns.kinds import COLUMNS_OF, Row
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.transport.spliced import Body, Spliced, kind_of
from magnetar_core.transport.transport import LinkClosed, LinkRefused

# What request_soon() tells.
OnResult = Callable[[MagnetarError | ResponseT], None]

# Commands that only ask, or begin something that ends by itself or with its transaction: it is
# harmless if one arrived.
HARMLESS_BODIES = frozenset(
    body
    for body, field in FIELD_OF_BODY.items()
    if field in ("get_cluster_info", "lookup", "new_txn", "peek", "read")
    or field.startswith(("add_", "describe_", "list_"))
)


class AskedServer(Protocol):
    """The server of a connection, as a request needs it: see ConnectionBase."""

    runtime: Runtime
    unanswered: Unanswered

    @property
    def title(self) -> str:
        """The name of the server in messages for people."""
        ...

    @property
    def failure(self) -> LinkClosed | None:
        """Why there is no link; None: there is one, or no attempt has failed."""
        ...

    def moved(self) -> bool:
        """Note that another server is in charge; return whether asking again may reach it."""
        ...


class RepeatedRequest(Item[ResponseT], Generic[ResponseT]):
    """A request to the server of a connection."""

    # What kept the last attempt from succeeding, if the server has said so.
    _refusal: MagnetarError | None = None
    # Made when it is refused for the first time.
    _backoff: Backoff | None = None

    def __init__(
        self,
        connection: AskedServer,
        body: Request[ResponseT] | Spliced[Request[ResponseT]] | Row,
        on_result: OnResult[ResponseT],
        *,
        timeout_ms: float,
        patient: bool,
    ) -> None:
        """A request that leaves as soon as there is a link.

        Args:
            on_result: called once; in this call only if the client is closed, or refused for good.
            timeout_ms: how long to ask.
            patient: whether the server may keep it for a long time.
        """
        super().__init__()
        # Sent, and perhaps never answered.
        self._is_doubted = False
        self._pause: asyncio.TimerHandle | None = None
        self._connection = connection
        self._body = body
        self._on_result = on_result
        self._timeout_ms = timeout_ms
        self.patient = patient
        runtime = connection.runtime
        self.deadline_ms = runtime.now_ms() + timeout_ms
        if runtime.traces is not None:
            self.context = runtime.traces.current()
        connection.unanswered.add(self, self)
        self.write_next()

    def cancel(self) -> None:
        """Stop asking: no caller waits for the answer."""
        if not self.finished:
            self._leave()

    # What the connection's Unanswered calls.

    def write_next(self) -> bool:
        """Write the request, unless it is written or pauses."""
        if self.in_flight or self._pause is not None:
            return False
        session = self._connection.unanswered.session
        # If this has found another link, it is written there.
        if session is None or self.in_flight or self.finished:
            return False
        self.attempts += 1
        self.in_flight = True
        on_reply = partial(self._on_reply, self.attempts, self._is_doubted)
        try:
            session.request(self._body, on_reply, patient=self.patient, context=self.context)
        except Exception as cause:
            self._finish(failure_of(cause, f"to write to {session.title}"))
        return True

    def lose_link(self) -> None:
        """Note that it may have arrived, and has to be written again."""
        if self.in_flight:
            self.in_flight = False
            self._is_doubted = True
            self._refusal = None

    def expire(self, now_ms: float) -> None:
        """Give up, since the time is up."""
        if self.in_flight or self._is_doubted:
            self._finish(self._no_answer())
        elif self._refusal is not None:
            self._finish(self._refusal)
        else:
            failure = self._connection.failure
            kind = failure.kind if isinstance(failure, LinkRefused) else LogUnavailable
            error = kind(
                f"no link to {self._connection.title} within {self._timeout_ms:.0f} ms;"
                f" {_name(self._body)} was not sent{_because(failure)}"
            )
            error.__cause__ = failure
            self._finish(error)

    def fail(self, error: MagnetarError) -> None:
        """Give up: the server refuses this client, the client is closed, or a callback has died."""
        # A refusal by LogUnavailable may have had an effect.
        is_doubted = self.in_flight or self._is_doubted or isinstance(self._refusal, LogUnavailable)
        if is_doubted and _kind(self._body) not in HARMLESS_BODIES:
            doubt = OutcomeUnknown(
                f"{_name(self._body)} may have happened, and cannot be sent again to know: {error}"
            )
            doubt.__cause__ = error
            error = doubt
        self._finish(error)

    def _on_reply(self, attempt: int, was_doubted: bool, result: Result[ResponseT]) -> None:
        if self.finished:
            return
        if isinstance(result, LinkClosed):
            self._connection.unanswered.lost()
        elif not isinstance(result, MagnetarError):
            self._finish(result)
        elif self.in_flight and attempt == self.attempts:
            self.in_flight = False
            if self._may_repeat(result):
                self._is_doubted, self._refusal = was_doubted, result
                runtime = self._connection.runtime
                self._backoff = self._backoff or runtime.backoff()
                self._pause = runtime.call_later(self.fail, self._backoff.next_ms(), self._resume)
                runtime.pausing[self] = self.fail
            else:
                self._finish(result)

    def _may_repeat(self, error: MagnetarError) -> bool:
        return error.retriable and (error.kind is not ErrorKind.LOOK_UP or self._connection.moved())

    def _resume(self) -> None:
        self._pause = None
        self._connection.runtime.pausing.pop(self, None)
        self.write_next()

    def _finish(self, result: MagnetarError | ResponseT) -> None:
        if not self.finished:
            self._leave()
            self._connection.runtime.tell(self._on_result, result)

    def _leave(self) -> None:
        self.finished = True
        self._connection.unanswered.remove(self)
        if self._pause is not None:
            self._pause.cancel()
            self._connection.runtime.pausing.pop(self, None)

    def _no_answer(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"no answer to {_name(self._body)} from {self._connection.title} within"
            f" {self._timeout_ms:.0f} ms; it may have happened, ask again to"
            f" know{_because(self._connection.failure)}"
        )


def _kind(body: Body | Row) -> type[Message]:
    return COLUMNS_OF[type(body)].single if isinstance(body, Row) else kind_of(body)


def _name(body: Body | Row) -> str:
    return _kind(body).DESCRIPTOR.name


def _because(failure: LinkClosed | None) -> str:
    return "" if failure is None else f"; {failure}"
