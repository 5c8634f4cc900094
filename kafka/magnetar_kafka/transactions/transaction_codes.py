"""Codes of errors in answers about transactions: each client knows others, by the request. Pure.

After ID_UNMAPPED and ABORTABLE a client aborts, asks for a new epoch, and goes on; after a code of
a takeover it stops. How a client reacts to a code that its version does not have is not defined.
Source: Kafka's documentation, Error Codes; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.errors import (
    AuthorizationFailed,
    ConcurrentTransactions,
    InvalidArgument,
    InvalidTxnState,
    LogUnavailable,
    MagnetarError,
    OutcomeUnknown,
    ProducerFenced,
    TransactionalIdNotFound,
    TxnForgotten,
    TxnNotFound,
)
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes that a kind of request has for what others call differently.

    Attributes:
        fenced: another instance has taken the id over.
        ended: the transaction has ended, and not by its producer.
        away: the coordinator does not answer: ask again.
    """

    fenced: ErrorCode = ErrorCode.PRODUCER_FENCED
    ended: ErrorCode = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    away: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def of(self, error: Refused | MagnetarError) -> ErrorCode:
        """Return the code for an error."""
        if isinstance(error, ProducerFenced):
            return self.fenced
        if isinstance(error, InvalidTxnState):
            return self.ended if ended_otherwise(error) else ErrorCode.INVALID_TXN_STATE
        if isinstance(error, TxnNotFound | TxnForgotten):
            return self.ended
        if isinstance(error, TransactionalIdNotFound):
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if isinstance(error, ConcurrentTransactions):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if isinstance(error, LogUnavailable | OutcomeUnknown):
            return self.away
        if isinstance(error, AuthorizationFailed):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if isinstance(error, InvalidArgument) and "txn_timeout_ms_max" in error.details:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return code_of(error)


def ended_otherwise(error: InvalidTxnState) -> bool:
    """Return whether a refusal says that the producer's pair is that of an ended transaction."""
    return "producer_id" in error.details


def is_committed(error: Exception) -> bool:
    """Return whether a refusal says that the producer's transaction is committed."""
    return isinstance(error, InvalidTxnState) and error.details.get("state") in _COMMITTED


_COMMITTED = ("PREPARE_COMMIT", "COMPLETE_COMMIT")


# Before version 2 of most requests there is a single code for a producer that is fenced.
def codes_of(version: int, *, since: int = 2, knows_abortable: bool = False) -> Codes:
    """Return the codes of a version of a request.

    Args:
        since: the first version whose clients know PRODUCER_FENCED.
        knows_abortable: whether they know TRANSACTION_ABORTABLE, and get along with it.
    """
    fenced = ErrorCode.PRODUCER_FENCED if version >= since else ErrorCode.INVALID_PRODUCER_EPOCH
    if knows_abortable:
        return Codes(fenced, ErrorCode.TRANSACTION_ABORTABLE)
    return Codes(fenced)


def codes_of_produce(version: int) -> Codes:
    """Return the codes of a version of Produce."""
    abortable = version >= FIRST_PRODUCE_WITH_ABORTABLE
    return Codes(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )


FIRST_PRODUCE_WITH_ABORTABLE = 11
