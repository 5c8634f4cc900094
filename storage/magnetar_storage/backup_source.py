"""The server's side of an online backup: a frozen view of its store, read portion by portion.

While the store is held, no group is written, so nothing that the server would do next is durable,
and nothing of it leaves the process (rule a). If every server of a cluster is held at one moment,
their views together are a moment of the cluster, as if all had been killed at once. So the client
that makes the backup holds all servers, and then releases them; a server that was not held until it
was released says so.
Source: docs/design/0012-backup.md.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from magnetar_core.errors import Gone, InvalidArgument, ResourceInUse
from magnetar_storage.group_commit import GroupCommit
from magnetar_storage.store import KEY_END, Snapshot, Store

# Clients wait meanwhile.
HOLD_MS_MAX: Final = 10_000
# A view that is no longer read pins old rows.
IDLE_SECONDS_MAX: Final = 60.0
READ_ROWS_MAX: Final = 16_384
READ_BYTES_MAX: Final = 4 << 20

_ENDED: Final = "this backup was ended before the view was frozen: make another backup"

_SIZES: Final = struct.Struct(">II")


class BackupSource:
    """The view for a backup; there is one at a time.

    Args:
        families: of the store; all are backed up.
    """

    def __init__(self, store: Store, commits: GroupCommit, families: Collection[str]) -> None:
        self.families = tuple(families)
        self._store = store
        self._commits = commits
        self._token = 0
        self._view: Snapshot | None = None
        self._is_held = False
        self._release_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    async def hold(self, token: int, hold_ms: int) -> None:
        """Freeze a view, and stop writing groups until release(), or until the time is up.

        Raises:
            InvalidArgument: the token is missing, or the time is too long.
            ResourceInUse: another backup is being made.
            Gone: it was ended while it waited for a group that was being written.
            StoreFailed: the store has failed.
        """
        if not token or not 0 < hold_ms <= HOLD_MS_MAX:
            raise InvalidArgument(f"a backup has a token, and holds for up to {HOLD_MS_MAX} ms")
        if self._token:
            raise ResourceInUse("another backup is being made here: wait until it has ended")
        self._token = token
        try:
            await self._commits.hold()
            if self._token != token:
                self._commits.release()
                raise Gone(_ENDED)
            self._is_held = True
            view = await self._store.snapshot()
            if self._token != token:
                # The call that ended it has released the view.
                await view.close()
                raise Gone(_ENDED)
        except BaseException:
            if self._token == token:
                self._let_go()
                self._token = 0
            raise
        self._view = view
        loop = asyncio.get_running_loop()
        self._release_timer = loop.call_later(hold_ms / 1_000, self._let_go)
        self._begin_idling()

    def release(self, token: int) -> bool:
        """Write groups again; return whether none was written since hold()."""
        if token != self._token or not token:
            return False
        was_held = self._is_held
        self._let_go()
        return was_held

    async def read(
        self, token: int, family: str, start: bytes, bytes_max: int
    ) -> tuple[Sequence[tuple[bytes, bytes]], bytes | None]:
        """Return rows of a family from a key on, and the key to go on at; None: that was all.

        Raises:
            Gone: the view was given up.
            InvalidArgument: there is no such family.
            RowsUnreadable: rows are damaged.
        """
        view = self._view
        if view is None or token != self._token:
            raise Gone("the view of this backup was given up: make another backup")
        if family not in self.families:
            raise InvalidArgument(f"there is no family {family!r}")
        self._begin_idling()
        rows = await view.scan(
            family,
            start,
            KEY_END,
            rows_max=READ_ROWS_MAX,
            bytes_max=min(bytes_max or READ_BYTES_MAX, READ_BYTES_MAX),
        )
        if token == self._token:
            self._begin_idling()
        return rows, rows[-1][0] + b"\x00" if rows else None

    async def end(self, token: int) -> None:
        """Give the view up. Repeating it is harmless."""
        if token and token == self._token:
            await self.close()

    async def close(self) -> None:
        """Give up whatever is there."""
        self._let_go()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        view, self._view, self._token = self._view, None, 0
        if view is not None:
            await view.close()

    def _begin_idling(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(IDLE_SECONDS_MAX, self._forget)

    def _forget(self) -> None:
        """Drop a view that is not read; the store releases the rows that it pinned."""
        self._view = None
        self._token = 0

    def _let_go(self) -> None:
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None
        if self._is_held:
            self._is_held = False
            self._commits.release()


def pack_rows(rows: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return rows as a backup stores them."""
    parts: list[bytes] = []
    for key, value in rows:
        parts += (_SIZES.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def unpack_rows(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each row that pack_rows packed.

    Raises:
        ValueError: these are not packed rows.
    """
    at = 0
    while at < len(packed):
        if at + _SIZES.size > len(packed):
            raise ValueError("packed rows end in the middle of a row")
        key_bytes, value_bytes = _SIZES.unpack_from(packed, at)
        at += _SIZES.size
        end = at + key_bytes + value_bytes
        if end > len(packed):
            raise ValueError("packed rows end in the middle of a row")
        yield packed[at : at + key_bytes], packed[at + key_bytes : end]
        at = end
