"""Names that Client had once, and where they are now: for the error message alone."""

from __future__ import annotations

MOVED = {
    "abort_hanging": "admin.transactions.abort_hanging",
    "accept_transaction_loss": "admin.transactions.accept_loss",
    "cluster_info": "admin.cluster_info",
    "create_subscription": "admin.subscriptions.create",
    "create_topic": "admin.topics.create",
    "delete_group": "admin.groups.delete",
    "delete_topic": "admin.topics.delete",
    "describe_group": "admin.groups.describe",
    "describe_name": "admin.named_sequences.describe",
    "describe_producers": "admin.transactions.describe_producers",
    "describe_topic": "admin.topics.describe",
    "describe_transaction": "admin.transactions.describe",
    "describe_transactional_id": "admin.transactional_ids.describe",
    "end_transaction": "admin.transactions.end",
    "find_hanging": "admin.transactions.find_hanging",
    "force_terminate": "admin.transactional_ids.force_terminate",
    "hanging_among": "admin.transactions.hanging_among",
    "list_groups": "admin.groups.list",
    "list_offsets": "admin.topics.list_offsets",
    "list_topics": "admin.topics.list",
    "list_transactional_ids": "admin.transactional_ids.list",
    "list_transactions": "admin.transactions.list",
    "peek_uncommitted": "admin.topics.peek_uncommitted",
    "remove_name": "admin.named_sequences.remove",
    "reset_group_offsets": "admin.groups.reset_offsets",
    "seek": "admin.subscriptions.seek",
    "skip_damaged": "admin.topics.skip_damaged",
    "stored_transactions": "admin.topics.stored_transactions",
    "transaction_statuses": "admin.transactions.statuses",
    "unsubscribe": "admin.subscriptions.delete",
}


def missing(owner: object, name: str) -> AttributeError:
    """Return the error for a name that a client does not have."""
    kind = type(owner).__name__
    if kind == "Client" and name in MOVED:
        message = f"{kind} has no {name!r} any more: it is client.{MOVED[name]}"
    else:
        message = f"{kind!r} object has no attribute {name!r}"
    return AttributeError(message, name=name, obj=owner)
