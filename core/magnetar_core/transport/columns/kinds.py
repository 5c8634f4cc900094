"""The kinds of commands and answers that have columns. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from magnetar_core.requests import RESPONSE_FIELDS
from magnetar_core.transport.columns.acks import ACKED, ACKS, Ack, Acked
from magnetar_core.transport.columns.column import Columns
from magnetar_core.transport.columns.ends import (
    ENDED,
    ENDS,
    EndedOnParticipants,
    EndOnParticipants,
)
from magnetar_core.transport.columns.sends import SENDS, SENT, Send, Sent

# A command or an answer as a plain tuple.
Row: TypeAlias = Send | Sent | Ack | Acked | EndOnParticipants | EndedOnParticipants

_KINDS: Final = (SENDS, SENT, ACKS, ACKED, ENDS, ENDED)

# Keys are names of columns in the envelope.
COLUMNS: Final[dict[str | None, Columns]] = {one.field: one for one in _KINDS}
# Keys are classes of rows.
COLUMNS_OF: Final[dict[type, Columns]] = {one.row: one for one in _KINDS}
# The field in the envelope of the answer to a command alone. Keys are classes of messages and rows.
ANSWER_FIELDS: Final[dict[type, str]] = {
    **RESPONSE_FIELDS,
    **{one.row: RESPONSE_FIELDS[one.single] for one in _KINDS if one.single in RESPONSE_FIELDS},
}
_COLUMNS_OF_SINGLE: Final[dict[type, Columns]] = {one.single: one for one in _KINDS}


def as_row(body: Any) -> Any:
    """Return the row of a message whose kind has columns; other messages as they are."""
    columns = _COLUMNS_OF_SINGLE.get(type(body))
    return body if columns is None else columns.row.from_wire(body)


def as_message(body: Any) -> Any:
    """Return the message of a row; messages as they are."""
    return body.to_wire() if type(body) in COLUMNS_OF else body
