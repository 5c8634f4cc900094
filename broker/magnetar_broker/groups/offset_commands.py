"""Commands about offsets of groups of Kafka's clients, from brokers that coordinate such groups.

Source: docs/design/0033-kafka-groups-over-brokers.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_broker.groups.group_offsets import GroupOffsets
from magnetar_broker.replies import Replies
from magnetar_core.server.commands import Handler, Reply, each_of
from magnetar_core.wire import group_pb2 as wire


class OffsetCommands:
    """Handlers of the commands."""

    def __init__(self, offsets: GroupOffsets, replies: Replies) -> None:
        self._offsets = offsets
        self._replies = replies
        self.handlers: Mapping[str, Handler] = each_of(
            {
                "commit_offsets": self._commit,
                "fetch_offsets": self._fetch,
                "forget_offsets": self._forget,
            }
        )

    def _commit(self, command: wire.CommandCommitOffsets, reply: Reply) -> None:
        self._replies.answer(reply, self._offsets.commit_all(command))

    def _fetch(self, command: wire.CommandFetchOffsets, reply: Reply) -> None:
        self._replies.answer(reply, self._offsets.fetch_all(command))

    def _forget(self, command: wire.CommandForgetOffsets, reply: Reply) -> None:
        self._replies.answer(reply, self._offsets.forget_all(command))
