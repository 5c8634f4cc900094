"""Groups of Kafka's clients over several brokers: coordinators, offsets at other owners, moves.

Source: docs/design/0033-kafka-groups-over-brokers.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.harness import Client
from tests.kafka_clients.access_table import TABLE, codes_of
from tests.kafka_clients.harness import KafkaClient, batch, produce, produced
from tests.kafka_clients.several_brokers import COUNT, PARTITIONS, SeveralBrokers, run
from tests.kafka_clients.test_groups import heartbeat, join, sync
from tests.waiting import PATIENCE_S, until

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.errors import IllegalGeneration, LogUnavailable, SubscriptionExists, from_wire
from magnetar_core.wire import group_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.shards import shard_of_group
from magnetar_kafka.wire import apis

GROUP = "g"
NONE = ErrorCode.NONE
# Requests that only the coordinator of their group answers.
OF_GROUPS = (
    apis.JOIN_GROUP,
    apis.SYNC_GROUP,
    apis.HEARTBEAT,
    apis.LEAVE_GROUP,
    apis.DESCRIBE_GROUPS,
    apis.OFFSET_COMMIT,
    apis.OFFSET_FETCH,
    apis.OFFSET_DELETE,
    apis.DELETE_GROUPS,
)


def commit(offsets: dict[int, int], joined: dict[str, Any] | None = None) -> dict[str, Any]:
    rows = [
        {
            "partition_index": number,
            "committed_offset": offset,
            "committed_metadata": f"of {number}",
        }
        for number, offset in offsets.items()
    ]
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": joined["generation_id"] if joined else -1,
        "member_id": joined["member_id"] if joined else "",
        "topics": [{"name": "t", "partitions": rows}],
    }


async def committed(client: KafkaClient, body: dict[str, Any]) -> dict[int, ErrorCode]:
    """The code of each partition of a commit."""
    (topic,) = (await client.ask(apis.OFFSET_COMMIT, body, 8))["topics"]
    return {one["partition_index"]: ErrorCode(one["error_code"]) for one in topic["partitions"]}


async def fetched(client: KafkaClient, *, every: bool = False) -> dict[int, tuple[int, ErrorCode]]:
    """Offset and code of each partition; the code of the group stands for them."""
    named = [{"name": "t", "partition_indexes": list(range(PARTITIONS))}]
    body = {"groups": [{"group_id": GROUP, "topics": None if every else named}]}
    (group,) = (await client.ask(apis.OFFSET_FETCH, body))["groups"]
    return {
        one["partition_index"]: (
            one["committed_offset"],
            ErrorCode(group["error_code"] or one["error_code"]),
        )
        for topic in group["topics"]
        for one in topic["partitions"]
    }


async def joined_alone(client: KafkaClient) -> dict[str, Any]:
    joined = await client.ask(apis.JOIN_GROUP, join(), 3)
    assert joined["error_code"] == NONE
    synced = await client.ask(apis.SYNC_GROUP, sync(joined, (joined["member_id"], b"all")))
    assert synced["error_code"] == NONE
    return joined


async def filled(world: SeveralBrokers) -> None:
    """Put ten messages into each partition."""
    for number in range(PARTITIONS):
        client = await world.connect(world.shard_of(number))
        values = [b"m%d" % one for one in range(10)]
        answer = await client.ask(apis.PRODUCE, produce(batch(*values), number=number))
        assert produced(answer) == [(NONE, 0)]


def all_of(code: ErrorCode) -> dict[int, ErrorCode]:
    return dict.fromkeys(range(PARTITIONS), code)


def elsewhere(world: SeveralBrokers) -> int:
    """A shard that does not coordinate the group."""
    return (shard_of_group(GROUP, COUNT) + 1) % COUNT


@pytest.mark.parametrize("version", range(apis.FIND_COORDINATOR.last + 1))
def test_every_broker_names_the_same_coordinator(version: int) -> None:
    async def scenario(world: SeveralBrokers) -> None:
        keys = [f"orders-{number}" for number in range(30)]
        assert {shard_of_group(one, COUNT) for one in keys} == set(range(COUNT))
        for number in range(COUNT):
            client = await world.connect(number)
            told = []
            if version >= 4:
                body = {"key_type": 0, "coordinator_keys": keys}
                told = (await client.ask(apis.FIND_COORDINATOR, body, version))["coordinators"]
                assert [one["key"] for one in told] == keys
            else:
                for key in keys:
                    body = {"key_type": 0, "key": key}
                    told.append(await client.ask(apis.FIND_COORDINATOR, body, version))
            brokers = (await client.ask(apis.METADATA, {"topics": []}))["brokers"]
            addresses = {one["node_id"]: (one["host"], one["port"]) for one in brokers}
            for key, row in zip(keys, told, strict=True):
                assert row["error_code"] == NONE
                at = world.processes[world.home(key)].address
                assert f"{row['host']}:{row['port']}" == at
                assert addresses[row["node_id"]] == (row["host"], row["port"])

    run(scenario)


def test_clients_outside_are_told_the_coordinator_s_other_address() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        home = world.home(GROUP)
        shard = shard_of_group(GROUP, COUNT)
        outside = replace(world.members[shard], kafka_external_address="kafka.example:19092")
        world.members[shard] = outside
        other = world.processes[(home + 1) % COUNT]
        body = {"key_type": 0, "coordinator_keys": [GROUP]}
        inside = (await (await world.connect(other.number)).ask(apis.FIND_COORDINATOR, body))[
            "coordinators"
        ][0]
        other.address = await other.listener.open(0, is_external=True)
        (row,) = (await (await world.connect(other.number)).ask(apis.FIND_COORDINATOR, body))[
            "coordinators"
        ]
        assert (row["host"], row["port"]) == ("kafka.example", 19092)
        assert row["node_id"] == inside["node_id"]
        assert f"{inside['host']}:{inside['port']}" == world.processes[home].address

    run(scenario)


def test_other_brokers_answer_that_they_are_not_the_coordinator() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        client = await world.connect((world.home("group") + 1) % COUNT)
        asked = set()
        for api, body, _ in TABLE:
            if api not in OF_GROUPS:
                continue
            for version in range(api.first, api.last + 1):
                codes = codes_of(await client.ask(api, body, version))
                assert ErrorCode.NOT_COORDINATOR in codes, f"{api.name} {version}: {codes}"
                assert codes <= {ErrorCode.NOT_COORDINATOR, NONE}, f"{api.name} {version}: {codes}"
            asked.add(api)
        assert asked == set(OF_GROUPS)

    run(scenario)


def test_a_shard_without_an_owner_has_no_coordinator() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        home = world.home(GROUP)
        await world.kill(home)
        client = await world.connect((home + 1) % COUNT)
        body = {"key_type": 0, "coordinator_keys": [GROUP]}
        (row,) = (await client.ask(apis.FIND_COORDINATOR, body))["coordinators"]
        assert row["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert row["node_id"] == -1
        await world.open(home, at=(home + 1) % COUNT)
        assert world.home(GROUP) == (home + 1) % COUNT
        await joined_alone(await world.coordinator(GROUP))

    run(scenario)


def test_offsets_of_all_owners_are_committed_fetched_and_deleted() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        joined = await joined_alone(client)
        assert await fetched(client) == dict.fromkeys(range(PARTITIONS), (-1, NONE))
        offsets = {number: number + 1 for number in range(PARTITIONS)}
        assert await committed(client, commit(offsets, joined)) == all_of(NONE)
        expected = {number: (offset, NONE) for number, offset in offsets.items()}
        assert await fetched(client) == await fetched(client, every=True) == expected
        for number in range(PARTITIONS):
            found = world.partition(number).subscriptions.get(GROUP)
            assert found.committed == CommittedOffset(number + 1, f"of {number}")
        deleted = {"group_id": GROUP, "topics": commit(offsets)["topics"]}
        (topic,) = (await client.ask(apis.OFFSET_DELETE, deleted))["topics"]
        codes = {one["error_code"] for one in topic["partitions"]}
        assert codes == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        left = {"group_id": GROUP, "members": [{"member_id": joined["member_id"]}]}
        await client.ask(apis.LEAVE_GROUP, left)
        deleted["topics"] = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        (topic,) = (await client.ask(apis.OFFSET_DELETE, deleted))["topics"]
        assert topic["partitions"] == [{"partition_index": 0, "error_code": NONE}]
        assert await fetched(client, every=True) == {
            number: row for number, row in expected.items() if number
        }
        (row,) = (await client.ask(apis.DELETE_GROUPS, {"groups_names": [GROUP]}))["results"]
        assert row["error_code"] == NONE
        assert await fetched(client, every=True) == {}
        for number in range(PARTITIONS):
            assert world.partition(number).subscriptions.find(GROUP) is None

    run(scenario)


def test_an_owner_that_is_away_refuses_its_partitions_alone() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        joined = await joined_alone(client)
        offsets = dict.fromkeys(range(PARTITIONS), 3)
        assert await committed(client, commit(offsets, joined)) == all_of(NONE)
        away = elsewhere(world)
        await world.kill(away)
        lost = [number for number in range(PARTITIONS) if world.shard_of(number) == away]
        assert 0 < len(lost) < PARTITIONS
        later = dict.fromkeys(range(PARTITIONS), 4)
        assert await committed(client, commit(later, joined)) == {
            number: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if number in lost else NONE
            for number in range(PARTITIONS)
        }
        assert await fetched(client) == {
            number: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT) if number in lost else (4, NONE)
            for number in range(PARTITIONS)
        }
        body = {"groups": [{"group_id": GROUP, "topics": None}]}
        (group,) = (await client.ask(apis.OFFSET_FETCH, body))["groups"]
        assert group["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # Its members stay, and with the owner its offsets are there again.
        assert (await client.ask(apis.HEARTBEAT, heartbeat(joined)))["error_code"] == NONE
        await world.open(away, at=world.home(GROUP))
        assert await fetched(client) == {
            number: (3 if number in lost else 4, NONE) for number in range(PARTITIONS)
        }
        assert await committed(client, commit(later, joined)) == all_of(NONE)

    run(scenario)


def test_a_group_is_not_deleted_while_an_owner_is_away() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        assert await committed(client, commit({number: 2 for number in range(PARTITIONS)}))
        away = elsewhere(world)
        await world.kill(away)
        body = {"groups_names": [GROUP]}
        (row,) = (await client.ask(apis.DELETE_GROUPS, body))["results"]
        assert row["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.open(away, at=world.home(GROUP))
        (row,) = (await client.ask(apis.DELETE_GROUPS, body))["results"]
        assert row["error_code"] == NONE
        assert await fetched(client, every=True) == {}

    run(scenario)


def test_members_go_on_when_their_coordinator_moves_and_the_former_one_refuses() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        former = await world.coordinator(GROUP)
        joined = await joined_alone(former)
        offsets = dict.fromkeys(range(PARTITIONS), 5)
        assert await committed(former, commit(offsets, joined)) == all_of(NONE)
        home = world.home(GROUP)
        await world.move(shard_of_group(GROUP, COUNT), to=(home + 1) % COUNT)
        assert world.home(GROUP) != home
        code = (await former.ask(apis.HEARTBEAT, heartbeat(joined)))["error_code"]
        assert code == ErrorCode.NOT_COORDINATOR
        refused = await committed(former, commit(dict.fromkeys(range(PARTITIONS), 1), joined))
        assert refused == all_of(ErrorCode.NOT_COORDINATOR)
        client = await world.coordinator(GROUP)
        assert (await client.ask(apis.HEARTBEAT, heartbeat(joined)))["error_code"] == NONE
        assert await fetched(client) == {number: (5, NONE) for number in range(PARTITIONS)}
        later = dict.fromkeys(range(PARTITIONS), 6)
        assert await committed(client, commit(later, joined)) == all_of(NONE)
        (row,) = (await client.ask(apis.DESCRIBE_GROUPS, {"groups": [GROUP]}))["groups"]
        assert row["group_state"] == "Stable"
        assert [one["member_id"] for one in row["members"]] == [joined["member_id"]]

    run(scenario)


def test_a_member_that_waits_is_sent_to_the_new_coordinator() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        client = await world.coordinator(GROUP)
        joined = await joined_alone(client)
        second = await world.coordinator(GROUP)
        second.tell(apis.JOIN_GROUP, join(), 3)
        home = world.home(GROUP)
        shard = world.processes[home].shards[shard_of_group(GROUP, COUNT)]
        group = world.processes[home].listener._groups._of_shard[shard].get(GROUP)
        await until(lambda: len(group.members) == 2)
        await world.move(shard_of_group(GROUP, COUNT), to=(home + 1) % COUNT)
        assert (await second.answer())["error_code"] == ErrorCode.NOT_COORDINATOR
        # The member that was there before knows its generation, and is told to join again.
        client = await world.coordinator(GROUP)
        code = (await client.ask(apis.HEARTBEAT, heartbeat(joined)))["error_code"]
        assert code in (NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    run(scenario)


def test_a_commit_that_was_checked_before_the_next_generation_is_refused_at_the_owner() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        joined = await joined_alone(client)
        offsets = dict.fromkeys(range(PARTITIONS), 5)
        assert await committed(client, commit(offsets, joined)) == all_of(NONE)
        again = await client.ask(apis.JOIN_GROUP, join(joined["member_id"]), 3)
        given = (again["member_id"], b"all")
        assert (await client.ask(apis.SYNC_GROUP, sync(again, given)))["error_code"] == NONE
        assert again["generation_id"] == joined["generation_id"] + 1
        assert await fetched(client) == {number: (5, NONE) for number in range(PARTITIONS)}
        shard = elsewhere(world)
        number = next(one for one in range(PARTITIONS) if world.shard_of(one) == shard)
        # What the fetch has told the owner outlives a kill of it.
        await world.kill(shard)
        await world.open(shard, at=world.home(GROUP))
        late = group_pb2.CommandCommitOffsets(
            group=GROUP,
            generation=joined["generation_id"],
            offsets=[
                group_pb2.PartitionOffset(
                    partition=world.name(number).to_wire(), offset=CommittedOffset(1).row()
                )
            ],
        )
        (outcome,) = (await world.native(shard).ask(late)).outcomes
        assert isinstance(from_wire(outcome.error), IllegalGeneration)
        assert (await fetched(client))[number] == (5, NONE)

    run(scenario)


def test_a_coordinator_goes_on_above_a_generation_that_another_owner_knows() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        shard = elsewhere(world)
        number = next(one for one in range(PARTITIONS) if world.shard_of(one) == shard)
        known = group_pb2.CommandFetchOffsets(
            group=GROUP, generation=40, partitions=[world.name(number).to_wire()]
        )
        await world.native(shard).ask(known)
        # No member commits: the client has no generation of its own.
        assert await committed(client, commit({number: 2})) == {number: NONE}
        joined = await joined_alone(client)
        assert joined["generation_id"] == 41
        known.generation = 90
        await world.native(shard).ask(known)
        refused = {number: ErrorCode.ILLEGAL_GENERATION}
        assert await committed(client, commit({number: 3}, joined)) == refused
        again = await client.ask(apis.JOIN_GROUP, join(joined["member_id"]), 3)
        assert again["generation_id"] == 91

    run(scenario)


def test_a_group_with_members_of_kafka_is_not_joined_by_ours() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        client = await world.coordinator(GROUP)
        joined = await joined_alone(client)
        await fetched(client)
        ours = group_pb2.CommandJoinGroup(group=GROUP, member_id="m", topics=["t"], join_epoch=1)
        natives = [world.native(shard) for shard in range(COUNT)]
        for native in natives:
            with pytest.raises(SubscriptionExists, match="Kafka's clients"):
                await answered(native, ours)
        # Of one that cannot ask the coordinator, no answer is given for it.
        home, shard = world.home(GROUP), shard_of_group(GROUP, COUNT)
        world.close_shard(shard)
        away = natives[elsewhere(world)]
        with pytest.raises(LogUnavailable):
            await answered(away, ours)
        await world.open(shard, at=home)
        await world.linked()
        with pytest.raises(SubscriptionExists, match="Kafka's clients"):
            await answered(away, ours)
        left = {"group_id": GROUP, "members": [{"member_id": joined["member_id"]}]}
        client = await world.coordinator(GROUP)
        (row,) = (await client.ask(apis.LEAVE_GROUP, left))["members"]
        assert row["error_code"] == NONE
        assert (await answered(away, ours)).session_timeout_ms

    run(scenario)


def test_a_group_with_members_of_ours_elsewhere_is_not_joined_by_kafka() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        native = world.native(elsewhere(world))
        await native.ask(
            group_pb2.CommandJoinGroup(group=GROUP, member_id="m", topics=["t"], join_epoch=1)
        )
        client = await world.coordinator(GROUP)
        answer = await client.ask(apis.JOIN_GROUP, join(), 3)
        assert answer["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        codes = await committed(client, commit(dict.fromkeys(range(PARTITIONS), 0)))
        assert set(codes.values()) == {NONE, ErrorCode.UNKNOWN_MEMBER_ID}
        await native.ask(group_pb2.CommandLeaveGroup(group=GROUP, member_id="m"))
        await joined_alone(client)

    run(scenario)


async def answered(native: Client, body: Any) -> Any:
    """The answer of a broker that asks another one before."""
    return await asyncio.wait_for(native.begin(body), PATIENCE_S)


def test_groups_expire_at_all_owners() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        assert await committed(client, commit(dict.fromkeys(range(PARTITIONS), 2))) == all_of(NONE)
        home = world.home(GROUP)
        shard = world.processes[home].shards[shard_of_group(GROUP, COUNT)]
        groups = world.processes[home].listener._groups._of_shard[shard]
        world.clock.advance(1_001)
        away = elsewhere(world)
        await world.kill(away)
        await groups.expire()
        assert groups.find(GROUP) is not None
        await world.open(away, at=home)
        await groups.expire()
        assert groups.find(GROUP) is None
        for number in range(PARTITIONS):
            assert world.partition(number).subscriptions.find(GROUP) is None

    run(scenario, kafka_offsets_retention_ms=1_000)


def test_a_group_that_is_made_anew_goes_on_above_the_deleted_one() -> None:
    async def scenario(world: SeveralBrokers) -> None:
        await filled(world)
        client = await world.coordinator(GROUP)
        joined = await joined_alone(client)
        left = {"group_id": GROUP, "members": [{"member_id": joined["member_id"]}]}
        await client.ask(apis.LEAVE_GROUP, left)
        (row,) = (await client.ask(apis.DELETE_GROUPS, {"groups_names": [GROUP]}))["results"]
        assert row["error_code"] == NONE
        anew = await joined_alone(client)
        assert anew["generation_id"] > joined["generation_id"]

    run(scenario)
