"""The audit log has each administrative action, done or refused, and nothing that is secret."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.access.world import BROKER, COORDINATOR, RawClient, world, write_access

from magnetar_core.clock import SystemClock
from magnetar_core.config import InvalidConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.gates.audit import NAME_CHARACTERS_MAX
from magnetar_core.gates.gate import gate_of
from magnetar_core.wire import broker_pb2 as wire
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import topic_pb2
from magnetar_core.wire import transaction_pb2 as txn

PRINCIPALS = {"anonymous": ["coordinator"], "alice": ["admin"], "eve": []}
TIME = "2023-11-14T22:13:20.000+00:00"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("form", ["unary", "stream"])
def test_who_did_what_to_what_from_where_and_what_came_of_it(form: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    access = replace(write_access(tmp_path / "access.toml", PRINCIPALS), audit_file=str(path))
    ids: list[int] = []

    async def run() -> None:
        async with (
            world(access, tmp_path) as servers,
            RawClient(servers, BROKER, "alice") as alice,
            RawClient(servers, BROKER, "eve") as eve,
            RawClient(servers, COORDINATOR, "alice") as boss,
        ):
            create = topic_pb2.CommandCreateTopic(topic="topic")
            for client in (alice, alice, eve):
                await client.ask(create, form)
            nasty = topic_pb2.CommandDeleteTopic(topic='a"}{"b' + "x" * 400)
            await eve.ask(nasty, form)
            # No administration.
            secret = wire.Message(value=b"secret")
            publish = wire.CommandPublish(
                partition=common.Partition(topic="topic"), messages=[secret]
            )
            await alice.ask(publish, form)
            peek = wire.CommandPeek(partition=publish.partition, uncommitted=True)
            for client in (alice, eve):
                await client.ask(peek, form)
            opened = await boss.ask(txn.CommandNewTxn(), form)
            ids.append(opened.txn_id.least_bits)
            await boss.ask(txn.CommandEndTxn(txn_id=opened.txn_id, txn_action=common.ABORT), form)

    asyncio.run(run())
    lines = [one for one in lines_of(path) if one["action"] != "take_incarnation"]
    assert [(line["principal"], line["action"], line["outcome"]) for line in lines] == [
        ("alice", "create_topic", "DONE"),
        ("alice", "create_topic", "TOPIC_EXISTS"),
        ("eve", "create_topic", "AUTHORIZATION_FAILED"),
        ("eve", "delete_topic", "AUTHORIZATION_FAILED"),
        ("alice", "peek", "DONE"),
        ("eve", "peek", "AUTHORIZATION_FAILED"),
        ("alice", "end_txn", "DONE"),
    ]
    assert {line["origin"] for line in lines} == {"ipv4:127.0.0.1"}
    assert lines[0]["resources"] == ["topic:topic"]
    assert lines[0]["time"] == TIME
    assert len(lines[3]["resources"][0]) == NAME_CHARACTERS_MAX
    assert lines[4]["resources"] == ["topic:topic"]
    assert lines[6]["resources"] == [f"transaction:0:1:{ids[0]}"]
    assert "secret" not in path.read_text()


def test_an_audit_file_alone_refuses_nobody_anything(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def run() -> None:
        async with (
            world(AccessConfig(audit_file=str(path)), tmp_path) as servers,
            RawClient(servers, BROKER, "anonymous") as client,
        ):
            for body in (
                topic_pb2.CommandCreateTopic(topic="topic"),
                txn.CommandLowWatermark(tcid=7, incarnation=1),
                topic_pb2.CommandFollowDirectory(at_once=True),
            ):
                answer = await client.unary(body)
                assert getattr(answer, "code", None) != common.AUTHORIZATION_FAILED

    asyncio.run(run())
    assert [one["action"] for one in lines_of(path)] == ["take_incarnation", "create_topic"]


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    from magnetar_core.gates.audit import audit_writer

    path = tmp_path / "audit.jsonl"
    write = audit_writer(str(path))
    write("1")
    path.rename(tmp_path / "audit.1")
    write("2")
    assert (tmp_path / "audit.1").read_text() == "1\n"
    assert path.read_text() == "2\n"


def test_a_server_does_not_start_with_a_file_that_it_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "audit.jsonl"
    with pytest.raises(InvalidConfig, match="audit file"):
        gate_of(AccessConfig(audit_file=str(path)), SystemClock())
