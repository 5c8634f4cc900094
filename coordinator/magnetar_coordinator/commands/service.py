"""Commands of the coordinator: the handler of each command, on a link or as a unary call.

Source: PIP-31, Wire Protocol Changes, New Commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar_coordinator.commands.admin_commands import AdminCommands
from magnetar_coordinator.commands.cut_commands import CutCommands
from magnetar_coordinator.commands.following import TxnFollowing
from magnetar_coordinator.commands.listing import TxnListing
from magnetar_coordinator.commands.transaction_commands import TransactionCommands
from magnetar_coordinator.commands.transactional_id_commands import TransactionalIdCommands
from magnetar_coordinator.runtime import Runtime
from magnetar_coordinator.transactions.decision import OutcomeMissing
from magnetar_core.config import FRAME_BYTES_MAX
from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.membership.cluster_identity import ClusterIdentity
from magnetar_core.protocol_version import PROTOCOL_VERSION, check_client
from magnetar_core.server.commands import (
    AnswerSizes,
    CommandSession,
    Conversation,
    Handler,
    Reply,
    Run,
    each,
)
from magnetar_core.server.log_levels import LOG_LEVEL_HANDLERS
from magnetar_core.server.repeats import Repeats
from magnetar_core.wire import common_pb2 as common
from magnetar_storage.backup_commands import BACKUP_ANSWER_SIZES, BackupCommands
from magnetar_storage.backup_source import BackupSource

# These answers are made only while the client takes them. This much is reserved for each answer;
# nearly all are far smaller.
_LIST_BYTES = 4 << 20
ANSWER_SIZES: AnswerSizes = {
    name: lambda _: _LIST_BYTES
    for name in ("list_txns", "list_txn_changes", "describe_txn", "list_transactional_ids")
}


class CoordinatorServer:
    """Coordinator as its transport sees it.

    Attributes:
        handlers: the handler of each command field, for streams and unary calls alike.
    """

    def __init__(
        self, runtime: Runtime, backup: BackupSource, membership: Mapping[str, Handler]
    ) -> None:
        self._runtime = runtime
        self.answer_sizes: AnswerSizes = {**ANSWER_SIZES, **BACKUP_ANSWER_SIZES}
        transactional_id_commands = TransactionalIdCommands(runtime)
        self.handlers: dict[str, Handler] = {
            "hello": each(self._hello),
            **LOG_LEVEL_HANDLERS,
            **membership,
        }
        for commands in (
            TransactionCommands(runtime, transactional_id_commands),
            transactional_id_commands,
            AdminCommands(runtime),
            CutCommands(runtime),
            TxnListing(runtime),
            TxnFollowing(runtime),
            BackupCommands(backup, "coordinator", runtime.config.name, runtime.spawn),
        ):
            for name, handler in commands.handlers.items():
                self.handlers[name] = self._serving(handler)
        # InitProducer keeps its tokens in the store: a copy must never take anything over.
        repeats = Repeats()
        for name in ("new_txn", "remove_name"):
            self.handlers[name] = repeats.once(self.handlers[name])

    def accept(self, conversation: Conversation) -> CommandSession:
        """Begin a conversation."""
        return CommandSession(self.handlers, conversation, self.refuse, self.answer_sizes)

    def refuse(self, error: MagnetarError, reply: Reply) -> None:
        """Send a refusal when all records that it depends on are durable."""
        self._runtime.refuse(error, reply)

    def _serving(self, handler: Handler) -> Handler:
        runtime = self._runtime

        def handle(run: Run) -> None:
            if not runtime.is_serving:
                # At once: nothing becomes durable after a failed write.
                for _, reply in run.items:
                    reply.fail(LogUnavailable("the coordinator is starting or stopping; ask again"))
                return

            def failed(error: Exception, request: Any, reply: Reply) -> None:
                if isinstance(error, OutcomeMissing):
                    again = Run([(request, reply)], run.failed)
                    runtime.look_up(error.txn_id, reply, partial(handle, again))
                else:
                    run.failed(error, request, reply)

            with runtime.parking.together():
                handler(Run(run.items, failed))

        return handle

    def _hello(self, request: common.CommandHello, reply: Reply) -> None:
        check_client(request.protocol_version, request.client_name)
        config = self._runtime.config
        # Without a list of members, it takes all clients that its broker takes.
        if config.cluster_hash:
            ClusterIdentity.of(config).check(ClusterIdentity.of(request))
        frame_bytes_max = FRAME_BYTES_MAX
        if reply.session is not None:
            frame_bytes_max = reply.session.frame_bytes_max
            reply.session.client_name = request.client_name
        reply.send(
            common.CommandHelloResponse(
                protocol_version=PROTOCOL_VERSION,
                server_name=config.name,
                cluster_id=config.cluster_id,
                membership_version=config.membership_version,
                cluster_hash=config.cluster_hash,
                frame_bytes_max=frame_bytes_max,
            )
        )
