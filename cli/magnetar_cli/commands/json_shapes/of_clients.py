"""Types of what commands that talk to a cluster print with `--json`."""

from __future__ import annotations

from typing import Any

from magnetar.admin.group_descriptions import GroupDescription, GroupSummary, OffsetReset
from magnetar.admin.producer_descriptions import (
    HangingTransaction,
    NameDescription,
    ProducerDescription,
    TransactionalIdDescription,
)
from magnetar.admin.topic_descriptions import TopicDescription, TopicOffsets, TopicSummary
from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.admin.transaction_history import TransactionHistory
from magnetar_cli.commands.health import Health
from magnetar_cli.commands.json_shapes.rows import ContextRow, SubscriptionOfPartition
from magnetar_cli.commands.topics import LostOffsets

SHAPES: dict[str, Any] = {
    "context list": list[ContextRow],
    "groups describe": GroupDescription,
    "groups list": list[GroupSummary],
    "groups reset-offsets": list[OffsetReset],
    "health": list[Health],
    "subscriptions list": list[SubscriptionOfPartition],
    "topics alter": TopicDescription,
    "topics describe": TopicDescription,
    "topics list": list[TopicSummary],
    "topics offsets": TopicOffsets,
    "topics skip-damaged": list[LostOffsets],
    "transactions describe": TransactionDescription | TransactionalIdDescription,
    "transactions describe-name": NameDescription,
    "transactions describe-producers": list[ProducerDescription],
    "transactions find-hanging": list[HangingTransaction],
    "transactions history": TransactionHistory,
    "transactions list": list[TransactionDescription],
}
