"""Begins transactions: at once, or when a lazy transaction needs its TxnID."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from magnetar.errors import ClientClosed
from magnetar.link.runtime import Runtime
from magnetar.transactions.begun import Begun
from magnetar.transactions.participants import Participants
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import Participant
from magnetar_core.transport.waiters import settle, wake

# Told the answer, or why there is none.
OnBegun = Callable[[Begun | MagnetarError], None]
# Asks for a transaction that already has these participants. Returns a function that ends that.
Begin = Callable[[Sequence[Participant], OnBegun], Callable[[], object]]


class Beginning:
    """The beginning of a transaction.

    Attributes:
        begun: the coordinator's answer; None before.
    """

    def __init__(
        self,
        runtime: Runtime,
        begin_with: Begin,
        participants: Participants,
        *,
        on_begun: Callable[[Begun], None],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """The beginning of a transaction that no coordinator knows yet.

        Args:
            on_begun: called before the participants' commands may leave.
            on_failed: a lazy one could not begin, or the coordinator does not take a participant.
        """
        self.begun: Begun | None = None
        self._runtime = runtime
        self._begin_with = begin_with
        self._participants = participants
        self._on_begun = on_begun
        self._on_failed = on_failed
        # Whether a lazy one has to begin, and whether it has begun since, or failed.
        self._is_asked_for = False
        self._is_settled = False
        # Callers that wait for that.
        self._waiters: list[asyncio.Future[None]] = []
        self._closed: ClientClosed | None = None

    def __str__(self) -> str:
        """The transaction's name in messages for people."""
        return "a lazy transaction" if self.begun is None else str(self.begun.txn_id)

    @property
    def was_asked_for(self) -> bool:
        """Whether a coordinator knows the transaction, or may know it soon."""
        return self.begun is not None or self._is_asked_for

    async def now(self) -> None:
        """Ask a coordinator for the transaction now.

        Raises:
            MagnetarError: the coordinator refused it.
        """
        self._runtime.require_loop()
        answer: asyncio.Future[Begun] = self._runtime.loop.create_future()
        ask_no_more = self._begin_with((), partial(settle, answer))
        try:
            self._note(await answer, ())
        finally:
            ask_no_more()

    def soon(self) -> None:
        """Begin a lazy transaction at the end of the event loop's turn, with its participants."""
        if self.begun is None and not self._is_asked_for:
            self._is_asked_for = True
            self._runtime.call_soon(self._fail, self._begin)

    async def ensure(self) -> None:
        """Begin the transaction if needed; wait until it has begun, or failed.

        Raises:
            ClientClosed: the client was closed meanwhile.
        """
        if self.begun is None:
            self.soon()
            await self.settled()

    async def settled(self) -> None:
        """Wait until a lazy transaction that has to begin has begun, or failed.

        Raises:
            ClientClosed: the client was closed meanwhile.
        """
        if self._is_asked_for and not self._is_settled:
            waiter: asyncio.Future[None] = self._runtime.loop.create_future()
            self._waiters.append(waiter)
            await waiter
        if self._closed is not None:
            raise self._closed

    def _begin(self) -> None:
        taking_part = self._participants.names
        self._begin_with(taking_part, partial(self._on_answer, taking_part))

    def _on_answer(self, taking_part: Sequence[Participant], answer: Begun | MagnetarError) -> None:
        if isinstance(answer, MagnetarError):
            self._fail(answer)
        else:
            self._note(answer, taking_part)
            self._settle()

    def _fail(self, error: MagnetarError) -> None:
        if isinstance(error, ClientClosed):
            self._closed = error
        self._settle()
        self._on_failed(error)

    def _settle(self) -> None:
        self._is_settled = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            wake(waiter)

    def _note(self, begun: Begun, taking_part: Sequence[Participant]) -> None:
        self.begun = begun
        self._on_begun(begun)
        self._participants.begin(begun, taking_part, self._on_failed)
        # It has begun, so it cannot fail to begin. They refer to the transaction, which refers to
        # this: without them, it goes when its caller lets go of it.
        del self._on_begun, self._on_failed
