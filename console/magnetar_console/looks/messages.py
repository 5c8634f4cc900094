"""The last messages of a partition, and those of open transactions in its sidecar."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import Any, Final

from magnetar import Client, MagnetarError, Message, UncommittedMessage
from magnetar_console.looks.contents import Show, content
from magnetar_console.pauses import SCAN_PAUSE
from magnetar_console.seen import Row, Seen

audit = logging.getLogger("magnetar_console.audit")

# How many offsets before the end are read.
OFFSETS_MAX: Final = 50
SIDECAR_MAX: Final = 50
# How many open transactions are compared with those of the look before, the oldest first; each has
# a message at least.
WRITERS_MAX: Final = 200
READ_BYTES_MAX: Final = 1 << 20


class MessagesLook:
    """Reads the end of a partition when it has changed, and peeks into its sidecar.

    The servers refuse it to viewers who may not read the topic.

    Args:
        value: returns a value as text for people.
    """

    def __init__(self, topic: str, partition: int, value: Show = content) -> None:
        self.period_s = 2.0
        self.pause_factor = SCAN_PAUSE
        self._topic = topic
        self._partition = partition
        self._value = value
        self._read_to: tuple[int, int] | None = None
        self._messages: dict[str, Row] = {}
        # How much open transactions had when the sidecar was looked into.
        self._written: frozenset[tuple[object, ...]] | None = None
        self._waiting: dict[str, Row] = {}

    async def look(self, client: Client) -> Seen:
        """Ask the broker of the partition."""
        topics, topic, partition = client.admin.topics, self._topic, self._partition
        found = (await topics.list_offsets(topic, partitions=[partition])).partitions[0]
        place = (found.ledger_id, found.end_offset)
        if place != self._read_to:
            audit.info("a viewer reads messages of topic %r, partition %d", topic, partition)
            start = max(found.first_offset, found.end_offset - OFFSETS_MAX)
            self._messages = await self._read(client, start, found.end_offset)
            self._read_to = place
        log: Row = {"first_offset": found.first_offset, "end_offset": found.end_offset}
        tables: dict[str, dict[str, Row]] = {"log": {"it": log}, "messages": self._messages}
        try:
            await self._look_into_sidecar(client)
        except MagnetarError as error:
            return Seen(tables, (f"The sidecar cannot be looked into: {error}",))
        tables["sidecar"] = self._waiting
        return Seen(tables)

    async def close(self) -> None:
        """Forget the messages."""
        self._read_to, self._messages = None, {}
        self._written, self._waiting = None, {}

    async def _look_into_sidecar(self, client: Client) -> None:
        """Peek if transactions have written or ended since: servers audit each of these looks."""
        topic, partition = self._topic, self._partition
        producers = await client.admin.transactions.describe_producers(
            topic, partition, limit=WRITERS_MAX
        )
        written = frozenset(
            (one.txn_id, one.producer_id, one.producer_epoch, one.last_sequence)
            for one in producers
            if one.txn_id is not None and not one.subscription
        )
        if written == self._written:
            return
        waiting: list[UncommittedMessage] = []
        if written:
            waiting = await client.admin.topics.peek_uncommitted(
                topic, partition, messages_max=SIDECAR_MAX
            )
        self._written = written
        self._waiting = {
            str(number): {
                "txn_id": str(one.txn_id),
                "key": _shown(one.key, content),
                "value": _shown(one.value_or_none, self._value),
                "properties": dict(one.properties),
            }
            for number, one in enumerate(waiting)
        }

    async def _read(self, client: Client, start: int, end: int) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        if start >= end:
            return rows
        pieces = client.read_columns(
            self._topic,
            self._partition,
            start,
            end,
            messages_max=OFFSETS_MAX,
            bytes_max=READ_BYTES_MAX,
        )
        async with aclosing(pieces):
            async for columns in pieces:
                for message in columns:
                    rows[str(message.offset)] = message_row(message, self._value)
        return rows


def message_row(message: Message, value: Show) -> Row:
    """Return the row of a message.

    Args:
        value: returns a value as text for people.
    """
    return {
        "offset": message.offset,
        "append_time_ms": message.append_time_ms,
        "txn_id": "" if message.txn_id is None else str(message.txn_id),
        "key": _shown(message.key, content),
        "value": _shown(message.value_or_none, value),
        "properties": dict(message.properties),
    }


def _shown(data: bytes | None, show: Show) -> dict[str, Any] | None:
    """Return a key or a value as text; None: the message has none."""
    return None if data is None else show(data)
