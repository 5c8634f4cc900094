"""Fetch: committed messages, as soon as there are enough of them or the client's time is over.

The end of what may be read is the same for all isolation levels: messages of open transactions have
no offsets yet, and those of aborted ones never get any. So no list of aborted transactions is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from magnetar_broker.topics.partition import Partition
from magnetar_core.access.needs import Kind, Operation
from magnetar_core.errors import LogUnavailable, MagnetarError, OutOfRange
from magnetar_kafka.answer import Answer, Part
from magnetar_kafka.budget import Budget
from magnetar_kafka.config import KafkaConfig
from magnetar_kafka.error_codes import ErrorCode, Refused, code_of
from magnetar_kafka.metrics import KafkaMetrics
from magnetar_kafka.parking import Parking
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.requests.partitions import locate
from magnetar_kafka.requests.stored_records import read_records
from magnetar_kafka.security.caller import Caller
from magnetar_kafka.shards import Shard, Shards
from magnetar_kafka.wire import apis

log = logging.getLogger(__name__)

NO_OFFSET = -1
# However long a client would wait.
WAIT_MS_MAX = 60_000
# How long a connection rests whose fetch finds no place to wait.
UNPARKED_DELAY_MS = 500
# Of what came since a partition was read.
ENTRIES_COUNTED_MAX = 512
_WITHDRAWN = {
    "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "high_watermark": NO_OFFSET,
    "last_stable_offset": NO_OFFSET,
    "log_start_offset": NO_OFFSET,
    "records": (),
}


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """A partition of a fetch.

    Attributes:
        refused: why nothing is read; None: it may be read.
        seen_end: where the log ended when it was read.
    """

    topic: str
    number: int
    offset: int
    bytes_max: int
    shard: Shard | None = None
    partition: Partition | None = None
    refused: Refused | MagnetarError | None = None
    seen_end: int = 0

    @property
    def growth_bytes(self) -> int:
        """Return how many bytes came since then; when they cannot be counted, enough of them."""
        log = self.partition.log if self.partition is not None else None
        if log is None or log.durable_end <= self.seen_end:
            return 0
        entries = log.tail_from(self.seen_end, entries_max=ENTRIES_COUNTED_MAX)
        if not entries or len(entries) == ENTRIES_COUNTED_MAX:
            return self.bytes_max
        return sum(entry.retained_bytes for entry in entries)


class FetchRequests:
    """Handler of Fetch.

    Args:
        saw: told the highest stamp of the commits that a client gets to see.
    """

    def __init__(
        self,
        shards: Shards,
        config: KafkaConfig,
        budget: Budget,
        parking: Parking,
        metrics: KafkaMetrics,
        saw: Callable[[int], None],
    ) -> None:
        self._parking = parking
        self._shards = shards
        self._saw = saw
        self._config = config
        self._budget = budget
        self._metrics = metrics

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {apis.FETCH.key: self._fetch}

    async def _fetch(self, request: Request) -> Answer:
        body = request.body
        if body.get("session_id", 0):
            code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            return Answer(body=lambda: {"error_code": code}, codes=(code,))
        bytes_max = max(1, min(body["max_bytes"], self._config.kafka_fetch_bytes_max))
        wanted = [
            self._wanted(topic["topic"], one)
            for topic in body["topics"]
            for one in topic["partitions"]
        ]
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + min(max(0, body["max_wait"]), WAIT_MS_MAX) / 1000
        bytes_min = min(body["min_bytes"], bytes_max)
        delay_ms = 0
        while True:
            await self._budget.take(bytes_max)
            parts = [Part(shard=one.shard, fields={}) for one in wanted]
            gathered = 0
            try:
                for one, part in zip(wanted, parts, strict=True):
                    gathered += await self._read(one, part, bytes_max - gathered, request.caller)
            except BaseException:
                self._budget.give_back(bytes_max)
                raise
            has_errors = any(part.fields["error_code"] for part in parts)
            if gathered >= bytes_min or has_errors or loop.time() >= ends_s:
                break
            # What was read so far takes no memory while the client waits.
            parts.clear()
            self._budget.give_back(bytes_max)
            principal = request.caller.principal
            place = self._parking.take(principal, len(wanted))
            if place is None:
                bytes_min, delay_ms = 0, UNPARKED_DELAY_MS
                continue
            try:
                if not await self._grown(wanted, bytes_min - gathered, ends_s, request):
                    bytes_min = 0
            finally:
                self._parking.give_back(principal, place)
        self._budget.give_back(bytes_max - min(gathered, bytes_max))
        return self._answer(body["topics"], parts, min(gathered, bytes_max), delay_ms)

    def _answer(self, topics: Any, parts: list[Part], reserved: int, delay_ms: int) -> Answer:
        rest = iter(parts)
        responses = [
            {
                "topic": topic["topic"],
                "partitions": [next(rest).fields for _ in topic["partitions"]],
            }
            for topic in topics
        ]
        return Answer(
            body=lambda: {"responses": responses},
            parts=parts,
            withdrawn=_WITHDRAWN,
            reserved=reserved,
            delay_ms=delay_ms,
        )

    def _wanted(self, topic: str, one: Mapping[str, Any]) -> _Wanted:
        wanted = _Wanted(
            topic=topic,
            number=one["partition"],
            offset=one["fetch_offset"],
            bytes_max=one["partition_max_bytes"],
        )
        found = Part(shard=None, fields={})
        try:
            wanted.shard, wanted.partition = locate(self._shards, topic, wanted.number, found)
        except (Refused, MagnetarError) as error:
            wanted.shard, wanted.refused = found.shard, error
        return wanted

    async def _read(self, one: _Wanted, part: Part, bytes_max: int, caller: Caller) -> int:
        """Fill in a part of an answer; return the bytes of its messages."""
        part.fields.update(_WITHDRAWN)
        part.fields["partition_index"] = one.number
        part.fields["error_code"] = ErrorCode.NONE
        partition = one.partition
        if not caller.may(Operation.READ, Kind.TOPIC, one.topic):
            # The right may have been withdrawn while the fetch waited.
            part.fields["error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return 0
        if one.refused is not None or partition is None:
            assert one.refused is not None
            part.fields["error_code"] = code_of(one.refused)
            return 0
        if _is_gone(partition):
            part.fields["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return 0
        one.seen_end = partition.log.durable_end
        records: list[bytes | memoryview] = []
        try:
            if one.shard is None or not one.shard.may_speak():
                raise LogUnavailable
            if bytes_max > 0:
                records = await read_records(
                    partition, one.offset, bytes_max=min(bytes_max, max(1, one.bytes_max))
                )
        except LogUnavailable:
            part.fields["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return 0
        except MagnetarError as error:
            part.fields["error_code"] = code_of(error)
            if _is_gone(partition):
                part.fields["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif isinstance(error, OutOfRange):
                self._tell_range(part, partition)
            else:
                part.fields["error_code"] = ErrorCode.CORRUPT_MESSAGE
                log.warning("%s cannot be read for a Kafka client: %s", partition.name, error)
            return 0
        except Exception:
            # A store that has ended fails reads; the shard's end is told with the answer.
            if one.shard is not None and one.shard.may_speak():
                raise
            part.fields["error_code"] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return 0
        self._tell_range(part, partition)
        if records:
            self._saw(partition.log.highest_stamp)
        part.fields["records"] = records
        return sum(map(len, records))

    @staticmethod
    def _tell_range(part: Part, partition: Partition) -> None:
        end = partition.log.durable_end
        part.fields["high_watermark"] = part.fields["last_stable_offset"] = end
        part.fields["log_start_offset"] = partition.log.first_offset

    async def _grown(
        self, wanted: list[_Wanted], bytes_min: int, ends_s: float, request: Request
    ) -> bool:
        """Wait until about so many bytes came; return False if the wait is over before."""
        news = asyncio.Event()
        with ExitStack() as until:
            for one in wanted:
                if one.partition is not None and one.shard is not None:
                    one.partition.log.wait(news.set)
                    until.callback(one.partition.log.forget, news.set)
                    until.enter_context(one.shard.watched(news.set))
            stopping = asyncio.ensure_future(request.stopping.wait())
            stopping.add_done_callback(lambda _: news.set())
            until.callback(stopping.cancel)
            self._metrics.parked_fetches.inc()
            until.callback(self._metrics.parked_fetches.dec)
            try:
                async with asyncio.timeout_at(ends_s):
                    while sum(one.growth_bytes for one in wanted) < bytes_min:
                        if request.stopping.is_set() or not all(map(_goes_on, wanted)):
                            return False
                        news.clear()
                        await news.wait()
            except TimeoutError:
                return False
        return True


def _is_gone(partition: Partition) -> bool:
    """Return whether the partition was deleted; that may happen during each wait."""
    return partition.deleted


def _goes_on(one: _Wanted) -> bool:
    """Return whether more can come of a partition."""
    is_there = one.partition is not None and not one.partition.deleted
    return is_there and one.shard is not None and one.shard.may_speak()
