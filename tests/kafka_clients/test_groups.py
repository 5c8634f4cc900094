"""Groups through the port: members, committed offsets, workers of both worlds, deletions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.harness import ack, end, flow, send, subscribe, subscription, txn
from tests.kafka_clients.harness import KafkaClient, KafkaWorld, batch, produce, run
from tests.waiting import until

from magnetar_broker.dispatch.committed_offset import CommittedOffset
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import group_pb2
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.group_coordinator import GroupCoordinator
from magnetar_kafka.groups.classic_group import State
from magnetar_kafka.wire import apis

GROUP = "g"
QUICK = {"kafka_group_first_join_delay_ms": 0}
SESSION_MS = 6_000
METADATA = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


def join(member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
        **more,
    }


def sync(joined: dict[str, Any], *assignments: tuple[str, bytes]) -> dict[str, Any]:
    rows = [{"member_id": name, "assignment": given} for name, given in assignments]
    return {
        "group_id": GROUP,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "assignments": rows,
    }


def heartbeat(joined: dict[str, Any]) -> dict[str, Any]:
    names = ("generation_id", "member_id")
    return {"group_id": GROUP, **{name: joined[name] for name in names}}


def commit(
    offset: int, joined: dict[str, Any] | None = None, metadata: str = "", **more: Any
) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata, **more}
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": joined["generation_id"] if joined else -1,
        "member_id": joined["member_id"] if joined else "",
        "topics": [{"name": "t", "partitions": [row]}],
    }


async def committed(client: KafkaClient, body: dict[str, Any], version: int = 8) -> ErrorCode:
    """The code of a commit of a single partition."""
    (topic,) = (await client.ask(apis.OFFSET_COMMIT, body, version))["topics"]
    return ErrorCode(topic["partitions"][0]["error_code"])


async def fetched(client: KafkaClient, *, stable: bool = False) -> tuple[int, str, ErrorCode]:
    """Offset, metadata and code of partition 0."""
    body = {
        "groups": [{"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": [0]}]}],
        "require_stable": stable,
    }
    (group,) = (await client.ask(apis.OFFSET_FETCH, body))["groups"]
    (row,) = group["topics"][0]["partitions"]
    code = group["error_code"] or row["error_code"]
    return row["committed_offset"], row["metadata"], ErrorCode(code)


async def joined_alone(client: KafkaClient) -> dict[str, Any]:
    """The only member of the group, with its assignment."""
    joined = await client.ask(apis.JOIN_GROUP, join(), 3)
    assert joined["error_code"] == ErrorCode.NONE
    synced = await client.ask(apis.SYNC_GROUP, sync(joined, (joined["member_id"], b"all")))
    assert synced["error_code"] == ErrorCode.NONE
    assert synced["assignment"] == b"all"
    return joined


async def ten_messages(world: KafkaWorld) -> KafkaClient:
    client = await world.connect()
    await client.ask(apis.PRODUCE, produce(batch(*[b"m%d" % number for number in range(10)])))
    return client


def coordinator(world: KafkaWorld) -> GroupCoordinator:
    return world.listener._groups._of_shard[world.shard]


def test_members_share_a_group_and_one_of_them_leaves() -> None:
    async def scenario(world: KafkaWorld) -> None:
        one, two = await world.connect(), await world.connect()
        first = await joined_alone(one)
        two.tell(apis.JOIN_GROUP, join(), 3)
        group = coordinator(world).get(GROUP)
        await until(lambda: group.state is State.PREPARING)
        code = (await one.ask(apis.HEARTBEAT, heartbeat(first)))["error_code"]
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        first = await one.ask(apis.JOIN_GROUP, join(first["member_id"]), 3)
        second = await two.answer()
        assert first["generation_id"] == second["generation_id"] == 2
        assert first["leader"] == second["leader"] == first["member_id"]
        assert len(first["members"]) == 2
        assert second["members"] == []
        two.tell(apis.SYNC_GROUP, sync(second))
        given = ((first["member_id"], b"one"), (second["member_id"], b"two"))
        assert (await one.ask(apis.SYNC_GROUP, sync(first, *given)))["assignment"] == b"one"
        assert (await two.answer())["assignment"] == b"two"
        members = [{"member_id": second["member_id"]}, {"member_id": "nobody"}]
        left = await two.ask(apis.LEAVE_GROUP, {"group_id": GROUP, "members": members})
        assert [row["error_code"] for row in left["members"]] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
        assert list(group.members) == [first["member_id"]]

    run(scenario, QUICK)


@pytest.mark.parametrize("version", range(apis.JOIN_GROUP.last + 1))
def test_every_version_of_joining(version: int) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        joined = await client.ask(apis.JOIN_GROUP, join(), version)
        if version >= 4:
            assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
            joined = await client.ask(apis.JOIN_GROUP, join(joined["member_id"]), version)
        assert joined["error_code"] == ErrorCode.NONE
        body = sync(joined, (joined["member_id"], b"all"))
        synced = await client.ask(apis.SYNC_GROUP, body, min(version, apis.SYNC_GROUP.last))
        assert synced["assignment"] == b"all"
        for api in (apis.HEARTBEAT, apis.LEAVE_GROUP):
            at = min(version, api.last)
            body = heartbeat(joined) | {"members": [{"member_id": joined["member_id"]}]}
            assert (await client.ask(api, body, at))["error_code"] == ErrorCode.NONE

    run(scenario, QUICK)


def test_what_cannot_be_a_member_is_refused() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()

        async def code(**more: Any) -> ErrorCode:
            return ErrorCode((await client.ask(apis.JOIN_GROUP, join(**more)))["error_code"])

        assert await code(session_timeout=10) is ErrorCode.INVALID_SESSION_TIMEOUT
        assert await code(session_timeout=1 << 30) is ErrorCode.INVALID_SESSION_TIMEOUT
        assert await code(group_id="") is ErrorCode.INVALID_GROUP_ID
        assert await code(member_id="unknown") is ErrorCode.UNKNOWN_MEMBER_ID
        assert await code(protocols=[]) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # None of that has left a group.
        assert (await client.ask(apis.LIST_GROUPS, {}))["groups"] == []

    run(scenario, QUICK)


def test_members_groups_and_their_memory_are_bounded() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client, other = await world.connect(), await world.connect()
        await joined_alone(client)
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await other.ask(apis.JOIN_GROUP, join()))["error_code"] == full
        assert (await other.ask(apis.JOIN_GROUP, join(group_id="h")))["error_code"] == full

    run(scenario, QUICK, group_members_max=1, groups_max=1)

    async def large(world: KafkaWorld) -> None:
        client = await world.connect()
        row = {"name": "range", "metadata": bytes(5_000)}
        answer = await client.ask(apis.JOIN_GROUP, join(protocols=[row]))
        assert answer["error_code"] == ErrorCode.GROUP_MAX_SIZE_REACHED
        joined = await client.ask(apis.JOIN_GROUP, join(), 3)
        body = sync(joined, (joined["member_id"], bytes(5_000)))
        answer = await client.ask(apis.SYNC_GROUP, body)
        assert answer["error_code"] == ErrorCode.GROUP_MAX_SIZE_REACHED

    run(large, {**QUICK, "kafka_groups_bytes_max": 4_096})


def test_members_go_on_after_the_broker_was_killed() -> None:
    async def scenario(world: KafkaWorld) -> None:
        joined = await joined_alone(await world.connect())
        await world.restart()
        client = await world.connect()
        answer = await client.ask(apis.HEARTBEAT, heartbeat(joined))
        assert answer["error_code"] == ErrorCode.NONE
        synced = await client.ask(apis.SYNC_GROUP, sync(joined))
        assert synced["assignment"] == b"all"
        (group,) = (await client.ask(apis.DESCRIBE_GROUPS, {"groups": [GROUP]}))["groups"]
        assert (group["group_state"], group["protocol_data"]) == ("Stable", "range")
        assert [one["member_assignment"] for one in group["members"]] == [b"all"]

    run(scenario, QUICK)


def test_an_answer_to_a_member_waits_until_its_generation_is_durable() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        await client.ask(apis.LIST_GROUPS, {})
        world.stall()
        client.tell(apis.JOIN_GROUP, join(), 3)
        await until(lambda: coordinator(world).find(GROUP) is not None)
        waiting = asyncio.ensure_future(client.answer())
        other = await world.connect()
        assert (await other.ask(apis.API_VERSIONS, {}))["api_keys"]
        assert not waiting.done()
        await world.go_on()
        assert (await waiting)["generation_id"] == 1

    run(scenario, QUICK)


def test_who_waits_is_told_when_the_server_stops() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.JOIN_GROUP, join(), 3)
        await until(lambda: bool(world.listener._groups._of_shard))
        await until(lambda: coordinator(world).find(GROUP) is not None)
        closing = world.listener.close(grace_ms=1_000)
        await closing
        assert (await client.answer())["error_code"] == ErrorCode.NOT_COORDINATOR

    run(scenario, {"kafka_group_first_join_delay_ms": 60_000})


def test_a_waiting_member_is_told_that_the_shard_is_lost() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await world.connect()
        client.tell(apis.JOIN_GROUP, join(), 3)
        await until(lambda: bool(world.listener._groups._of_shard))
        await until(lambda: coordinator(world).find(GROUP) is not None)
        world.listener.remove(world.shard)
        assert (await client.answer())["error_code"] == ErrorCode.NOT_COORDINATOR

    run(scenario, {"kafka_group_first_join_delay_ms": 60_000})


def test_a_member_that_waits_and_goes_does_not_hold_up_the_others() -> None:
    async def scenario(world: KafkaWorld) -> None:
        one, two = await world.connect(), await world.connect()
        first = await joined_alone(one)
        two.tell(apis.JOIN_GROUP, join(), 3)
        group = coordinator(world).get(GROUP)
        await until(lambda: len(group.members) == 2)
        two.close()
        await until(lambda: all(each.joining is None for each in group.members.values()))
        first = await one.ask(apis.JOIN_GROUP, join(first["member_id"]), 3)
        assert first["generation_id"] == 2

    run(scenario, QUICK)


@pytest.mark.parametrize("version", range(2, apis.OFFSET_COMMIT.last + 1))
def test_offsets_are_committed_by_members_and_fetched_again(version: int) -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        assert await fetched(client) == (-1, "", ErrorCode.NONE)
        joined = await joined_alone(client)
        assert await fetched(client) == (-1, "", ErrorCode.NONE)
        body = commit(4, joined, "here")
        assert await committed(client, body, version) is ErrorCode.NONE
        await world.restart()
        client = await world.connect()
        assert await fetched(client) == (4, "here", ErrorCode.NONE)
        for asked in range(1, 8):
            topics = [{"name": "t", "partition_indexes": [0, 1, 9]}]
            body = {"group_id": GROUP, "topics": topics}
            (topic,) = (await client.ask(apis.OFFSET_FETCH, body, asked))["topics"]
            offsets = [row["committed_offset"] for row in topic["partitions"]]
            assert offsets == [4, -1, -1]
            if asked > 1:
                body = {"group_id": GROUP, "topics": None}
                (topic,) = (await client.ask(apis.OFFSET_FETCH, body, asked))["topics"]
                assert [row["committed_offset"] for row in topic["partitions"]] == [4]

    run(scenario, QUICK)


def test_only_members_of_the_present_generation_commit() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client, other = await ten_messages(world), await world.connect()
        assert await committed(client, commit(1)) is ErrorCode.NONE
        joined = await joined_alone(client)
        older = {**joined, "generation_id": joined["generation_id"] - 1}
        stranger = {**joined, "member_id": "x"}
        assert await committed(client, commit(2)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await committed(client, commit(2, older)) is ErrorCode.ILLEGAL_GENERATION
        assert await committed(client, commit(2, stranger)) is ErrorCode.UNKNOWN_MEMBER_ID
        other.tell(apis.JOIN_GROUP, join(), 3)
        await until(lambda: coordinator(world).get(GROUP).state is State.PREPARING)
        assert await committed(client, commit(3, joined)) is ErrorCode.NONE
        again = await client.ask(apis.JOIN_GROUP, join(joined["member_id"]), 3)
        assert await committed(client, commit(4, joined)) is ErrorCode.ILLEGAL_GENERATION
        assert await committed(client, commit(4, again)) is ErrorCode.REBALANCE_IN_PROGRESS
        assert await fetched(client) == (3, "", ErrorCode.NONE)

    run(scenario, QUICK)


def test_the_owner_refuses_a_commit_that_was_checked_before_the_rebalance() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        joined = await joined_alone(client)
        checked = coordinator(world).check_commit(
            GROUP, joined["member_id"], None, joined["generation_id"]
        )
        # It is delayed. The member joins again, and another one begins to read.
        again = await joined_again(client, joined)
        assert await fetched(client) == (-1, "", ErrorCode.NONE)
        late = world.shard.access.offsets.commit
        with pytest.raises(Exception, match="generation 1 of the group is over"):
            late(world.partition(), GROUP, checked, CommittedOffset(9))
        assert await committed(client, commit(2, again)) is ErrorCode.NONE
        assert await fetched(client) == (2, "", ErrorCode.NONE)

    run(scenario, QUICK)


async def joined_again(client: KafkaClient, joined: dict[str, Any]) -> dict[str, Any]:
    again = await client.ask(apis.JOIN_GROUP, join(joined["member_id"]), 3)
    assert again["generation_id"] > joined["generation_id"]
    body = sync(again, (again["member_id"], b"all"))
    assert (await client.ask(apis.SYNC_GROUP, body))["error_code"] == ErrorCode.NONE
    return again


def test_a_group_goes_on_above_a_generation_that_only_an_owner_knows() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        world.shard.access.offsets.note_generation(world.partition(), GROUP, 40)
        joined = await joined_alone(client)
        _, _, code = await fetched(client)
        assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        answer = await client.ask(apis.HEARTBEAT, heartbeat(joined))
        assert answer["error_code"] == ErrorCode.ILLEGAL_GENERATION
        again = await joined_again(client, joined)
        assert again["generation_id"] == 41
        assert await committed(client, commit(2, again)) is ErrorCode.NONE
        # So does an administrator's commit, while there are no members.
        body = {"group_id": GROUP, "members": [{"member_id": again["member_id"]}]}
        await client.ask(apis.LEAVE_GROUP, body)
        world.shard.access.offsets.note_generation(world.partition(), GROUP, 90)
        assert await committed(client, commit(5)) is ErrorCode.NONE
        assert await fetched(client) == (5, "", ErrorCode.NONE)

    run(scenario, QUICK)


def test_bad_commits_get_codes_that_clients_know() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await committed(client, commit(1, metadata="x" * 5_000)) is too_large
        assert await committed(client, commit(-7)) is ErrorCode.INVALID_REQUEST
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await committed(client, commit(1, partition_index=7)) is unknown
        nowhere = commit(1)
        nowhere["topics"][0]["name"] = "nowhere"
        assert await committed(client, nowhere) is unknown
        assert await committed(client, {**commit(1), "group_id": ""}) is ErrorCode.INVALID_GROUP_ID
        assert await fetched(client) == (-1, "", ErrorCode.NONE)

    run(scenario, QUICK)


def test_offsets_of_open_transactions() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        assert await committed(client, commit(2)) is ErrorCode.NONE
        world.shard.access.offsets.commit_in(
            world.partition(),
            GROUP,
            0,
            CommittedOffset(6),
            txn(1),
            writer_id=1,
            producer_epoch=0,
        )
        assert await fetched(client) == (2, "", ErrorCode.NONE)
        assert await fetched(client, stable=True) == (-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        load = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await committed(client, commit(4)) is load
        assert await committed(client, commit(2, metadata="x")) is ErrorCode.NONE
        answer = await client.ask(apis.DELETE_GROUPS, {"groups_names": [GROUP]})
        assert answer["results"][0]["error_code"] == load
        await world.client.ask(end(txn(1), on=GROUP))
        assert await fetched(client, stable=True) == (6, "", ErrorCode.NONE)

    run(scenario, QUICK)


def test_workers_of_ours_and_of_kafka_take_over_from_each_other() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        joined = await joined_alone(client)
        assert await committed(client, commit(4, joined)) is ErrorCode.NONE
        body = {"group_id": GROUP, "members": [{"member_id": joined["member_id"]}]}
        await client.ask(apis.LEAVE_GROUP, body)
        # Ours go on.
        await world.client.ask(subscribe(GROUP, consumer=1))
        world.client.tell(flow(name=GROUP))
        await world.settle()
        assert world.client.offsets() == [4, 5, 6, 7, 8, 9]
        await world.client.ask(ack((4, 7), name=GROUP))
        await world.client.ask(
            wire.CommandCloseConsumer(subscription=subscription(GROUP), consumer_id=1)
        )
        # And Kafka's again; there is one backlog.
        joined = await joined_alone(client)
        assert await fetched(client) == (8, "", ErrorCode.NONE)
        assert await committed(client, commit(9, joined)) is ErrorCode.NONE
        assert world.subscription(GROUP).backlog == 1
        await world.client.ask(send(b"more"))
        assert world.subscription(GROUP).backlog == 2

    run(scenario, QUICK)


def test_a_group_has_members_of_one_world_only() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        await world.client.ask(
            group_pb2.CommandJoinGroup(group=GROUP, member_id="ours", topics=["t"], join_epoch=1)
        )
        answer = await client.ask(apis.JOIN_GROUP, join())
        assert answer["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await committed(client, commit(2)) is ErrorCode.UNKNOWN_MEMBER_ID
        left = group_pb2.CommandLeaveGroup(group=GROUP, member_id="ours")
        await world.client.ask(left)
        joined = await joined_alone(client)
        assert await committed(client, commit(2, joined)) is ErrorCode.NONE

    run(scenario, QUICK)


def test_groups_are_listed_and_described() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        await joined_alone(client)
        body = {**commit(1), "group_id": "simple"}
        assert await committed(client, body) is ErrorCode.NONE
        for version in range(apis.LIST_GROUPS.last + 1):
            rows = (await client.ask(apis.LIST_GROUPS, {}, version))["groups"]
            assert [row["group_id"] for row in rows] == [GROUP, "simple"]
        body = {"states_filter": ["stable"]}
        rows = (await client.ask(apis.LIST_GROUPS, body))["groups"]
        assert [row["group_id"] for row in rows] == [GROUP]
        for version in range(apis.DESCRIBE_GROUPS.last + 1):
            body = {"groups": [GROUP, "simple", "absent"], "include_authorized_operations": False}
            rows = (await client.ask(apis.DESCRIBE_GROUPS, body, version))["groups"]
            assert [row["group_state"] for row in rows] == ["Stable", "Empty", "Dead"]
            (member,) = rows[0]["members"]
            assert (member["client_id"], member["client_host"]) == ("test", "/127.0.0.1")

    run(scenario, QUICK)


def test_groups_and_offsets_are_deleted_when_no_member_uses_them() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        joined = await joined_alone(client)
        assert await committed(client, commit(3, joined)) is ErrorCode.NONE
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        offsets = {"group_id": GROUP, "topics": topics}

        async def deleted() -> ErrorCode:
            answer = await client.ask(apis.OFFSET_DELETE, offsets)
            rows = [row for topic in answer["topics"] for row in topic["partitions"]]
            return ErrorCode(answer["error_code"] or rows[0]["error_code"])

        async def group_deleted() -> ErrorCode:
            answer = await client.ask(apis.DELETE_GROUPS, {"groups_names": [GROUP]})
            return ErrorCode(answer["results"][0]["error_code"])

        assert await deleted() is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert await group_deleted() is ErrorCode.NON_EMPTY_GROUP
        body = {"group_id": GROUP, "members": [{"member_id": joined["member_id"]}]}
        await client.ask(apis.LEAVE_GROUP, body)
        assert await deleted() is ErrorCode.NONE
        assert await fetched(client) == (-1, "", ErrorCode.NONE)
        assert await committed(client, commit(3)) is ErrorCode.NONE
        assert await group_deleted() is ErrorCode.NONE
        assert await group_deleted() is ErrorCode.GROUP_ID_NOT_FOUND
        assert await deleted() is ErrorCode.GROUP_ID_NOT_FOUND
        await world.restart()
        client = await world.connect()
        assert (await client.ask(apis.LIST_GROUPS, {}))["groups"] == []
        assert await fetched(client) == (-1, "", ErrorCode.NONE)

    run(scenario, QUICK)


def test_a_group_without_members_expires_after_run_time() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client = await ten_messages(world)
        joined = await joined_alone(client)
        assert await committed(client, commit(3, joined)) is ErrorCode.NONE
        groups = coordinator(world)
        world.clock.advance(1_001)
        await groups.expire()
        assert groups.find(GROUP) is not None
        body = {"group_id": GROUP, "members": [{"member_id": joined["member_id"]}]}
        await client.ask(apis.LEAVE_GROUP, body)
        world.clock.advance(999)
        await groups.expire()
        assert await fetched(client) == (3, "", ErrorCode.NONE)
        # Not while acks are pending.
        world.shard.access.offsets.commit_in(
            world.partition(),
            GROUP,
            groups.get(GROUP).generation,
            CommittedOffset(6),
            txn(1),
            writer_id=1,
            producer_epoch=0,
        )
        world.clock.advance(2)
        await groups.expire()
        assert groups.find(GROUP) is not None
        await world.client.ask(end(txn(1), on=GROUP))
        await groups.expire()
        assert groups.find(GROUP) is None
        assert await fetched(client) == (-1, "", ErrorCode.NONE)

    run(scenario, {**QUICK, "kafka_offsets_retention_ms": 1_000})


def test_a_late_copy_of_each_request() -> None:
    async def scenario(world: KafkaWorld) -> None:
        client, other = await ten_messages(world), await world.connect()
        joined = await joined_alone(client)
        assert await committed(client, commit(3, joined)) is ErrorCode.NONE
        # JoinGroup without an id makes a member that is silent, and goes.
        other.tell(apis.JOIN_GROUP, join(), 3)
        group = coordinator(world).get(GROUP)
        await until(lambda: len(group.members) == 2)
        again = await client.ask(apis.JOIN_GROUP, join(joined["member_id"]), 3)
        second = await other.answer()
        given = ((again["member_id"], b"one"), (second["member_id"], b"two"))
        await client.ask(apis.SYNC_GROUP, sync(again, *given))
        # Copies of requests of the generation before change nothing.
        late = await other.ask(apis.SYNC_GROUP, sync(joined, (joined["member_id"], b"late")))
        assert late["error_code"] == ErrorCode.ILLEGAL_GENERATION
        late = await other.ask(apis.HEARTBEAT, heartbeat(joined))
        assert late["error_code"] == ErrorCode.ILLEGAL_GENERATION
        assert await committed(other, commit(9, joined)) is ErrorCode.ILLEGAL_GENERATION
        # A copy of the leader's SyncGroup of this generation changes no assignment.
        late = await other.ask(apis.SYNC_GROUP, sync(again, (again["member_id"], b"late")))
        assert late["assignment"] == b"one"
        body = {"group_id": GROUP, "members": [{"member_id": second["member_id"]}]}
        for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            (row,) = (await other.ask(apis.LEAVE_GROUP, body))["members"]
            assert row["error_code"] == code
        assert await fetched(client) == (3, "", ErrorCode.NONE)

    run(scenario, QUICK)
