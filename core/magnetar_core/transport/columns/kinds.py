"""The kinds of commands and answers that have columns. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from magnetar_core.requests import RESPONSE_FIELDS
from magnetar_core.transport.columns.acks import ACKED, ACKS, Ack, Acked
from magnetar_core.transport.columns.column import AnswerColumns, Columns
from magnetar_core.transport.columns.end_txns import END_TXNS, TXNS_ENDED, Ended, EndTxn
from magnetar_core.transport.columns.ends import (
    ENDED,
    ENDS,
    EndedOnParticipants,
    EndOnParticipants,
)
from magnetar_core.transport.columns.new_txns import NEW_TXNS, OPENED, NewTxn, Opened
from magnetar_core.transport.columns.sends import SENDS, SENT, Send, Sent

# A command or an answer as a plain tuple.
Row: TypeAlias = (
    Send
    | Sent
    | Ack
    | Acked
    | EndOnParticipants
    | EndedOnParticipants
    | NewTxn
    | Opened
    | EndTxn
    | Ended
)

_KINDS: Final = (SENDS, SENT, ACKS, ACKED, ENDS, ENDED, NEW_TXNS, END_TXNS)
_ANSWERS: Final = (OPENED, TXNS_ENDED)
_EVERY: Final[tuple[Columns | AnswerColumns, ...]] = (*_KINDS, *_ANSWERS)

# Keys are names of columns in the envelope.
COLUMNS: Final[dict[str | None, Columns]] = {one.field: one for one in _KINDS}
ANSWERS: Final[dict[str | None, AnswerColumns]] = {one.field: one for one in _ANSWERS}
# Keys are classes of rows that are gathered.
COLUMNS_OF: Final[dict[type, Columns]] = {one.row: one for one in _KINDS}
# Keys are classes of rows.
KIND_OF: Final[dict[type, Columns | AnswerColumns]] = {one.row: one for one in _EVERY}
# The field in the envelope of the answer to a command alone. Keys are classes of messages and rows.
ANSWER_FIELDS: Final[dict[type, str]] = {
    **RESPONSE_FIELDS,
    **{one.row: RESPONSE_FIELDS[one.single] for one in _KINDS if one.single in RESPONSE_FIELDS},
}
_KIND_OF_SINGLE: Final[dict[type, Columns | AnswerColumns]] = {one.single: one for one in _EVERY}


def as_row(body: Any) -> Any:
    """Return the row of a message whose kind has columns; other messages as they are."""
    kind = _KIND_OF_SINGLE.get(type(body))
    return body if kind is None else kind.row.from_wire(body)


def as_message(body: Any) -> Any:
    """Return the message of a row; messages as they are."""
    return body.to_wire() if type(body) in KIND_OF else body
