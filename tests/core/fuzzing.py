"""Frames that no well-behaved client sends: random commands, and damaged bytes of such."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from tests.core.envelope import parsed
from tests.waiting import turns

from magnetar_core.batch import encode
from magnetar_core.server.commands import Acceptor, Conversation
from magnetar_core.wire import common_pb2, service_pb2

_SMALL = (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 7)
_NEAR_LIMITS = (1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, 1 << 63)
_ODD_TEXTS = ("", "u", "\x00", "é☃", "a" * 300, "../x", "t-partition-0")
_BATCHES = (
    b"",
    encode([b"x"]),
    encode([b"x", b"y"], keys=[b"k", b""]),
    encode([b"x"])[:-3],
    bytes(64),
    encode([b"x"]) + b"tail",
)
_INTEGER_BITS = {
    FieldDescriptor.TYPE_UINT64: (0, 64),
    FieldDescriptor.TYPE_FIXED64: (0, 64),
    FieldDescriptor.TYPE_UINT32: (0, 32),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), 63),
    FieldDescriptor.TYPE_INT32: (-(1 << 31), 31),
    FieldDescriptor.TYPE_SINT32: (-(1 << 31), 31),
}


async def fuzz(
    server: Acceptor,
    random: Random,
    count: int,
    names: frozenset[str],
    settle: Callable[[], Awaitable[None]],
    *,
    frames_a_conversation: int,
) -> dict[str, int]:
    """Send a server what fuzzed_frames() makes, over many conversations; none may fail it.

    Returns:
        How many commands were answered and refused, and how many frames were none, or had columns
        that cannot be read.
    """
    told = {"answered": 0, "refused": 0, "no frame": 0, "unreadable columns": 0}
    failed: list[service_pb2.Command] = []

    def on_frame(frame: service_pb2.Frame) -> None:
        for command in frame.commands:
            told["refused" if command.HasField("error") else "answered"] += 1
            if command.HasField("error") and command.error.code == common_pb2.INTERNAL:
                failed.append(command)

    session = server.accept(Conversation(write=parsed(on_frame)))
    for number, data in enumerate(fuzzed_frames(random, count, names)):
        try:
            frame = service_pb2.Frame.FromString(data)
        except DecodeError:
            told["no frame"] += 1
            continue
        try:
            session.on_frame(frame)
        except DecodeError:
            told["unreadable columns"] += 1
        if number % 5 == 0:
            await turns()
        if number % frames_a_conversation == 0:
            session.on_closed()
            session = server.accept(Conversation(write=parsed(on_frame)))
            await settle()
    await settle()
    assert not failed
    return told


def fuzzed_frames(random: Random, count: int, names: frozenset[str]) -> Iterator[bytes]:
    """Serialized frames, some of them damaged.

    Args:
        names: the commands that most of them carry.
    """
    every = service_pb2.Command.DESCRIPTOR.oneofs_by_name["body"].fields
    usual = [field for field in every if field.name in names]
    unusual = [field for field in every if field.name not in names]
    for number in range(count):
        frame = service_pb2.Frame()
        for _ in range(random.choice((1, 1, 2, 5))):
            field = random.choice(usual if random.random() < 0.95 else unusual)
            command = frame.commands.add(request_id=random.choice((0, number + 1)))
            body = random_message(random, field.message_type)
            getattr(command, field.name).CopyFrom(body)
        data = bytearray(frame.SerializeToString())
        if random.random() < 0.2:
            _damage(random, data)
        yield bytes(data)


def random_message(random: Random, descriptor: Any, depth: int = 0) -> Any:
    """A message with fields set or not, small values and extreme ones.

    Args:
        descriptor: of its class; each implementation of protobuf has a type of its own for it.
    """
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if depth > 4 or random.random() < 0.1:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            target = getattr(message, field.name)
            for _ in range(random.choice((0, 1, 1, 2, 5))):
                value = _random_value(random, field, depth)
                if field.message_type is not None:
                    target.add().CopyFrom(value)
                else:
                    target.append(value)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(_random_value(random, field, depth))
        else:
            setattr(message, field.name, _random_value(random, field, depth))
    return message


def _random_value(random: Random, field: FieldDescriptor, depth: int) -> Any:
    if field.message_type is not None:
        return random_message(random, field.message_type, depth + 1)
    if field.enum_type is not None:
        return random.choice([*(one.number for one in field.enum_type.values), 77])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return random.random() < 0.5
    if field.type == FieldDescriptor.TYPE_STRING:
        usual = "t" if field.name == "topic" else "s"
        return usual if random.random() < 0.8 else random.choice(_ODD_TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.choice(_BATCHES)
    if field.type not in _INTEGER_BITS:
        raise AssertionError(f"a field of an unexpected type: {field.full_name}")
    lowest, bits = _INTEGER_BITS[field.type]
    if random.random() < 0.9:
        return random.choice(_SMALL)
    value = random.choice((*_NEAR_LIMITS, -1, -(1 << 31), random.getrandbits(bits)))
    return max(lowest, min(value, (1 << bits) - 1))


def _damage(random: Random, data: bytearray) -> None:
    for _ in range(random.randint(1, 3)):
        if not data:
            return
        at = random.randrange(len(data))
        kind = random.randrange(3)
        if kind == 0:
            data[at] = random.randrange(256)
        elif kind == 1:
            del data[at:]
        else:
            data[at:at] = random.randbytes(random.randint(1, 8))
