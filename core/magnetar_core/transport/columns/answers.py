"""Answers to all commands of a message in columns, but for those that are left out. Pure.

There is one for each such message. It does not name what it answers: it says how many commands the
message had, and the places of those that are answered alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from magnetar_core.transport.columns.column import ROWS_MAX, zipped


class Answers(NamedTuple):
    """Answers to commands that came together.

    Attributes:
        first_request_id: the first of their request ids.
        asked_count: how many commands came together.
        left_out: the places of those that are answered alone, ascending.
        rows: the answers to the others, in their order.
    """

    first_request_id: int
    asked_count: int
    left_out: Sequence[int]
    rows: Sequence[Any]

    def places(self) -> list[int]:
        """Return the places of the commands that are answered."""
        left_out = dict.fromkeys(self.left_out)
        return [place for place in range(self.asked_count) if place not in left_out]


class AnswerColumns(NamedTuple):
    """The form of a kind of answers in columns, as column.Columns is that of other kinds.

    Attributes:
        name: the field in the envelope of such an answer alone.
        field: the field of the columns.
        row: the class of the rows, with `to_wire` and `from_wire` for one alone.
        single: the class of the message for one alone.
        message: the class of the columns.
        pack: returns the columns of answers.
        unpack: returns the answers in columns; raises DecodeError.
    """

    name: str
    field: str
    row: type[Any]
    single: type[Message]
    message: type[Message]
    pack: Callable[[Answers], Message]
    unpack: Callable[[Any], Answers]


def answers_made(
    kind: type[Any],
    message: Any,
    columns: Iterable[Iterable[Any]],
) -> Answers:
    """Return the answers in columns.

    Raises:
        DecodeError: there are too many commands, places that no command has, or another number of
            answers.
    """
    count, left_out = message.count, message.left_out[:]
    if count > ROWS_MAX:
        raise DecodeError(f"{count} rows exceed {ROWS_MAX}")
    if any(one >= following for one, following in pairwise((*left_out, count))):
        raise DecodeError("what is left out is not in its order, or not there")
    rows = list(map(partial(tuple.__new__, kind), zipped(*columns)))
    if len(rows) != count - len(left_out):
        raise DecodeError("there are other numbers of answers than of commands")
    return Answers(message.first_request_id, count, left_out, rows)
