"""Makes a backup: holds all servers at one moment, releases them, and reads their views.

Source: docs/design/0012-backup.md.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from magnetar_cli.backup.files import Contents, RowsWriter, ServerFile, write_contents
from magnetar_cli.server_link import ServerLink
from magnetar_core.config import InvalidConfig
from magnetar_core.errors import LogUnavailable, MagnetarError
from magnetar_core.process import durable_files
from magnetar_core.transport.transport import LinkClosed, Transport
from magnetar_core.wire import common_pb2 as wire

HOLD_MS: Final = 5_000
# A server may be slow for a moment; clients wait a little each time.
ATTEMPTS: Final = 5
PAUSE_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 30.0
# Left free on the volume of the backup.
FREE_BYTES_MIN: Final = 64 << 20

# Takes the number of rows that were written.
Progress = Callable[[int], object]


class Target(NamedTuple):
    """A server to back up, as `cluster_info` has it."""

    kind: str
    name: str
    position: int
    address: str


_SERVICES: Final = {"broker": "Broker", "coordinator": "TransactionCoordinator"}


async def make_backup(
    transport: Transport,
    targets: Sequence[Target],
    directory: Path,
    contents: Contents,
    random: Random,
    progress: Progress,
) -> None:
    """Make a backup in a new directory.

    Raises:
        InvalidConfig: the directory exists, or its volume is full.
        LogUnavailable: the servers could not be held together.
        LinkClosed: a server does not answer.
        MagnetarError: a server refuses.
    """
    part = prepare(directory)
    links: list[ServerLink] = []
    try:
        for one in targets:
            links.append(
                await ServerLink.open(
                    transport,
                    one.address,
                    _SERVICES[one.kind],
                    answer_timeout_s=ANSWER_TIMEOUT_S,
                )
            )
        token, families, contents.held_ms = await _freeze(links, random)
        try:
            for one, link, names in zip(targets, links, families, strict=True):
                server = ServerFile(
                    one.kind, one.name, one.position, f"{one.kind}-{one.position}.rows", names
                )
                await _read(link, token, part, server, progress)
                contents.servers.append(server)
                await link.ask(wire.CommandEndBackup(backup_token=token))
        finally:
            await _each(links, wire.CommandEndBackup(backup_token=token))
        write_contents(part, contents)
        part.rename(directory)
        durable_files.sync(directory.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        for link in links:
            link.close()


def prepare(directory: Path) -> Path:
    """Return the directory in which the backup is made until it is complete.

    Raises:
        InvalidConfig: the target exists, or another backup is being made there.
    """
    if directory.exists():
        raise InvalidConfig(f"{directory} exists: a backup is made in a new directory")
    part = directory.with_name(f"{directory.name}.part")
    try:
        part.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InvalidConfig(
            f"{part} exists: another backup is being made there, or was interrupted; remove it"
        ) from None
    return part


async def _freeze(links: Sequence[ServerLink], random: Random) -> tuple[int, list[list[str]], int]:
    """Hold all servers at one moment.

    Returns:
        The token, the families of each server, and for how long they were held.
    """
    refusal = ""
    loop = asyncio.get_running_loop()
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        token = random.getrandbits(63) + 1
        began = loop.time()
        held = await _each(links, wire.CommandHoldBackup(backup_token=token, hold_ms=HOLD_MS))
        # No server is released before the last one is held: this is the moment of the backup.
        released = await _each(links, wire.CommandReleaseBackup(backup_token=token))
        held_ms = round(1_000 * (loop.time() - began))
        errors = [one for one in (*held, *released) if isinstance(one, BaseException)]
        if not errors and all(one.was_held for one in released):
            return token, [list(one.families) for one in held], held_ms
        refusal = str(errors[0]) if errors else f"holding all took longer than {HOLD_MS} ms"
        await _each(links, wire.CommandEndBackup(backup_token=token))
        for error in errors:
            if not isinstance(error, LinkClosed | MagnetarError):
                raise error
    raise LogUnavailable(
        f"the servers could not be held at one moment, {ATTEMPTS} times: {refusal}; nothing was"
        " backed up"
    )


async def _each(links: Sequence[ServerLink], body: Any) -> list[Any]:
    """Send a command to all servers at once; return answers, and errors in their places."""
    return await asyncio.gather(*(link.ask(body) for link in links), return_exceptions=True)


async def _read(
    link: ServerLink, token: int, part: Path, server: ServerFile, progress: Progress
) -> None:
    with RowsWriter(part, server) as writer:
        for family in server.families:
            start = b""
            while True:
                answer = await link.ask(
                    wire.CommandReadBackup(backup_token=token, family=family, start_key=start)
                )
                if answer.row_count:
                    check_room(part, len(answer.rows))
                    writer.write(family, answer.rows, answer.row_count)
                    progress(answer.row_count)
                if answer.is_last:
                    break
                start = answer.next_key


def check_room(directory: Path, byte_count: int) -> None:
    """Check that a volume has room left.

    Raises:
        InvalidConfig: it has not.
    """
    free = FREE_BYTES_MIN
    with suppress(OSError):
        free = shutil.disk_usage(directory).free
    if free < FREE_BYTES_MIN + byte_count:
        raise InvalidConfig(
            f"the volume of {directory} is full: {free >> 20} MiB are left; choose another one"
        )
