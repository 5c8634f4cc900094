"""What calls of a client have said, and whether what is stored agrees with that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

from tests.virtual_time import time_passes
from tests.waiting import turns

from magnetar import OutcomeUnknown, Transaction
from magnetar_core.errors import MagnetarError

# Messages for transactions to acknowledge.
INPUT_COUNT = 40


class Call:
    """A call of the client in a task of its own."""

    def __init__(self, name: str, call: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.create_task(call, name=name)
        # check() looks at what it raises.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._was_cancelled = False

    def __repr__(self) -> str:
        return repr(self.task)

    def cancel(self) -> None:
        self._was_cancelled = True
        self.task.cancel()

    @property
    def succeeded(self) -> bool:
        """Whether it has ended without an error."""
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None

    @property
    def error(self) -> BaseException | None:
        """Why it has failed; None: it has not."""
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()

    def check(self) -> None:
        """It has ended in a way that its caller can understand."""
        assert self.task.done(), f"a call never ends: {self}"
        if self.task.cancelled():
            assert self._was_cancelled, f"nobody has cancelled it: {self}"
        elif (error := self.task.exception()) is not None:
            assert isinstance(error, MagnetarError), f"not an error for users: {self}"


class Calls:
    """The calls of a play, of which some are cancelled at a random moment."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cancel_rate = random.choice((0.1, 0.3, 0.6))
        self._all: list[Call] = []

    def begin(self, name: str, call: Coroutine[Any, Any, Any]) -> Call:
        """Begin a call, and do not wait for it."""
        begun = Call(name, call)
        self._all.append(begun)
        return begun

    async def end(self, call: Call) -> Call:
        """Wait for a call; perhaps it is cancelled."""
        if self._random.random() < self._cancel_rate:
            await turns(self._random.choice((0, 1, 2, 3, 5, 8)))
            if self._random.random() < 0.5:
                await time_passes(self._random.choice((0.001, 0.01, 0.2, 1.2)))
            call.cancel()
        await asyncio.wait([call.task])
        return call

    async def make(self, name: str, call: Coroutine[Any, Any, Any]) -> Call:
        """Begin a call and wait for it."""
        return await self.end(self.begin(name, call))

    @property
    def unfinished(self) -> str:
        """The names of the calls that have not ended."""
        return ", ".join(call.task.get_name() for call in self._all if not call.task.done())

    def check(self) -> None:
        """All calls have ended, and well."""
        for call in self._all:
            call.check()


class Work:
    """What a worker did in a transaction.

    Attributes:
        sends: the calls by message.
        acks: offsets of inputs, with the calls that acknowledged them.
        is_committed: what the calls said of the outcome; None: nobody knows.
    """

    def __init__(self, txn: Transaction) -> None:
        self.txn = txn
        self.sends: dict[bytes, Call] = {}
        self.acks: list[tuple[int, Call]] = []
        self.is_committed: bool | None = None

    def check(self, stored: Counter[bytes]) -> None:
        """All of it is stored, or nothing, as it was told."""
        sent = {value for value, call in self.sends.items() if call.succeeded}
        kept = {value for value in sent if stored[value]}
        if self.is_committed is None:
            assert kept in (set(), sent), f"{self.txn} is torn: {kept} of {sent}"
        elif self.is_committed:
            assert kept == sent, f"{self.txn} was committed, without {sent - kept}"
        else:
            lost = {value for value in self.sends if stored[value]}
            assert not lost, f"{self.txn} was aborted, and {lost} are stored"


class Ledger:
    """What the calls of all workers have said."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.plain_sends: dict[bytes, Call] = {}
        self._count = 0

    def new_message(self) -> bytes:
        """Return a value that no other message has."""
        self._count += 1
        return b"message %d" % self._count

    def check_messages(self, stored: Counter[bytes]) -> None:
        """What is stored agrees with what the calls said."""
        assert all(count == 1 for count in stored.values()), f"more than once: {stored}"
        for value, call in self.plain_sends.items():
            error = call.error
            if error is None:
                assert stored[value], f"{value!r} is lost"
            elif not isinstance(error, asyncio.CancelledError | OutcomeUnknown):
                assert not stored[value], f"{value!r} was refused, and is stored: {error!r}"
        for work in self.works:
            work.check(stored)

    def check_inputs(self, acknowledged: set[int], came_again: list[int]) -> None:
        """Each input has counted in one transaction, or comes again for another."""
        assert len(set(came_again)) == len(came_again), f"some came twice: {came_again}"
        everything = set(range(INPUT_COUNT))
        assert acknowledged.isdisjoint(came_again), f"again: {acknowledged & set(came_again)}"
        lost = everything - acknowledged - set(came_again)
        assert not lost, f"they never come again: {lost}"
        tried = {
            offset for one in self.works if one.is_committed is not False for offset, _ in one.acks
        }
        assert acknowledged <= tried, f"acknowledged by nobody: {acknowledged - tried}"
        for work in self.works:
            if work.is_committed:
                done = {offset for offset, call in work.acks if call.succeeded}
                assert done <= acknowledged, f"{work.txn} was committed without its acks"
