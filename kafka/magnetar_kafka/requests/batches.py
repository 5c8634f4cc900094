"""Checks of the batches of Produce, in transactions and outside, before they are appended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from magnetar_broker.local_access import LocalAccess
from magnetar_core.errors import ChecksumMismatch, InvalidArgument, MagnetarError
from magnetar_core.ids import PartitionName
from magnetar_core.record_batch import (
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    ZSTD,
    Head,
    check_checksum,
    read_head,
)
from magnetar_kafka.answer import Part
from magnetar_kafka.error_codes import ErrorCode, Refused

NO_PRODUCER_ID = -1
# Ids of producers have so many bits: behind them is room for the epoch.
PRODUCER_ID_BITS = 47
# Ids of transactional producers have their coordinator above these bits, and no epoch behind.
TRANSACTIONAL_PRODUCER_ID_BITS = 63
# What a batch has in the store besides itself.
WRAPPING_BYTES = 24


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a request that may be appended, and its part of the answer."""

    name: PartitionName
    part: Part
    records: bytes
    head: Head


@contextmanager
def refusing(part: Part, code: Callable[[Refused | MagnetarError], ErrorCode]) -> Iterator[None]:
    """Put a refusal that is raised inside of the block into a part of an answer."""
    try:
        yield
    except (Refused, MagnetarError) as error:
        part.fields["error_code"], part.fields["error_message"] = code(error), str(error)


def checked_head(access: LocalAccess, records: bytes | None, *, is_in_transaction: bool) -> Head:
    """Return the head of a batch that may be appended.

    Args:
        is_in_transaction: whether the request names a transactional id.
    Raises:
        Refused: it may not.
    """
    if records is None or len(records) <= MAGIC_AT:
        raise Refused(ErrorCode.INVALID_RECORD, "a partition comes without a RecordBatch")
    if records[MAGIC_AT] != MAGIC:
        raise Refused(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"messages have format {records[MAGIC_AT]}, and not {MAGIC}",
        )
    if len(records) + WRAPPING_BYTES > access.batch_bytes_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(records)} bytes exceeds batch_bytes_max, {access.batch_bytes_max}",
        )
    try:
        head = read_head(records)
        check_checksum(records, head)
    except ChecksumMismatch:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum is wrong") from None
    except InvalidArgument as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    _check_kind(head, is_in_transaction=is_in_transaction)
    if head.count > access.batch_messages_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {head.count} messages exceeds {access.batch_messages_max}",
        )
    return head


def _check_kind(head: Head, *, is_in_transaction: bool) -> None:
    if head.attributes & CONTROL:
        raise Refused(ErrorCode.INVALID_RECORD, "clients cannot write control batches")
    if bool(head.attributes & TRANSACTIONAL) is not is_in_transaction:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            "a batch of a transaction comes with a transactional id, and no other does",
        )
    if head.attributes & LOG_APPEND_TIME:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a batch cannot claim to have append times")
    if head.compression > ZSTD:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {head.compression} is not known"
        )
    if head.producer_id == NO_PRODUCER_ID and not is_in_transaction:
        return
    bits = TRANSACTIONAL_PRODUCER_ID_BITS if is_in_transaction else PRODUCER_ID_BITS
    if not 0 <= head.producer_id < 1 << bits:
        raise Refused(
            ErrorCode.INVALID_RECORD, f"{head.producer_id} cannot be the id of a producer"
        )
    if head.producer_epoch < 0 or head.base_sequence < 0:
        raise Refused(ErrorCode.INVALID_RECORD, "a producer's batch needs an epoch and a sequence")
