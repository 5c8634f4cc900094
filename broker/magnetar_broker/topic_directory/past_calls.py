"""Calls that created or deleted topics, kept over restarts of the first broker.

A server remembers the calls that it has answered in memory: a copy travels on a link to it, and
does not outlive it. But a follower passes calls on: a late copy that reaches it may meet a first
broker that has restarted since, and would delete a topic that was created anew.
Source: docs/design/0001-protocol.md, Late copies.
"""

from __future__ import annotations

from magnetar_broker import keys
from magnetar_broker.environment import Environment
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.store import end_of_prefix

# How many calls are remembered, the latest ones.
CALLS_MAX = 1_000


class PastCalls:
    """The latest calls with a token, in the order in which they were carried out."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._calls: dict[int, records.PastCallRow] = {}
        # Numbers of the rows, by token.
        self._numbers: dict[int, int] = {}
        self._next_number = 0

    async def recover(self) -> None:
        """Read the rows.

        Raises:
            StoreFailed: the store cannot be read.
        """
        start = keys.META_PAST_CALL
        for key, value in await self._environment.store.scan(
            keys.META, start, end_of_prefix(start), rows_max=2 * CALLS_MAX
        ):
            row = records.PastCallRow.FromString(value)
            self._calls[row.call_token] = row
            self._numbers[row.call_token] = keys.last_u64(key)
            self._next_number = keys.last_u64(key) + 1

    def topic_of(self, call_token: int) -> int | None:
        """Return the id of the topic that a call created or deleted; None: it is not known."""
        row = self._calls.get(call_token)
        return row.topic_id if row is not None else None

    def note(self, call_token: int, topic_id: int) -> None:
        """Note that a call was carried out."""
        if not call_token:
            return
        batch = self._environment.commits.batch
        row = records.PastCallRow(call_token=call_token, topic_id=topic_id)
        self._calls[call_token] = row
        self._numbers[call_token] = self._next_number
        batch.put(keys.META, keys.past_call(self._next_number), row.SerializeToString())
        self._next_number += 1
        if len(self._calls) > CALLS_MAX:
            oldest = next(iter(self._calls))
            del self._calls[oldest]
            batch.delete(keys.META, keys.past_call(self._numbers.pop(oldest)))
