"""Numbers of ends that are shown alone, though one command told several."""

from __future__ import annotations

import pytest
from tests.simulation.ends_alone import TOGETHER, alone, command_of
from tests.simulation.links import COPY_REQUEST_ID

from magnetar_core.wire import service_pb2 as pb


@pytest.mark.parametrize("request_id", [1, 77, 1 << 40, COPY_REQUEST_ID, COPY_REQUEST_ID + 77])
def test_each_participant_has_a_number_that_leads_to_its_command(request_id: int) -> None:
    """Late copies have numbers of their own, with which the shown numbers once did not fit."""
    frame = pb.Frame()
    command = frame.commands.add(request_id=request_id)
    body = getattr(command, TOGETHER)
    for number in range(3):
        body.partitions.add().partition.partition = number
    body.subscriptions.add().subscription.subscription = "s"
    shown = [one.request_id for one in alone(frame).commands]
    assert len(set(shown)) == 4
    assert {command_of(one) for one in shown} == {request_id}
    assert request_id not in shown


def test_other_commands_keep_their_numbers() -> None:
    assert command_of(5) is None
    assert command_of(COPY_REQUEST_ID + 5) is None
