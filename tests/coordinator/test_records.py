"""Records come back from their rows as they were, and rows lie in the order of their keys."""

from __future__ import annotations

import struct
from contextlib import suppress

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.fakes import counted

from magnetar_coordinator.metadata.records import (
    LossAccepted,
    MetadataRecord,
    ParticipantsAdded,
    StatusChanged,
    TxnEnded,
    TxnOpened,
    metadata_key,
    txn_id_of_key,
)
from magnetar_coordinator.metadata.transaction import TxnOwner, TxnStatus
from magnetar_coordinator.metadata.transaction_rows import (
    decode_metadata,
    decode_outcome,
    encode_metadata,
    encode_outcome,
)
from magnetar_coordinator.metadata.transactional_id import Pair
from magnetar_core.ids import PartitionName, SubscriptionName, TxnID

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
times = st.integers(0, 2**62)
txn_ids = st.builds(TxnID.of, st.integers(0, 0xFFFF), st.integers(0, 2**48 - 1), u64)
partitions = st.builds(PartitionName, st.text(min_size=1), u32, u64)
subscriptions = st.builds(SubscriptionName, st.text(min_size=1), u32, u64, st.text(min_size=1))
counts = st.none() | st.dictionaries(
    partitions | subscriptions, st.lists(st.tuples(u64, u64), max_size=3), max_size=3
).map(lambda found: {name: counted(name, *writers) for name, writers in found.items()})
owners = st.builds(
    TxnOwner,
    st.text(min_size=1),
    st.builds(Pair, st.integers(-1, 2**62), st.integers(-1, 2**31 - 1)),
)
selections = st.none() | st.lists(u64, max_size=3).map(tuple)
opened = st.builds(
    lambda txn_id, timeout, start, time, owner, principal, some, others, ledger_id: TxnOpened(
        txn_id,
        timeout,
        start,
        time,
        (*some, *others),
        owner,
        principal,
        (ledger_id,) * len((*some, *others)) if ledger_id else (),
    ),
    txn_ids,
    times,
    times,
    times,
    st.none() | owners,
    st.text(),
    st.lists(partitions, max_size=3),
    st.lists(subscriptions, max_size=3),
    u64,
)
added = st.builds(
    lambda txn_id, names, time, ledger_id: ParticipantsAdded(
        txn_id, tuple(names), time, (ledger_id,) * len(names) if ledger_id else ()
    ),
    txn_ids,
    st.lists(partitions, min_size=1, max_size=3) | st.lists(subscriptions, min_size=1),
    times,
    u64,
)
changed = st.builds(
    StatusChanged,
    txn_ids,
    st.sampled_from(TxnStatus),
    st.sampled_from(TxnStatus),
    times,
    counts,
    selections,
    st.text(),
    u64,
    st.binary(),
    # Not in the row.
    st.just(False),
)


records = opened | added | changed | st.builds(LossAccepted, txn_ids, times)


@given(records)
def test_metadata_comes_back(record: MetadataRecord) -> None:
    again = decode_metadata(record.txn_id, encode_metadata(record))
    assert again == record
    assert type(again) is type(record)


@given(
    st.builds(
        TxnEnded,
        txn_ids,
        st.sampled_from([TxnStatus.COMMITTED, TxnStatus.ABORTED]),
        times,
        times,
        st.binary(),
        times,
        st.none() | owners,
        st.text(),
        u64,
    )
)
def test_outcomes_come_back(record: TxnEnded) -> None:
    assert decode_outcome(record.txn_id, encode_outcome(record)) == record


@given(records, st.data())
def test_a_row_without_its_end_is_another_record_or_refused(
    record: MetadataRecord, data: st.DataObject
) -> None:
    """The check of a store at rest finds it, and is not ended by it."""
    row = encode_metadata(record)
    cut = row[: data.draw(st.integers(0, len(row) - 1))]
    with suppress(ValueError, IndexError, struct.error, DecodeError):
        assert encode_metadata(decode_metadata(record.txn_id, cut)) != row


@given(records, st.data())
def test_a_row_with_another_bit_is_read_or_refused_as_damaged(
    record: MetadataRecord, data: st.DataObject
) -> None:
    """What a store's checksums let through ends no check of it."""
    row = bytearray(encode_metadata(record))
    bit = data.draw(st.integers(0, 8 * len(row) - 1))
    row[bit >> 3] ^= 1 << (bit & 7)
    with suppress(ValueError, IndexError, struct.error, DecodeError):
        decode_metadata(record.txn_id, bytes(row))


@given(st.lists(st.tuples(txn_ids, u32)))
def test_rows_lie_in_order(places: list[tuple[TxnID, int]]) -> None:
    keys = [metadata_key(txn_id, sequence) for txn_id, sequence in sorted(places)]
    assert keys == sorted(keys)
    assert [txn_id_of_key(key) for key in keys] == [txn_id for txn_id, _ in sorted(places)]
