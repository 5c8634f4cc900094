"""Identifiers keep what they are given, in every form, and sort as their stored keys do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_core.ids import (
    COUNTER_MAX,
    INCARNATION_MAX,
    TCID_MAX,
    MessageId,
    PartitionName,
    SubscriptionName,
    TxnID,
)

txn_ids = st.builds(
    TxnID.of,
    st.integers(0, TCID_MAX),
    st.integers(0, INCARNATION_MAX),
    st.integers(0, COUNTER_MAX),
)
uint64s = st.integers(0, (1 << 64) - 1)
uint32s = st.integers(0, (1 << 32) - 1)


@given(txn_ids)
def test_a_txn_id_survives_text_bytes_and_wire(txn_id: TxnID) -> None:
    assert TxnID.parse(str(txn_id)) == txn_id
    assert TxnID.from_bytes(txn_id.to_bytes()) == txn_id
    assert TxnID.from_wire(txn_id.to_wire()) == txn_id


@given(txn_ids)
def test_a_txn_id_is_made_of_its_parts(txn_id: TxnID) -> None:
    """PIP-31, Data Structures, TxnID: 128 bits, the highest 16 the coordinator's id."""
    assert TxnID.of(txn_id.tcid, txn_id.incarnation, txn_id.counter) == txn_id
    assert int.from_bytes(txn_id.to_bytes()[:2]) == txn_id.tcid
    assert len(txn_id.to_bytes()) == 16


@given(txn_ids, txn_ids)
def test_txn_ids_sort_as_their_bytes_do(one: TxnID, other: TxnID) -> None:
    assert (one < other) == (one.to_bytes() < other.to_bytes())


@pytest.mark.parametrize(
    ("tcid", "incarnation", "counter"),
    [(-1, 0, 0), (TCID_MAX + 1, 0, 0), (0, INCARNATION_MAX + 1, 0), (0, 0, COUNTER_MAX + 1)],
)
def test_parts_that_do_not_fit_are_refused(tcid: int, incarnation: int, counter: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        TxnID.of(tcid, incarnation, counter)


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3:4", "a:b:c", "65536:0:0", "-1:0:0"])
def test_what_is_no_txn_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"TxnID|does not fit"):
        TxnID.parse(text)


@given(st.text(), uint32s, uint64s, st.text())
def test_names_survive_the_wire(topic: str, partition: int, topic_id: int, name: str) -> None:
    partition_name = PartitionName(topic, partition, topic_id)
    subscription = SubscriptionName(topic, partition, topic_id, name)
    assert PartitionName.from_wire(partition_name.to_wire()) == partition_name
    assert SubscriptionName.from_wire(subscription.to_wire()) == subscription
    assert subscription.partition_name == partition_name


def test_an_offset_is_the_entry_and_the_index_in_it() -> None:
    assert MessageId(7, 100, 3, partition=2).offset == 103
    assert str(MessageId(7, 100, 3, partition=2)) == "7:100:3@2"
