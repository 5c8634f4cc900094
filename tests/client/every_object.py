"""An object of each class of the asyncio client that has a blocking pair."""

from __future__ import annotations

from typing import Any

from blocking_facade import PAIRS
from tests.client.fakes import FakeCluster

from magnetar import Client


async def every_object(cluster: FakeCluster, client: Client) -> dict[str, Any]:
    """Make a topic "t", and return the objects by the names of their classes."""
    cluster.topic("t")
    member = await client.consumer_group("g", "t")
    transactional = client.transactional_producer("id")
    await transactional.init_transactions(member)
    await transactional.begin()
    made = {
        "Client": client,
        "AdminClient": client.admin,
        "Producer": await client.create_producer("t"),
        "Consumer": await client.subscribe("t", "s"),
        "GroupConsumer": member,
        "Transaction": await client.begin_transaction(),
        "TransactionScope": client.transaction(),
        "TransactionalProducer": transactional,
        "TopicAdmin": client.admin.topics,
        "SubscriptionAdmin": client.admin.subscriptions,
        "GroupAdmin": client.admin.groups,
        "TransactionAdmin": client.admin.transactions,
        "TransactionalIdAdmin": client.admin.transactional_ids,
        "MemberAdmin": client.admin.members,
        "NamedSequenceAdmin": client.admin.named_sequences,
    }
    # That of the group attaches in the background.
    await cluster.play.came("flow", 2)
    assert made.keys() == {pair.name for pair in PAIRS}
    return made
