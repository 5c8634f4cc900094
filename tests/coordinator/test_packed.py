"""Views with unparsed fields: the same bytes as the messages that they are named after."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from tests.coordinator.fakes import P0, P1, S0, counted

from magnetar.testing.envelope import singles
from magnetar_coordinator.ending.end_commands import end_command
from magnetar_coordinator.metadata.transaction import Participant, Transaction, TxnStatus
from magnetar_core.ids import TxnID
from magnetar_core.transport.frames import FrameWriter
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import packed_pb2 as packed
from magnetar_core.wire import service_pb2 as service
from magnetar_core.wire import transaction_pb2 as pb

VIEWS: list[tuple[Any, Any]] = [
    (packed.PackedNewTxn, pb.CommandNewTxn),
    (packed.PackedEndTxn, pb.CommandEndTxn),
]


@pytest.mark.parametrize(("view", "whole"), VIEWS)
def test_a_view_has_the_fields_of_its_message(view: Any, whole: Any) -> None:
    ours, theirs = view.DESCRIPTOR.fields_by_name, whole.DESCRIPTOR.fields_by_name
    for name, field in ours.items():
        assert field.number == theirs[name].number
        assert field.is_repeated == theirs[name].is_repeated
        assert field.type == FieldDescriptor.TYPE_BYTES
        assert theirs[name].type == FieldDescriptor.TYPE_MESSAGE


@pytest.mark.parametrize("message", [pb.PartitionCounts, pb.SubscriptionCounts])
def test_counts_begin_with_the_name(message: Any) -> None:
    (field,) = packed.PackedCounts.DESCRIPTOR.fields
    assert message.DESCRIPTOR.fields_by_number[field.number].name in (
        "partition",
        "subscription",
    )


@pytest.mark.parametrize("participants", [(P0,), (S0,), (P0, P1, S0)])
@pytest.mark.parametrize("counts_given", [False, True])
def test_an_end_command_is_read_as_the_command_that_it_stands_for(
    participants: tuple[Participant, ...], counts_given: bool
) -> None:
    counts = {one: counted(one, (5, 1)) for one in participants} if counts_given else None
    transaction = Transaction(
        txn_id=TxnID.of(0, 1, 2),
        status=TxnStatus.COMMITTING,
        timeout_ms=1,
        start_run_time_ms=0,
        start_time_ms=0,
        participants=dict.fromkeys(participants),
        counts=counts,
        selection=(5, 7),
        stamp=9,
    )
    written: list[bytes] = []
    writer = FrameWriter(written.append, lambda _: None)
    writer.send(end_command(transaction, participants, 3), 3)
    writer.flush()
    (read,) = singles(service.Frame.FromString(written[0])).commands
    assert read.request_id == 3
    fields: Any = {
        "txn_id": TxnID.of(0, 1, 2).to_wire(),
        "txn_action": common.COMMIT,
        "counts_given": counts_given,
        "selection_given": True,
        "selected_writer_ids": (5, 7),
        "stamp": 9,
        "incarnation": 3,
    }
    writers = [pb.WriterCount(writer_id=5, count=1)] if counts_given else []
    if participants == (P0,):
        assert read.end_txn_on_partition == pb.CommandEndTxnOnPartition(
            partition=P0.to_wire(), counts=writers, **fields
        )
    elif participants == (S0,):
        assert read.end_txn_on_subscription == pb.CommandEndTxnOnSubscription(
            subscription=S0.to_wire(), counts=writers, **fields
        )
    else:
        assert read.end_txn_on_participants == pb.CommandEndTxnOnParticipants(
            partitions=[
                pb.PartitionCounts(partition=one.to_wire(), producers=writers) for one in (P0, P1)
            ],
            subscriptions=[pb.SubscriptionCounts(subscription=S0.to_wire(), consumers=writers)],
            **fields,
        )
