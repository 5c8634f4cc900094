"""What may be called on a transactional producer, and when. Pure."""

from __future__ import annotations

from enum import Enum

from magnetar_core.errors import InvalidTxnState


class ProducerState(Enum):
    """By name what may be called. init_transactions() may be, in all but the last."""

    NEW = "init, init_transactions"
    READY = "begin, init"
    OPEN = "send, acknowledge, send_offsets_to_transaction, prepare, commit, abort"
    PREPARED = "commit, abort, complete"
    FENCED = "init_transactions: another instance has taken over"
    CLOSED = "nothing: it is closed"

    def require(self, call: str, name: str, *allowed: ProducerState) -> None:
        """Raises: InvalidTxnState, unless this state is one of those allowed."""
        if self not in allowed:
            raise InvalidTxnState(
                f"{call}() is not possible while {name} is {self.name}; allowed: {self.value}"
            )
