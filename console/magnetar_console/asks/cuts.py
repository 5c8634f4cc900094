"""Consistent cuts: take one, and read at it."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import Any, Final

from magnetar import Client, Cut, InvalidArgument
from magnetar_console.asks.plans import number_of, text_of
from magnetar_console.looks.contents import Show
from magnetar_console.looks.messages import OFFSETS_MAX, READ_BYTES_MAX, message_row

audit = logging.getLogger("magnetar_console.audit")

TOPICS_MAX: Final = 100
# How long a cut waits for commits that are decided and not finished.
TAKE_S_MAX: Final = 15.0
# A longer token cannot be sent back with a request.
TOKEN_CHARACTERS_MAX: Final = 48 << 10


async def take(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Take a cut of topics.

    Args:
        body: "topics", their names.
    Raises:
        InvalidArgument: there are no topics, or too many, or too many partitions.
        CutUnfinished: commits did not finish in time.
        MagnetarError: the servers refuse, or do not answer.
    """
    topics = body.get("topics")
    if not isinstance(topics, list) or not all(isinstance(one, str) for one in topics):
        raise InvalidArgument("the request does not name topics")
    if not 0 < len(topics) <= TOPICS_MAX:
        raise InvalidArgument(f"a cut is taken of 1 to {TOPICS_MAX} topics here")
    cut = await client.cut(topics, timeout_s=TAKE_S_MAX)
    if len(str(cut)) > TOKEN_CHARACTERS_MAX:
        raise InvalidArgument(
            f"the token of this cut has {len(str(cut)):,} characters, more than a page can send:"
            " take it with magnetar cut"
        )
    return _described(cut)


async def describe(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """Describe a cut by its token, without asking the servers.

    Args:
        body: "token".
    Raises:
        InvalidArgument, UnsupportedVersion: it is not a token that this version reads.
    """
    return _described(Cut.parse(text_of(body, "token", TOKEN_CHARACTERS_MAX)))


async def read(client: Client, body: dict[str, Any], value: Show) -> dict[str, Any]:
    """Read the last messages of a partition at a cut.

    Args:
        body: "token", "topic", "partition"; "before", an offset: only messages before it; 0: up to
            the end of the cut.
        value: returns a value as text for people.
    Returns:
        "messages", the oldest first; "first_offset" and "end_offset" of the partition in the cut;
        "start", from which offset on the messages were read; "now_end_offset", the partition's end
        now.
    Raises:
        InvalidArgument: it is not a token, or has no such partition.
        OutOfRange, Gone: retention has removed messages of the cut, or the topic was deleted.
        MagnetarError: the servers refuse, or do not answer.
    """
    cut = Cut.parse(text_of(body, "token", TOKEN_CHARACTERS_MAX))
    topic, partition = text_of(body, "topic"), number_of(body, "partition")
    place = cut.taken.partition(topic, partition)
    before = number_of(body, "before")
    end = min(place.end_offset, before) if before > 0 else place.end_offset
    audit.info("a viewer reads messages of topic %r, partition %d, at a cut", topic, partition)
    offsets = (await client.admin.topics.list_offsets(topic, partitions=[partition])).partitions[0]
    first = max(place.first_offset, offsets.first_offset)
    start = max(first, end - OFFSETS_MAX)
    rows = []
    if start < end:
        pieces = client.read_columns(
            topic,
            partition,
            start,
            end,
            messages_max=OFFSETS_MAX,
            bytes_max=READ_BYTES_MAX,
            at=cut,
        )
        async with aclosing(pieces):
            async for columns in pieces:
                rows += [message_row(message, value) for message in columns]
    return {
        "messages": rows,
        "first_offset": place.first_offset,
        "end_offset": place.end_offset,
        "start": start,
        "is_first": start <= first,
        "removed": max(0, offsets.first_offset - place.first_offset),
        "now_end_offset": offsets.end_offset,
    }


def _described(cut: Cut) -> dict[str, Any]:
    return {
        "token": str(cut),
        "time_ms": cut.time_ms,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {"first_offset": one.first_offset, "end_offset": one.end_offset}
                    for one in found.partitions
                ],
            }
            for topic, found in cut.taken.topics.items()
        ],
    }
