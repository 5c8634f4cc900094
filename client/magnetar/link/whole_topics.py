"""Asks all brokers of a topic's partitions, and puts their answers together.

The answer is about all partitions that were asked for, or there is none: what a broker that is away
would have told is nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from magnetar.link.cluster import Cluster
from magnetar.link.runtime import Runtime, awaited
from magnetar.link.topic_route import TopicRoute
from magnetar_core.errors import (
    Gone,
    LogUnavailable,
    MagnetarError,
    PartitionMoved,
    TopicNotFound,
)
from magnetar_core.requests import Request

T = TypeVar("T")
PartT = TypeVar("PartT")
# How many partitions an error names.
NAMED_MAX = 20


class _Growing(LogUnavailable):
    """The topic has more partitions than it had when it was looked up, or gets them now."""


async def ask_partitions(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    command: Callable[[Sequence[int]], Request[Any]],
    *,
    topic_id: int = 0,
) -> tuple[Any, list[Any]]:
    """Ask each broker about the partitions that it has, all brokers at once.

    Args:
        partitions: the numbers of the partitions; empty: all.
        command: returns the command for the partitions of one broker.
        topic_id: the id that the topic must have; 0: any id.
    Returns:
        One of the replies, and what the brokers tell of the partitions, in order of their numbers.
    Raises:
        TopicNotFound: the topic or the partition does not exist.
        Gone: the topic of this name has another id.
        LogUnavailable: a broker does not answer in time, or the topic moves all the while.
    """
    runtime = cluster.runtime
    deadline_ms = runtime.now_ms() + runtime.config.operation_timeout_ms
    backoff = runtime.backoff()
    wanted = sorted(set(partitions))
    while True:
        route = await cluster.route(topic)
        if topic_id not in (0, route.topic_id):
            raise Gone(f"topic {topic!r} of id {topic_id} was deleted; it has id {route.topic_id}")
        for one in wanted:
            route.require(one)
        error: MagnetarError
        try:
            numbers = wanted or range(route.partition_count)
            replies, answers = await _ask_once(cluster, route, numbers, command, deadline_ms)
            if not wanted:
                _require_all(route, replies)
            return replies[0], answers
        except (PartitionMoved, Gone, TopicNotFound, _Growing) as refusal:
            # Since the look-up, a partition moved or came, or the topic was deleted, and perhaps
            # made anew.
            error = refusal
        delay_ms = backoff.next_ms()
        if runtime.now_ms() + delay_ms >= deadline_ms:
            raise error
        await asyncio.sleep(delay_ms / 1000)


async def _ask_once(
    cluster: Cluster,
    route: TopicRoute,
    wanted: Iterable[int],
    command: Callable[[Sequence[int]], Request[Any]],
    deadline_ms: float,
) -> tuple[list[Any], list[Any]]:
    async def ask(address: str, numbers: list[int]) -> Any:
        timeout_ms = max(1.0, deadline_ms - cluster.runtime.now_ms())
        try:
            return await cluster.server_at(address).request(command(numbers), timeout_ms=timeout_ms)
        except PartitionMoved:
            raise
        except MagnetarError as error:
            if not error.kind.may_pass:
                raise
            raise LogUnavailable(
                f"{cluster.broker_title(address)}, which has {_listed(route.topic, numbers)}, does"
                f" not answer: {error}"
            ) from error.__cause__

    by_address = route.by_address(wanted)
    replies = await all_of(cluster.runtime, lambda one: ask(*one), by_address.items())
    found: dict[int, Any] = {}
    for reply, (address, numbers) in zip(replies, by_address.items(), strict=True):
        if reply.topic_id != route.topic_id:
            raise Gone(f"topic {route.topic!r} of id {route.topic_id} was deleted")
        told = {one.partition: one for one in reply.partitions}
        missing = [number for number in numbers if number not in told]
        if missing:
            raise PartitionMoved(
                f"{cluster.broker_title(address)} does not have {_listed(route.topic, missing)}"
            )
        found.update((number, told[number]) for number in numbers)
    return replies, [found[one] for one in sorted(found)]


def _require_all(route: TopicRoute, replies: Iterable[Any]) -> None:
    """Check that no broker knows of more partitions than were asked for.

    Before anything is stored in a new partition, the brokers of all others know that the topic may
    have it. So what was stored before the question is in one of the partitions that they name.

    Raises:
        _Growing: one knows of more.
    """
    known = max(max(one.partition_count, getattr(one, "growing_to", 0)) for one in replies)
    if known > route.partition_count:
        raise _Growing(
            f"topic {route.topic!r} is being given {known} partitions, in place of"
            f" {route.partition_count}: ask again"
        )


async def all_of(
    runtime: Runtime, ask: Callable[[PartT], Coroutine[Any, Any, T]], parts: Iterable[PartT]
) -> list[T]:
    """Ask about all parts at the same time; if one fails, the rest is cancelled.

    Raises:
        MagnetarError: that of a part that failed before the others.
        ClientClosed: the client was closed.
    """
    name = "a part of a question to several brokers"
    tasks = [runtime.spawn(partial(ask, one), name, awaited) for one in parts]
    if not tasks:
        return []
    try:
        # Not gather(): when the client's close cancels a part, it would raise CancelledError.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [one for one in done if not one.cancelled() and one.exception() is not None]
        return [await runtime.result_of(one) for one in failed or tasks]
    finally:
        for task in tasks:
            task.cancel()


def _listed(topic: str, numbers: Sequence[int]) -> str:
    some = ", ".join(str(number) for number in numbers[:NAMED_MAX])
    more = f" and {len(numbers) - NAMED_MAX} more" if len(numbers) > NAMED_MAX else ""
    return f"partition{'s' * (len(numbers) > 1)} {some}{more} of {topic!r}"
