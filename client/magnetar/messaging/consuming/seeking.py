"""Builds the command that moves a cursor. Pure."""

from __future__ import annotations

from magnetar.arguments import enum_member
from magnetar.enums import InitialPosition
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import MessageId, SubscriptionName
from magnetar_core.wire import broker_pb2, common_pb2


def seek_command(
    name: SubscriptionName,
    offset: int | None,
    message_id: MessageId | None,
    append_time_ms: int | None,
    position: InitialPosition | str | None,
    member: common_pb2.GroupMember | None = None,
) -> broker_pb2.CommandSeek:
    """Build the command.

    Args:
        member: the owner of the partition, if a group has assigned it.
    Raises:
        InvalidArgument: no target is given, or several.
    """
    targets = (offset, message_id, append_time_ms, position)
    if sum(target is not None for target in targets) != 1:
        raise InvalidArgument("name exactly one of offset, message_id, append_time_ms and position")
    command = broker_pb2.CommandSeek(subscription=name.to_wire(), member=member)
    if message_id is not None:
        offset = message_id.offset
    if offset is not None:
        command.offset = offset
    elif append_time_ms is not None:
        command.append_time_ms = append_time_ms
    elif position is not None:
        command.position = int(enum_member("position", InitialPosition, position))  # type: ignore[assignment]
    return command
