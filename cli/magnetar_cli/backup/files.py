"""Files of a backup: one for each server, and `backup.json`, which makes the backup complete.

    block   magic 4 | family 4 | rows 4 | stored size 4 | CRC-32C of these and the stored bytes 4
    stored  packed rows, compressed with zstd

`backup.json` names the servers, their families, and the number of blocks and rows of each file; it
is written last. A file that was cut short, or changed, is noticed before a row of it is used.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

import google_crc32c
import zstandard

from magnetar_core.config import InvalidConfig
from magnetar_core.errors import DataLoss
from magnetar_core.process.durable_files import write_whole
from magnetar_storage.store_stamp import LAYOUT, check_layout

CONTENTS: Final = "backup.json"
# Increases when an older version cannot read what this version writes.
FORMAT: Final = 1
_MAGIC: Final = b"MGBK"
_HEAD: Final = struct.Struct(">4sIII")
_CHECKSUM: Final = struct.Struct(">I")
# Of a block, before it is compressed: what a server sends, and far more.
_BLOCK_BYTES_MAX: Final = 256 << 20


@dataclass(slots=True)
class ServerFile:
    """The rows of a server.

    Attributes:
        position: a broker's place among the brokers, or a coordinator's TCID.
    """

    kind: str
    member: str
    position: int
    file: str
    families: list[str]
    blocks: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Contents:
    """Content of `backup.json`."""

    cluster_id: str
    made_at: str
    version: str
    held_ms: int
    servers: list[ServerFile] = field(default_factory=list)
    format: int = FORMAT
    layout: str = LAYOUT

    @property
    def row_count(self) -> int:
        """The rows of all servers."""
        return sum(server.rows for server in self.servers)


class RowsWriter:
    """Writes the file of a server."""

    def __init__(self, directory: Path, server: ServerFile) -> None:
        self._server = server
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._file: BinaryIO = (directory / server.file).open("xb")

    def __enter__(self) -> RowsWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def write(self, family: str, rows: bytes, row_count: int) -> None:
        """Write packed rows of a family."""
        stored = self._compressor.compress(rows)
        head = _HEAD.pack(_MAGIC, self._server.families.index(family), row_count, len(stored))
        checksum = google_crc32c.extend(google_crc32c.value(head), stored)
        self._file.write(head + _CHECKSUM.pack(checksum) + stored)
        self._server.blocks += 1
        self._server.rows += row_count
        self._server.bytes += _HEAD.size + _CHECKSUM.size + len(stored)


def read_blocks(directory: Path, server: ServerFile) -> Iterator[tuple[str, int, bytes]]:
    """Yield family, number of rows, and packed rows of each block.

    Raises:
        DataLoss: the file is not as it was written.
    """
    path = directory / server.file
    decompressor = zstandard.ZstdDecompressor()
    blocks = rows = 0
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            checksum = file.read(_CHECKSUM.size)
            if len(head) < _HEAD.size or len(checksum) < _CHECKSUM.size:
                raise _damaged(path, blocks)
            magic, family, row_count, size = _HEAD.unpack(head)
            if magic != _MAGIC or family >= len(server.families) or size > _BLOCK_BYTES_MAX:
                raise _damaged(path, blocks)
            stored = file.read(size)
            found = google_crc32c.extend(google_crc32c.value(head), stored)
            if len(stored) < size or found != _CHECKSUM.unpack(checksum)[0]:
                raise _damaged(path, blocks)
            blocks += 1
            rows += row_count
            yield (
                server.families[family],
                row_count,
                decompressor.decompress(stored, max_output_size=_BLOCK_BYTES_MAX),
            )
    if (blocks, rows) != (server.blocks, server.rows):
        raise DataLoss(
            f"{path} has {rows} rows in {blocks} blocks, and {CONTENTS} counts {server.rows} in"
            f" {server.blocks}: use another copy of the backup"
        )


def write_contents(directory: Path, contents: Contents) -> None:
    """Make the backup complete."""
    write_whole(directory / CONTENTS, json.dumps(asdict(contents), indent=2) + "\n")


def read_contents(directory: Path) -> Contents:
    """Return the contents of a backup.

    Raises:
        InvalidConfig: the directory is not a backup, or the backup is unfinished or of another
            version.
    """
    try:
        found: dict[str, Any] = {"layout": "", **json.loads((directory / CONTENTS).read_text())}
        servers = [ServerFile(**one) for one in found.pop("servers")]
        contents = Contents(**found, servers=servers)
    except FileNotFoundError:
        raise InvalidConfig(
            f"{directory} is not a backup, or was never completed: {CONTENTS} is missing"
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidConfig(f"{directory / CONTENTS} cannot be read: {error}") from error
    if contents.format > FORMAT:
        raise InvalidConfig(
            f"the backup has format {contents.format}, and this version reads up to {FORMAT}:"
            " restore it with the version that made it, or a later one"
        )
    check_layout(contents.layout, f"the backup in {directory}")
    for server in servers:
        if Path(server.file).name != server.file:
            raise InvalidConfig(f"{directory / CONTENTS} names a file outside of the backup")
    return contents


def _damaged(path: Path, blocks: int) -> DataLoss:
    return DataLoss(f"{path} is damaged in its block {blocks}: use another copy of the backup")
