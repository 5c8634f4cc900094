"""Commands that a member of a cluster answers itself: where shards are, and who takes part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_cli.servers.membership import Membership
from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandSession,
    Conversation,
    Handler,
    Reply,
    each,
    each_of,
    internal_failure,
)
from magnetar_core.server.log_levels import LOG_LEVEL_HANDLERS
from magnetar_core.server.repeats import Repeats
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import common_pb2, topic_pb2

log = logging.getLogger(__name__)


class MemberCommands:
    """Commands of a member, as far as no shard answers them.

    Args:
        spawn: runs a command that asks the directory.
    """

    def __init__(
        self,
        cluster: ClusterResponses,
        membership: Membership,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._spawn = spawn
        repeats = Repeats()
        self.answer_sizes: AnswerSizes = {}
        self.handlers: Mapping[str, Handler] = {
            **dict.fromkeys(FIELD_OF_BODY.values(), each(_elsewhere)),
            **each_of({"hello": self._hello, "get_cluster_info": self._get_cluster_info}),
            "describe_members": each(self._describe_members),
            "drain_member": repeats.once(each(partial(self._change, membership.drain))),
            "rebalance": repeats.once(each(partial(self._change, membership.rebalance))),
            **LOG_LEVEL_HANDLERS,
        }

    def accept(self, conversation: Conversation) -> CommandSession:
        """Begin a conversation."""
        return CommandSession(self.handlers, conversation, self.refuse)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send an error. It depends on nothing that is stored."""
        reply.fail(error)

    def _hello(self, command: common_pb2.CommandHello, reply: Reply) -> None:
        reply.send(self._cluster.hello(command, reply))

    def _get_cluster_info(self, command: topic_pb2.CommandGetClusterInfo, reply: Reply) -> None:
        reply.send(self._cluster.cluster_info(command))

    def _describe_members(self, _: topic_pb2.CommandDescribeMembers, reply: Reply) -> None:
        reply.send(self._membership.describe())

    def _change(
        self, change: Callable[[Any], Coroutine[Any, Any, Any]], command: Any, reply: Reply
    ) -> None:
        async def work() -> None:
            try:
                answer = await change(command)
            except MagnetarError as error:
                reply.fail(error)
            except Exception:
                log.exception("a change of the cluster failed")
                reply.send(internal_failure().to_wire())
            else:
                reply.send(answer)

        self._spawn(work())


def _elsewhere(_command: object, _reply: Reply) -> None:
    raise LogUnavailable(
        "this server has no shard at the moment; ask another one: GetClusterInfo names them"
    )
