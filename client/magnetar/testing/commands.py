"""Names of the commands that servers take, as faults name them. Pure.

A client that commits says EndTxn. The coordinator then says EndTxnOnParticipants to each broker, or
EndTxnOnPartition or EndTxnOnSubscription if there is a single participant.
"""

from __future__ import annotations

import difflib
from typing import Literal, TypeAlias, get_args

from magnetar_core.errors import InvalidArgument

CommandName: TypeAlias = Literal[
    "AbortExpelled",
    "AbortHangingTxn",
    "AcceptTxnLoss",
    "Ack",
    "AddPartitionToTxn",
    "AddSubscriptionToTxn",
    "AlterTopic",
    "CloseConsumer",
    "CloseCut",
    "CreateTopic",
    "DeleteGroup",
    "DeleteTopic",
    "DescribeEnds",
    "DescribeGroup",
    "DescribeName",
    "DescribeParticipants",
    "DescribeProducers",
    "DescribeTopic",
    "DescribeTransactionalId",
    "DescribeTxn",
    "EndTxn",
    "EndTxnOnParticipants",
    "EndTxnOnPartition",
    "EndTxnOnSubscription",
    "Flow",
    "FollowDirectory",
    "GetClusterInfo",
    "GroupHeartbeat",
    "Hello",
    "InitProducer",
    "JoinGroup",
    "LeaveGroup",
    "ListGroups",
    "ListOffsets",
    "ListStoredTxns",
    "ListTopics",
    "ListTransactionalIds",
    "ListTxnChanges",
    "ListTxns",
    "Lookup",
    "LowWatermark",
    "Nack",
    "NewTxn",
    "Peek",
    "Publish",
    "Read",
    "RemoveName",
    "Seek",
    "Send",
    "SkipDamaged",
    "Subscribe",
    "TakeIncarnation",
    "TxnsIssued",
    "Unsubscribe",
]

COMMAND_NAMES: frozenset[str] = frozenset(get_args(CommandName))


def field_of(command: object) -> str:
    """Return the field of a command in the envelope.

    Raises:
        InvalidArgument: there is no such command; the error lists those that there are.
    """
    if not isinstance(command, str) or command not in COMMAND_NAMES:
        close = difflib.get_close_matches(str(command)[:100], sorted(COMMAND_NAMES), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InvalidArgument(
            f"{str(command)[:100]!r} is not the name of a command; {hint}There are: "
            + ", ".join(sorted(COMMAND_NAMES))
        )
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in command).lstrip("_")
