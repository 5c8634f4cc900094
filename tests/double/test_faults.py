"""Faults that a test asks for strike what they name, as often as they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from magnetar.blocking import Client
from magnetar.errors import (
    InvalidArgument,
    LogUnavailable,
    ProducerFenced,
    QuotaExceeded,
    TopicNotFound,
    TransactionalIdNotFound,
)
from magnetar.testing import CommandName, Fault, Server
from magnetar.testing.commands import field_of
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import service_pb2

# Commands that only servers say, that belong to backups and shards, or that are others in columns.
NOT_NAMED = {
    "acks",
    "commit_offsets",
    "consumer_change",
    "deliver",
    "describe_group_members",
    "describe_members",
    "drain_member",
    "end_backup",
    "end_txns",
    "end_txns_on_participants",
    "error",
    "fetch_offsets",
    "forget_offsets",
    "group_change",
    "hold_backup",
    "new_txns",
    "owners_changed",
    "read_backup",
    "rebalance",
    "release_backup",
    "sends",
    "set_log_level",
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    client = server.connect_blocking()
    client.admin.topics.create("t")
    return client


def values(client: Client) -> list[bytes]:
    return [one.value for one in client.read("t")]


def commit(client: Client, value: bytes) -> None:
    with client.transaction() as txn:
        txn.send("t", value)


def test_the_names_are_those_of_the_wire() -> None:
    fields = {field_of(name) for name in get_args(CommandName)}
    named = {
        field
        for field in FIELD_OF_BODY.values()
        if not field.endswith("_response") and field not in NOT_NAMED
    }
    assert fields == named
    assert fields <= set(service_pb2.Command.DESCRIPTOR.fields_by_name)


def test_an_answer_is_lost_and_the_commit_happens_once(server: Server, client: Client) -> None:
    fault = server.lose_answer("EndTxn")
    commit(client, b"v")
    assert fault.count == 1
    assert fault.is_over
    assert values(client) == [b"v"]


@pytest.mark.parametrize("lose", ["lose_answer", "lose_request"])
def test_a_lost_send_is_stored_once(server: Server, client: Client, lose: str) -> None:
    fault: Fault = getattr(server, lose)("Send", 3)
    producer = client.create_producer("t")
    for number in range(5):
        producer.send(b"%d" % number)
    assert fault.count == 3
    assert values(client) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_refusal_takes_no_effect_and_ends(server: Server, client: Client) -> None:
    fault = server.refuse("Send", QuotaExceeded("it is full"))
    with pytest.raises(QuotaExceeded, match="it is full"):
        client.create_producer("t").send(b"refused")
    client.create_producer("t").send(b"accepted")
    assert (fault.count, values(client)) == (1, [b"accepted"])


def test_what_is_held_waits_and_what_follows_does_not_overtake_it(
    server: Server, client: Client
) -> None:
    held = server.hold("Send")
    producer = client.create_producer("t", linger_ms=0)
    producer.enqueue(b"1")
    held.wait()
    producer.enqueue(b"2")
    assert values(client) == []
    held.release()
    held.release()
    producer.flush()
    assert values(client) == [b"1", b"2"]


def test_a_decision_is_there_before_its_messages_are(server: Server, client: Client) -> None:
    held = server.hold("EndTxnOnPartition")
    txn = client.begin_transaction()
    txn.send("t", b"v")
    txn.commit()
    held.wait()
    assert [one.status.name for one in client.admin.transactions.list()] == ["COMMITTING"]
    assert values(client) == []
    held.release()
    while values(client) != [b"v"]:
        pass


def test_what_is_held_at_the_end_holds_up_nothing(server: Server, client: Client) -> None:
    held = server.hold("Send")
    client.create_producer("t").enqueue(b"v")
    held.wait()
    server.heal()
    client.admin.topics.list()
    assert held.is_over


def test_a_fence(server: Server, client: Client) -> None:
    producer = client.transactional_producer("id")
    producer.init()
    producer.begin()
    producer.send("t", b"v")
    server.fence("id")
    with pytest.raises(ProducerFenced):
        producer.commit()
    assert values(client) == []
    with pytest.raises(TransactionalIdNotFound):
        server.fence("another")


def test_messages_survive_restarts(server: Server, client: Client) -> None:
    commit(client, b"1")
    server.restart()
    commit(client, b"2")
    server.restart("broker-0")
    server.restart("coordinator-0")
    commit(client, b"3")
    assert values(client) == [b"1", b"2", b"3"]


def test_an_open_transaction_survives_a_restart(server: Server, client: Client) -> None:
    txn = client.begin_transaction()
    txn.send("t", b"v")
    server.restart()
    txn.commit()
    assert values(client) == [b"v"]


def test_a_server_that_is_stopped_answers_when_it_is_back(server: Server, client: Client) -> None:
    server.stop("broker-0")
    server.stop("broker-0")
    producer_of = client.create_producer
    server.start()
    server.start()
    producer_of("t").send(b"v")
    assert values(client) == [b"v"]


def test_several_brokers() -> None:
    with Server(brokers=3, coordinators=2) as server:
        assert server.names == [
            "broker-0",
            "broker-1",
            "broker-2",
            "coordinator-0",
            "coordinator-1",
        ]
        client = server.connect_blocking()
        client.admin.topics.create("t", partitions=6)
        with client.transaction() as txn:
            for partition in range(6):
                txn.send("t", b"v", partition=partition)
        found = client.admin.topics.describe("t")
        assert {one.broker_name for one in found.partitions} == {"broker-0", "broker-1", "broker-2"}
        server.restart("broker-1")
        assert len(values(client)) == 6


def test_a_lost_store_is_refused_until_the_loss_is_accepted(server: Server, client: Client) -> None:
    commit(client, b"v")
    server.lose_store("broker-0")
    impatient = server.connect_blocking
    client.close()
    server.accept_loss("broker-0")
    with pytest.raises(TopicNotFound):
        impatient().create_producer("t")


def test_a_coordinator_that_has_lost_its_store_goes_on(server: Server, client: Client) -> None:
    commit(client, b"1")
    server.lose_store("coordinator-0")
    commit(client, b"2")
    assert values(client) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tls": True}, "tls: a test server has no TLS"),
        ({"port": 6650}, "port: a test server has no port"),
        ({"data_dir": "d"}, "no files"),
        ({"token": "t"}, "no rights"),
        ({"kafka_port": 9092}, "Kafka"),
        ({"broker": 3}, "broker is not an argument"),
        ({"brokers": 0}, "from 1 to 16"),
        ({"brokers": 1 << 60}, "from 1 to 16"),
        ({"brokers": "3"}, "from 1 to 16"),
        ({"brokers": True}, "from 1 to 16"),
        ({"coordinators": 1.0}, "from 1 to 16"),
        ({"virtual_time": 1}, "virtual_time"),
        ({"broker_settings": ["topics_max"]}, "mapping"),
        ({"broker_settings": {"topics": 1}}, "there is no 'topics'"),
        ({"broker_settings": {"topics_max": "1"}}, "topics_max is of type int"),
        ({"broker_settings": {"topics_max": True}}, "topics_max is of type int"),
        ({"broker_settings": {"topics_max": -1}}, "topics_max"),
        ({"broker_settings": {"durability": "os"}}, "durability: a test server has no"),
        ({"coordinator_settings": {7: 7}}, "there is no 7"),
    ],
)
def test_arguments_are_refused_by_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        Server(**arguments)


@pytest.mark.parametrize("command", ["EndTxm", "end_txn", 7, None, "x" * 100_000, ["Send"]])
def test_what_is_no_command_is_refused(server: Server, command: Any) -> None:
    with pytest.raises(InvalidArgument, match="There are: AbortExpelled, ") as caught:
        server.lose_answer(command)
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("times", [0, -1, True, 1.0, "1", None])
def test_bad_counts_are_refused(server: Server, times: Any) -> None:
    with pytest.raises(InvalidArgument, match="times must be"):
        server.hold("Send", times)


@pytest.mark.parametrize("error", [ValueError("v"), ValueError, "QuotaExceeded", None])
def test_what_is_no_error_is_refused(server: Server, error: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"give an error of magnetar\.errors"):
        server.refuse("Send", error)


def test_servers_are_named(server: Server) -> None:
    for call in (server.stop, server.start, server.restart, server.lose_store):
        with pytest.raises(InvalidArgument, match="there are broker-0, coordinator-0"):
            call("broker-1")
    for call in (server.lose_store, server.accept_loss):
        with pytest.raises(InvalidArgument, match="name the servers"):
            call()


def test_a_closed_server_says_so(server: Server) -> None:
    server.close()
    server.close()
    for call in (server.restart, lambda: server.hold("Send"), server.connect_blocking):
        with pytest.raises(LogUnavailable, match="closed"):
            call()
