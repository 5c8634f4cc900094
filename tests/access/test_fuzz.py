"""Random frames and requests at servers with access control: nothing falls over, nothing grows.

`make test` sends some; ACCESS_FUZZ=1000000 sends as many as it says, which takes a while.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from tests.access.world import (
    BROKER,
    COORDINATOR,
    RawClient,
    World,
    credentials,
    is_refused,
    world,
    write_access,
)

from magnetar.testing.envelope import command
from magnetar_core.security.identity import NAME_CHARACTERS_MAX
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import service_pb2, topic_pb2
from magnetar_core.wire import transaction_pb2 as txn

PRINCIPALS = ["nobody", "reader", "admin", "anonymous-2", "x" * NAME_CHARACTERS_MAX]
ROLES = """
[[roles.reader]]
topic = "topic-*"
allow = ["READ"]
[[roles.reader]]
group = "*"
allow = ["READ"]
[quotas]
"*" = { open_txns_max = 20, requests_per_second = 1000, connections_max = 50 }
"""
FRAMES = int(os.environ.get("ACCESS_FUZZ", "3000"))
COMMANDS_IN_A_FRAME = 20
GROWTH_BYTES_MAX = 40 << 20
BODIES = sorted(FIELD_OF_BODY, key=lambda one: one.__name__)
TEXTS = ["", "topic-a", "group", "id", "*", "x" * 300, "\u2028", "a\nb"]


def filled(random: Random, kind: Any, depth: int = 0) -> Any:
    """Return a message with some of its fields, and values that a server might check badly."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.4 or depth > 3:
            continue
        values = [_value(random, field, depth) for _ in range(random.randrange(3))]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            if values:
                getattr(message, field.name).CopyFrom(values[0])
        elif values:
            setattr(message, field.name, values[0])
    return message


def _value(random: Random, field: FieldDescriptor, depth: int) -> Any:
    if field.message_type is not None:
        return filled(random, GetMessageClass(field.message_type), depth + 1)
    if field.type == FieldDescriptor.TYPE_STRING:
        return random.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.randbytes(random.randrange(30))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return random.random() < 0.5
    if field.enum_type is not None:
        return random.choice([value.number for value in field.enum_type.values])
    small = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
    bits = 31 if field.cpp_type in small else 63
    return random.choice([0, 1, 2, (1 << bits) - 1, random.getrandbits(bits)])


def frame(random: Random) -> bytes:
    """A frame: of commands, or damaged, or of no sense at all."""
    shape = random.random()
    if shape < 0.1:
        return random.randbytes(random.randrange(200))
    commands = [
        command(filled(random, random.choice(BODIES)), random.getrandbits(20) | 1)
        for _ in range(COMMANDS_IN_A_FRAME)
    ]
    encoded = service_pb2.Frame(commands=commands).SerializeToString()
    if shape < 0.3:
        damaged = bytearray(encoded)
        for _ in range(random.randrange(1, 5)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        return bytes(damaged)
    return encoded


async def talk(servers: World, service: str, random: Random, count: int) -> None:
    """Send frames by many principals, a conversation after the other."""
    async with grpc.aio.insecure_channel(servers.address(service)) as channel:
        method: Any = channel.stream_stream(f"/magnetar.v1.{service}/Exchange")
        sent = 0
        while sent < count:
            # So that rates refuse few of them.
            servers.now_ms += 1_000
            call = method(metadata=credentials(random.choice(PRINCIPALS)))

            async def read(call: Any = call) -> None:
                try:
                    while isinstance(await call.read(), bytes):
                        pass
                except (grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.InvalidStateError):
                    return

            reading = asyncio.get_running_loop().create_task(read())
            try:
                for _ in range(30):
                    sent += 1
                    await call.write(frame(random))
                await call.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            try:
                await asyncio.wait_for(reading, 5)
            except TimeoutError:
                pass
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def call_methods(servers: World, service: str, random: Random, count: int) -> None:
    """Call methods with random requests, some of them no requests."""
    methods = [
        one
        for one in service_pb2.DESCRIPTOR.services_by_name[service].methods
        if not one.client_streaming
    ]
    codes: set[grpc.StatusCode] = set()
    async with grpc.aio.insecure_channel(servers.address(service)) as channel:
        for _ in range(count):
            servers.now_ms += 10
            method = random.choice(methods)
            body = filled(random, GetMessageClass(method.input_type)).SerializeToString()
            if random.random() < 0.2:
                body = random.randbytes(len(body))
            call: Any = channel.unary_unary(f"/magnetar.v1.{service}/{method.name}")
            try:
                metadata = credentials(random.choice(PRINCIPALS))
                await call(body, metadata=metadata, timeout=0.5)
            except grpc.aio.AioRpcError as error:
                codes.add(error.code())
    assert not codes & {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    assert grpc.StatusCode.PERMISSION_DENIED in codes


def test_random_frames_and_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    roles = {"anonymous": ["coordinator"], "admin": ["admin"], "reader": ["reader"]}
    access = write_access(tmp_path / "access.toml", roles, ROLES)
    process = psutil.Process()

    async def rounds(servers: World, seed: int, frames: int) -> None:
        random = Random(seed)
        for service in (BROKER, COORDINATOR):
            await talk(servers, service, random, frames // COMMANDS_IN_A_FRAME // 2)
            await call_methods(servers, service, random, frames // COMMANDS_IN_A_FRAME // 2)
        caplog.clear()

    async def run() -> None:
        async with world(access, tmp_path) as servers:
            await rounds(servers, 1, FRAMES // 2)
            before = process.memory_info().rss
            await rounds(servers, 2, FRAMES // 2)
            grown = process.memory_info().rss - before
            assert grown < GROWTH_BYTES_MAX, f"{grown / (1 << 20):.0f} MiB"
            await _still_right(servers)

    faults: list[str] = []
    _collect_faults(faults, monkeypatch)
    asyncio.run(run())
    assert faults == []


def _collect_faults(faults: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note every failure of a handler that the server logs as its own."""
    from magnetar_core.server import commands

    def note(text: str, *values: object) -> None:
        faults.append(text % values)

    monkeypatch.setattr(commands.log, "exception", note)


async def _still_right(servers: World) -> None:
    """Check that rights are as before, and that principals with rights are served."""
    servers.now_ms += 1_000
    checks: list[tuple[str, str, Any, Callable[[Any], bool]]] = [
        (BROKER, "nobody", topic_pb2.CommandCreateTopic(topic="mine"), is_refused),
        (BROKER, "admin", txn.CommandLowWatermark(tcid=0, incarnation=1), is_refused),
        (
            BROKER,
            "boss",
            topic_pb2.CommandListTopics(),
            lambda answer: isinstance(answer, topic_pb2.CommandListTopicsResponse),
        ),
        (
            COORDINATOR,
            "boss",
            txn.CommandEndTxn(txn_id=common.TxnId(most_bits=1, least_bits=1 << 40)),
            lambda answer: isinstance(answer, common.ServerError),
        ),
    ]
    for service, principal, body, holds in checks:
        async with RawClient(servers, service, principal) as client:
            answer = await client.unary(body)
            assert holds(answer), answer
