"""Rows and columns of any kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_core.ids import TxnID
from magnetar_core.transport.spliced import Body, field_start
from magnetar_core.wire.common_pb2 import TxnId

# The most rows of a message: so many commands are handled in a turn of the event loop.
ROWS_MAX: Final = 64
# Names and TxnIDs whose bytes are kept.
KEPT_MAX: Final = 1_000

ValueT = TypeVar("ValueT")
MessageT = TypeVar("MessageT", bound=Message)
RowT = TypeVar("RowT", bound=tuple[Any, ...])
# A TxnID as a plain tuple, which equals it; or offsets from first to last.
Pair = tuple[int, int]
# In columns, in place of a TxnID: there is none. Incarnations begin with 1.
NO_TXN: Final = (0, 0)


class Rows(NamedTuple):
    """Rows of a kind, with what the envelope of each would have beside it.

    Attributes:
        traceparents: empty: none has one.
    """

    request_ids: Sequence[int]
    traceparents: Sequence[bytes]
    rows: Sequence[Any]


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
    """The form of a kind of answers in columns, as Columns is that of other kinds.

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


class Columns(NamedTuple):
    """The form of a kind in columns: its names, its classes, and how it is written and read.

    Attributes:
        name: the field in the envelope of such a command or answer alone. Handlers, rules and
            metrics know it by this name.
        field: the field of the columns.
        row: the class of the rows, with `to_wire` and `from_wire` for one alone.
        single: the class of the message for one alone.
        message: the class of the columns.
        pack: returns the columns of rows.
        unpack: returns the rows of columns; raises DecodeError.
        rows_min: fewer rows cost both ends less as a message each.
        answers: the form of the answers to all commands of a message but some; None: each answer
            names its command.
    """

    name: str
    field: str
    row: type[Any]
    single: type[Message]
    message: type[Message]
    pack: Callable[[Rows], Body]
    unpack: Callable[[Any], Rows]
    rows_min: int
    answers: AnswerColumns | None = None


def made(
    kind: type[RowT],
    request_ids: Sequence[int],
    traceparents: Sequence[bytes],
    columns: Iterable[Iterable[Any]],
) -> Rows:
    """Return the rows of columns, which have a value for each request id.

    Raises:
        DecodeError: there are too many rows, or a column has another number of values.
    """
    if len(request_ids) > ROWS_MAX:
        raise DecodeError(f"{len(request_ids)} rows exceed {ROWS_MAX}")
    # Without the constructor of a NamedTuple, which is a Python function.
    rows = list(map(partial(tuple.__new__, kind), zipped(*columns)))
    if len(rows) != len(request_ids) or len(traceparents) not in (0, len(rows)):
        raise DecodeError("columns have different lengths")
    return Rows(request_ids, traceparents, rows)


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


def zipped(*columns: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return columns as plain tuples.

    Raises:
        DecodeError: the columns have different lengths.
    """
    try:
        return list(zip(*columns, strict=True))
    except ValueError:
        raise DecodeError("columns have different lengths") from None


def filled(values: Sequence[ValueT], absent: ValueT, count: int) -> Iterable[ValueT]:
    """Return a column; an empty one stands for `count` times `absent`."""
    return values or repeat(absent, count)


def unless_all(absent: ValueT, values: Sequence[ValueT]) -> Sequence[ValueT]:
    """Return a column to be written: an empty one if it has this value only."""
    return () if values.count(absent) == len(values) else values


def named(table: Sequence[ValueT], indexes: Iterable[int]) -> Sequence[ValueT]:
    """Return a column of names.

    Raises:
        DecodeError: there is no such name.
    """
    try:
        return [table[index] for index in indexes]
    except IndexError:
        raise DecodeError("a name is not in its table") from None


def pairs_of(most_bits: Sequence[int], least_bits: Sequence[int]) -> Sequence[Pair]:
    """Return a column of pairs.

    Raises:
        DecodeError: the columns have different lengths.
    """
    return zipped(most_bits, least_bits)


def txn_ids_of(
    most_bits: Sequence[int], least_bits: Sequence[int], count: int
) -> Sequence[TxnID | None]:
    """Return a column of TxnIDs; NO_TXN, and empty columns, stand for none.

    Raises:
        DecodeError: the columns have different lengths.
    """
    pairs = zipped(filled(most_bits, 0, count), filled(least_bits, 0, count))
    return [tuple.__new__(TxnID, one) if one != NO_TXN else None for one in pairs]


def halves_of(pairs: Sequence[Pair]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the two columns of pairs."""
    most_bits, least_bits = zip(*pairs, strict=True) if pairs else ((), ())
    return most_bits, least_bits


def divided(every: Sequence[ValueT], counts: Sequence[int]) -> Sequence[Sequence[ValueT]]:
    """Return a column of several values for each row, of which `counts` says how many.

    Raises:
        DecodeError: there are more values, or fewer.
    """
    if sum(counts) != len(every):
        raise DecodeError("there are other numbers of values than their counts say")
    return [every[start:end] for start, end in pairwise(accumulate(counts, initial=0))]


def joined(lists: Iterable[Sequence[ValueT]]) -> Sequence[ValueT]:
    """Return the values of several lists in a row."""
    return list(chain.from_iterable(lists))


def txn_field(kind: type[Message], field: str, pair: Pair) -> bytes:
    """Return the bytes of a command of which only this field is set, to a TxnID."""
    name = _txn(pair)
    return field_start(kind, field, len(name)) + name  # type: ignore[arg-type]


@lru_cache(maxsize=KEPT_MAX)
def _txn(pair: Pair) -> bytes:
    """Several commands name the same transactions, and protobuf's objects cost more than these."""
    return TxnId(most_bits=pair[0], least_bits=pair[1]).SerializeToString()


# What few rows have: a table, and the number of each row's value in it.


def numbers_of(values: Sequence[Message | None]) -> Sequence[int]:
    """Return the column of numbers; empty: no row has a value."""
    count = 0
    numbers: list[int] = []
    for one in values:
        count += one is not None
        numbers.append(0 if one is None else count)
    return numbers if count else ()


def numbered(table: Sequence[MessageT], numbers: Sequence[int]) -> Sequence[MessageT | None]:
    """Return the value of each row, from the table and the column of numbers.

    Raises:
        DecodeError: a number has no value.
    """
    return named([None, *table], numbers)
