"""Commands of an online backup; broker and coordinator answer them in the same way.

Their answers do not wait for the group commit, which the backup holds: they do not depend on rows
that are not durable yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from magnetar_core.errors import DataLoss, LogUnavailable, MagnetarError
from magnetar_core.server.commands import (
    AnswerSizes,
    Handler,
    Reply,
    each_of,
    internal_failure,
)
from magnetar_core.wire import common_pb2 as wire
from magnetar_storage.backup_source import READ_BYTES_MAX, BackupSource, pack_rows
from magnetar_storage.store import RowsUnreadable, StoreFailed

log = logging.getLogger(__name__)

BACKUP_ANSWER_SIZES: Final[AnswerSizes] = {"read_backup": lambda _: READ_BYTES_MAX}


class BackupCommands:
    """Handlers of the commands.

    Args:
        kind: "broker" or "coordinator".
        member: the server's name.
        spawn: runs a task that ends with the server.
    """

    def __init__(
        self,
        source: BackupSource,
        kind: str,
        member: str,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._source = source
        self._kind = kind
        self._member = member
        self._spawn = spawn

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handler of each command field."""
        return each_of(
            {
                "hold_backup": lambda command, reply: self._answer(
                    reply, self._hold(command, reply)
                ),
                "release_backup": self._release,
                "read_backup": lambda command, reply: self._answer(reply, self._read(command)),
                "end_backup": lambda command, reply: self._answer(reply, self._end(command)),
            }
        )

    async def _hold(
        self, command: wire.CommandHoldBackup, reply: Reply
    ) -> wire.CommandHoldBackupResponse:
        await self._source.hold(command.backup_token, command.hold_ms)
        log.warning("%s makes a backup of this server", reply.origin or "this process")
        return wire.CommandHoldBackupResponse(
            kind=self._kind, member=self._member, families=self._source.families
        )

    def _release(self, command: wire.CommandReleaseBackup, reply: Reply) -> None:
        was_held = self._source.release(command.backup_token)
        reply.send(wire.CommandReleaseBackupResponse(was_held=was_held))

    async def _read(self, command: wire.CommandReadBackup) -> wire.CommandReadBackupResponse:
        rows, next_key = await self._source.read(
            command.backup_token, command.family, command.start_key, command.bytes_max
        )
        return wire.CommandReadBackupResponse(
            rows=pack_rows(rows),
            row_count=len(rows),
            next_key=next_key or b"",
            is_last=next_key is None,
        )

    async def _end(self, command: wire.CommandEndBackup) -> wire.CommandEndBackupResponse:
        await self._source.end(command.backup_token)
        return wire.CommandEndBackupResponse()

    def _answer(self, reply: Reply, work: Coroutine[Any, Any, Any]) -> None:
        async def answer() -> None:
            try:
                reply.send(await work)
            except StoreFailed:
                reply.fail(LogUnavailable("the store has ended; ask again"))
            except RowsUnreadable as error:
                reply.fail(DataLoss(f"the store is damaged, and cannot be backed up: {error}"))
            except MagnetarError as error:
                reply.fail(error)
            except Exception:
                log.exception("a command of a backup could not be answered")
                reply.fail(internal_failure())

        self._spawn(answer())
