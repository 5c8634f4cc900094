"""Faults that a test asks for: which of the commands that come they strike, and how often.

Any thread may ask for one; the servers' thread asks whether one strikes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum, auto

from magnetar.testing.commands import CommandName, field_of
from magnetar_core.errors import InvalidArgument, MagnetarError

# A test that waits for longer has been forgotten.
PATIENCE_S = 10.0


class Kind(Enum):
    """Kinds of faults: what becomes of a command."""

    LOSE_REQUEST = auto()
    LOSE_ANSWER = auto()
    REFUSE = auto()
    HOLD = auto()


class Fault:
    """A fault that a test has asked for: `server.lose_answer("EndTxn")`.

    Attributes:
        command: the name of the command.
        times: how often it strikes at most.
    """

    def __init__(
        self,
        kind: Kind,
        command: CommandName,
        times: int,
        error: MagnetarError | None = None,
        on_release: Callable[[Fault], None] = lambda _: None,
    ) -> None:
        self.command = command
        self.times = times
        self.kind = kind
        self.field = field_of(command)
        self.error = error
        self._on_release = on_release
        self._count = 0
        self._ended = False
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        state = "ended" if self._ended else f"{self._count} of {self.times}"
        return f"<{self.kind.name.lower()} {self.command}: {state}>"

    @property
    def count(self) -> int:
        """The number of commands that it has struck."""
        return self._count

    @property
    def is_over(self) -> bool:
        """Whether it strikes no other command."""
        return self._ended or self._count >= self.times

    def wait(self, count: int = 1, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it has struck so many commands, on a thread that runs no event loop.

        Raises:
            TimeoutError: too few came.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, timeout_s):
                raise TimeoutError(
                    f"{self.command} came {self._count} times within {timeout_s} s, and not {count}"
                )

    def release(self) -> None:
        """End it. Commands that it holds go on, in their order; repeating it is harmless."""
        with self._changed:
            ended, self._ended = self._ended, True
        if not ended:
            self._on_release(self)

    def strike(self) -> bool:
        """Return whether it strikes now, and count that."""
        with self._changed:
            if self.is_over:
                return False
            self._count += 1
            self._changed.notify_all()
            return True


class Faults:
    """All faults of a cluster."""

    def __init__(self) -> None:
        self._armed: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def arm(self, fault: Fault) -> None:
        """Let a fault strike from now on, after those that were armed before."""
        with self._lock:
            self._armed = (*(one for one in self._armed if not one.is_over), fault)

    def end(self) -> list[Fault]:
        """End all faults, and return those that hold commands."""
        with self._lock:
            armed, self._armed = self._armed, ()
        return list(armed)

    @property
    def are_armed(self) -> bool:
        """Whether any fault may strike."""
        return bool(self._armed)

    def striking(self, field: str | None) -> Fault | None:
        """Return the fault that strikes a command which has come; None: it is handled."""
        for fault in self._armed:
            if fault.field == field and fault.strike():
                return fault
        return None


def checked_times(times: object) -> int:
    """Return how often a fault strikes.

    Raises:
        InvalidArgument: it is not a positive number.
    """
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise InvalidArgument(f"times must be a whole number from 1, and not {times!r}")
    return times


def checked_error(error: object) -> MagnetarError:
    """Return the error that a fault answers with.

    Raises:
        InvalidArgument: it is not an error that a server sends.
    """
    if isinstance(error, type) and issubclass(error, MagnetarError):
        error = error("a test has asked for this error")
    if not isinstance(error, MagnetarError):
        raise InvalidArgument(f"give an error of magnetar.errors, and not {error!r}")
    return error
