"""A hostile or broken client: a separate process, until it is stopped.

It says "ready" when it has begun. `python -m tests.soak.hostile_client KIND ADDRESS`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import google_crc32c
import grpc.aio
from tests.waiting import for_ever, pace

import magnetar
from magnetar_core.batch import CHECKSUM, HEADER, Codec, encode, encode_columns
from magnetar_core.link.grpc_transport import GRPC_MESSAGE_BYTES_MAX
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import broker_pb2, common_pb2, service_pb2, topic_pb2, transaction_pb2

TOPIC = "hostile"
# As it was reported: six links, each with so many reads that it leaves unread.
LINKS = 6
READS = 234
READ_BYTES = 16 << 20
BODY_BYTES = 8 << 20
RANGES = 8_000
STORE_TOKEN = "hostile"
BUSY_PARTITIONS = 200
BUSY_VALUE_BYTES = 255 << 10
BUSY_BYTES_PER_S = 25 << 20


CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    # Flow control windows as large as those of the SDK.
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.use_local_subchannel_pool", 1),
)


class Link:
    """A raw conversation with a broker."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        method: Any = self._channel.stream_stream("/magnetar.v1.Broker/Exchange")
        self.call = method()

    async def write(self, bodies: Iterable[Any]) -> None:
        await self.call.write(framed(bodies))

    async def read(self, count: int) -> None:
        """Take so many answers."""
        while count > 0:
            data = await self.call.read()
            if not isinstance(data, bytes):
                raise ConnectionError("the broker ended the conversation")
            count -= len(service_pb2.Frame.FromString(data).commands)


def framed(bodies: Iterable[Any]) -> bytes:
    frame = service_pb2.Frame()
    for request_id, body in enumerate(bodies, start=1):
        command = frame.commands.add(request_id=request_id)
        getattr(command, FIELD_OF_BODY[type(body)]).CopyFrom(body)
    return frame.SerializeToString()


def partition(number: int = 0) -> common_pb2.Partition:
    return common_pb2.Partition(topic=TOPIC, partition=number)


def declaring(batch: bytes, *, count: int, body_bytes: int) -> bytes:
    """A batch whose header says so, with a checksum that fits."""
    magic, version, kind, _, _, stored, key_hash = HEADER.unpack_from(batch)
    header = HEADER.pack(magic, version, kind, count, body_bytes, stored, key_hash)
    sealed = header + batch[HEADER.size : -CHECKSUM.size]
    return sealed + CHECKSUM.pack(google_crc32c.value(sealed))


def bombs() -> list[tuple[bytes, int]]:
    """Batches and their counts: some are refused, others as large as a broker allows."""
    small = encode([b"x"], codec=Codec.ZSTD)
    zeros = encode([bytes(BODY_BYTES - 64)], codec=Codec.ZSTD)
    tiny = encode([b""] * (1 << 18), codec=Codec.ZSTD)
    deep = b"[" * 200_000
    offsets = [bytes(4) + length.to_bytes(4, "little") for length in (1, len(deep))]
    nested = encode_columns(1, (offsets[0], b"v"), properties=(offsets[1], deep))
    return [
        (declaring(zeros, count=1, body_bytes=3 << 29), 1),
        (declaring(small, count=4_000_000_000, body_bytes=5), 4_000_000_000),
        (zeros, 1),
        (tiny, 1 << 18),
        (nested, 1),
    ]


async def send_bombs(address: str) -> None:
    """Send them, and look at all that were stored, plainly and as open transactions."""
    link = Link(address)
    batches = bombs()
    for turn in itertools.count():
        uncommitted = turn % 2 == 1
        sent = 0
        for batch, count in batches:
            body = broker_pb2.CommandSend(
                partition=partition(),
                # Each begins anew: what was refused would leave a gap.
                producer_id=1 + turn * 100 + sent,
                num_messages=count,
                batch=batch,
            )
            if uncommitted:
                body.txn_id.least_bits = turn
                body.txn_id.most_bits = 1
            await link.write([body])
            sent += 1
        await link.read(sent)
        peeks = [
            broker_pb2.CommandPeek(
                partition=partition(), messages_max=1_000, uncommitted=uncommitted
            )
        ] * 4
        await link.write(peeks)
        await link.read(len(peeks))
        if turn == 0:
            say_ready()


async def leave_unread(address: str) -> None:
    """Ask for gigabytes, and read none of it."""
    read = broker_pb2.CommandRead(partition=partition(1), bytes_max=READ_BYTES)
    links = [Link(address) for _ in range(LINKS)]
    for link in links:
        await link.write([read] * READS)
    say_ready()
    await for_ever()


async def send_ranges(address: str) -> None:
    """Watermarks of very many ranges, and acks of millions in frames as large as may be."""
    link = Link(address)
    watermark = transaction_pb2.CommandLowWatermark(
        tcid=60_000,
        incarnation=1,
        low_watermark=1 << 40,
        live=[transaction_pb2.TxnRange(first=3 * n, last=3 * n) for n in range(RANGES)],
        store_token=STORE_TOKEN,
    )
    # As a coordinator that does not exist.
    taken = topic_pb2.CommandTakeIncarnation(tcid=watermark.tcid, store_token=STORE_TOKEN)
    await link.write([taken])
    await link.read(1)
    ranges = [common_pb2.OffsetRange()] * (3 << 20)
    name = common_pb2.Subscription(topic=TOPIC, subscription="none")
    acks = [
        broker_pb2.CommandAck(subscription=name, ranges=ranges),
        # As large as is read.
        broker_pb2.CommandAck(subscription=name, ranges=ranges[: 1 << 19]),
    ]
    frame = framed([watermark, *acks, watermark])
    for turn in itertools.count():
        await link.call.write(frame)
        await link.read(4)
        if turn == 0:
            say_ready()


async def keep_busy(address: str) -> None:
    """No harm meant: very many partitions, all of them written to all the time."""
    async with await magnetar.connect(address) as client:
        await client.admin.topics.create("busy", partitions=BUSY_PARTITIONS)
        producer = await client.create_producer("busy")
        say_ready()
        for number in itertools.count():
            await producer.enqueue(bytes(BUSY_VALUE_BYTES), partition=number % BUSY_PARTITIONS)
            await pace(BUSY_VALUE_BYTES / BUSY_BYTES_PER_S)


KINDS: dict[str, Callable[[str], Awaitable[None]]] = {
    "bombs": send_bombs,
    "unread": leave_unread,
    "ranges": send_ranges,
    "busy": keep_busy,
}


def say_ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(KINDS[sys.argv[1]](sys.argv[2]))  # type: ignore[arg-type]
