"""Commands that a member of a cluster answers itself: where shards are, and who takes part."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar_broker.commands.cluster_responses import ClusterResponses
from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandSession,
    Conversation,
    Handler,
    Reply,
    each,
    each_of,
)
from magnetar_core.server.log_levels import LOG_LEVEL_HANDLERS
from magnetar_core.transport.frames import FIELD_OF_BODY
from magnetar_core.wire import common_pb2, topic_pb2


class MemberCommands:
    """Commands of a member, as far as no shard answers them.

    Args:
        membership: handlers of commands about members of the cluster.
    """

    def __init__(
        self,
        cluster: ClusterResponses,
        membership: Mapping[str, Handler],
    ) -> None:
        self._cluster = cluster
        self.answer_sizes: AnswerSizes = {}
        self.handlers: Mapping[str, Handler] = {
            **dict.fromkeys(FIELD_OF_BODY.values(), each(_elsewhere)),
            **each_of({"hello": self._hello, "get_cluster_info": self._get_cluster_info}),
            **membership,
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


def _elsewhere(_command: object, _reply: Reply) -> None:
    raise LogUnavailable(
        "this server has no shard at the moment; ask another one: GetClusterInfo names them"
    )
