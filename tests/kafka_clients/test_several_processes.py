"""Transactions where several broker processes have shards: they are refused."""

from __future__ import annotations

from random import Random
from typing import Any

from prometheus_client import CollectorRegistry
from tests.kafka_clients.access_table import TABLE, codes_of
from tests.kafka_clients.coordinated import CoordinatedWorld, run

from magnetar_core.clock import SystemClock
from magnetar_core.config import ListenConfig
from magnetar_core.membership.address_book import MemberAddress
from magnetar_core.wire import transaction_pb2 as pb
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.listener import Listener
from magnetar_kafka.nodes import Nodes
from magnetar_kafka.wire import apis

ABOUT_TRANSACTIONS = (
    apis.INIT_PRODUCER_ID,
    apis.ADD_PARTITIONS_TO_TXN,
    apis.ADD_OFFSETS_TO_TXN,
    apis.TXN_OFFSET_COMMIT,
    apis.END_TXN,
)


def test_transactions_are_refused_with_several_processes() -> None:
    async def scenario(world: CoordinatedWorld) -> None:
        members = [
            MemberAddress(name=f"b{number}", address=f"10.0.0.{number}:6650", kafka_address=address)
            for number, address in enumerate(("10.0.0.1:9092", "10.0.0.2:9092"), 1)
        ]
        await world.listener.close(grace_ms=1)
        world.listener = Listener(
            KafkaConfig(),
            ListenConfig(),
            SystemClock(),
            Random(1),
            CollectorRegistry(),
            nodes=Nodes(lambda: members, "10.0.0.1:9092", have_fixed_shards=True),
            coordinators=world.coordinators,
        )
        world.listener.add(world.broker.local_access)
        world.address = await world.listener.open(0)
        client = await world.connect()
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        asked = set()
        for api, body, _ in TABLE:
            is_asked = api in ABOUT_TRANSACTIONS
            if api in (apis.PRODUCE, apis.INIT_PRODUCER_ID):
                is_asked = body.get("transactional_id") is not None
            if not is_asked:
                continue
            for version in range(api.first, api.last + 1):
                codes = codes_of(await client.ask(api, _of_a_topic(body), version))
                assert refused in codes, f"{api.name} {version}: {codes}"
                assert codes <= {refused, ErrorCode.NONE}, f"{api.name} {version}: {codes}"
            asked.add(api)
        assert asked == {*ABOUT_TRANSACTIONS, apis.PRODUCE}
        answer = await world.coordinators.ask_one(0, pb.CommandListTransactionalIds(limit=10))
        assert not answer.descriptions
        assert not world.partition().index.open

    run(scenario)


def _of_a_topic(found: Any) -> Any:
    """The same question about the topic of this world."""
    if isinstance(found, dict):
        return {name: _of_a_topic(one) for name, one in found.items()}
    if isinstance(found, list):
        return [_of_a_topic(one) for one in found]
    return "t" if found == "topic-a" else found
