"""Answers: they leave in order, each when all that it tells may be told.

A part that speaks for a partition becomes NOT_LEADER_OR_FOLLOWER if the shard may not speak when
the answer leaves. An answer that rests on a shard as a whole does not leave then: what it has for
that case does, or the connection ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from magnetar_core.history.events import Event
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.shards import Shard


@dataclass(slots=True, kw_only=True)
class Part:
    """Part of an answer that speaks for a partition.

    Attributes:
        shard: None: it says that this process does not have the partition.
        fields: of the message for the partition.
        confirms: the event of telling it; None: it has none.
        is_late: it tells of a plain append, and of nothing else.
    """

    shard: Shard | None
    fields: dict[str, Any]
    confirms: Event | None = None
    is_late: bool = False

    def withdraw(self, instead: dict[str, Any]) -> None:
        """Say only that this process does not have the partition."""
        self.fields.update(instead)
        self.confirms = None


@dataclass(slots=True, kw_only=True)
class Answer:
    """Answer to a request.

    Attributes:
        body: the message, made when it leaves.
        parts: the parts for partitions.
        withdrawn: the fields of a part whose shard may not speak.
        rests_on: shards without which none of it may leave.
        if_moved: the message that leaves then; None: the connection ends.
        codes: the codes besides those of the parts, for the metrics.
        is_silent: the request asks for no answer, but an error ends the connection.
        is_last: the connection ends with it.
        delay_ms: for how long the connection rests after it.
        reserved: bytes of the budget of answers that it holds until the client has taken it.
    """

    body: Callable[[], dict[str, Any]]
    parts: Sequence[Part] = ()
    withdrawn: dict[str, Any] = field(
        default_factory=lambda: {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    )
    rests_on: Iterable[Shard] = ()
    if_moved: Mapping[str, Any] | None = None
    codes: Iterable[int] = ()
    is_silent: bool = False
    is_last: bool = False
    delay_ms: int = 0
    reserved: int = 0

    def settle(self, ready: Callable[[], None]) -> None:
        """Call back when all that is told may be told; at once if nothing has to wait."""
        late: dict[Shard, bool] = {}
        for part in self.parts:
            if part.shard is not None:
                late[part.shard] = part.is_late and late.get(part.shard, True)
        for shard in self.rests_on:
            late[shard] = False
        left = len(late)
        if not left:
            ready()
            return

        def settled() -> None:
            nonlocal left
            left -= 1
            if not left:
                ready()

        for shard, is_late in late.items():
            shard.settle(settled, late=is_late)

    def leaving(self) -> dict[str, Any] | None:
        """Return the message that may leave now; None: none may.

        What follows must write it without giving others their turn.
        """
        if not all(shard.may_speak() for shard in self.rests_on):
            if self.if_moved is None:
                return None
            self.codes = (ErrorCode.NOT_COORDINATOR,)
            return dict(self.if_moved)
        for part in self.parts:
            if part.shard is not None and not part.shard.may_speak():
                part.withdraw(self.withdrawn)
            elif part.confirms is not None and part.shard is not None:
                part.shard.access.tell(part.confirms)
        return self.body()

    def first_error(self) -> ErrorCode:
        """Return the first code that is not NONE, or NONE."""
        codes = (*self.codes, *(part.fields.get("error_code", 0) for part in self.parts))
        return ErrorCode(next((code for code in codes if code), 0))
