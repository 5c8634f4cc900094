"""Kinds of errors: the caller's next step, whichever error it is.

A program asks an error for its kind, instead of comparing many classes. There is a kind for each
different reaction of callers; the class and its message say what exactly went wrong.
Source: docs/design/0006-errors.md.
"""

from __future__ import annotations

from enum import Enum

from magnetar_core.wire import common_pb2 as pb


class ErrorKind(Enum):
    """Reaction to an error. The value describes the reaction for people."""

    RETRY = "Ask again, unchanged, after a pause."
    LOOK_UP = "Ask again, unchanged, after looking up who has it now."
    ASK_OUTCOME = "It may have happened: ask for the outcome, or repeat the same call to know."
    START_OVER = (
        "The transaction, member or session is over: drop it, begin a new one, and repeat its "
        "work there."
    )
    DONE = "It exists or is done already: continue with the next."
    FENCED = "A newer instance has taken over: stop this one, and do not ask again."
    FIX = "The call cannot succeed: correct the call or the configuration."
    LIMIT = "Finish or free something, or have the limit raised, then ask again."
    DATA_LOST = "Stored data is missing or damaged: stop, and let an administrator decide."
    BUG = "Magnetar has a fault: report it, with the servers' logs."

    @property
    def is_retriable(self) -> bool:
        """Whether a repeated call may succeed, while the failed call had no known effect."""
        return self in (ErrorKind.RETRY, ErrorKind.LOOK_UP)

    @property
    def may_pass(self) -> bool:
        """Whether the cause lies on the way to the server: time or another server may help."""
        return self.is_retriable or self is ErrorKind.ASK_OUTCOME

    def to_wire(self) -> pb.ServerError.Kind:
        """Return the number that the wire has for this kind."""
        return pb.ServerError.Kind.Value(self.name)  # type: ignore[return-value]


def kind_from_wire(kind: int) -> ErrorKind | None:
    """Return the kind that a server names; None if it names no kind that this version knows."""
    if kind == pb.ServerError.KIND_UNSPECIFIED or kind not in pb.ServerError.Kind.values():
        return None
    return ErrorKind[pb.ServerError.Kind.Name(kind)]
