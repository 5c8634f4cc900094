"""Failed reads: counted, and logged once for each place."""

from __future__ import annotations

import logging
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from magnetar_storage.store import RowsUnreadable, Snapshot, Store, WriteBatch

log = logging.getLogger(__name__)

# Failures in further places are only counted.
_LOGGED_MAX: Final = 1_000


class ReadMetrics:
    """Metrics of a store's failed reads.

    Args:
        registry: where the metrics are registered.
        prefix: beginning of the metrics' names, such as "magnetar_broker".
    """

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        self._unreadable = Counter(
            f"{prefix}_unreadable_reads",
            "Reads that met rows which are damaged, or which the disk does not give; any is too"
            " many. The log says where.",
            ["family"],
            registry=registry,
        )
        self._logged: set[tuple[str, str]] = set()

    def failed(self, family: str, start: bytes, error: RowsUnreadable) -> None:
        """Count a failed read that began at a key, and log its place once."""
        self._unreadable.labels(family).inc()
        # The engine's message names the file and the place in it.
        place = (family, str(error))
        if place in self._logged or len(self._logged) >= _LOGGED_MAX:
            return
        self._logged.add(place)
        at = error.rows[-1][0] if error.rows else start
        log.error("rows of %r cannot be read from key %s on: %s", family, at.hex(), error)


class CountedReads:
    """A store that counts its failed reads and passes every call to another store."""

    def __init__(self, store: Store, metrics: ReadMetrics) -> None:
        self._store = store
        self._metrics = metrics

    async def write(self, batch: WriteBatch) -> None:
        """Apply a batch; see `Store.write`."""
        await self._store.write(batch)

    def write_ahead(self, batch: WriteBatch) -> None:
        """Begin to write a batch that may still grow; see `Store.write_ahead`."""
        self._store.write_ahead(batch)

    async def sync(self) -> None:
        """Make all written batches durable; see `Store.sync`."""
        await self._store.sync()

    def free_bytes(self) -> int:
        """Return the free space, in bytes."""
        return self._store.free_bytes()

    async def get(self, family: str, key: bytes) -> bytes | None:
        """Return a row's value; see `Reader.get`."""
        try:
            return await self._store.get(family, key)
        except RowsUnreadable as error:
            self._metrics.failed(family, key, error)
            raise

    async def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        rows_max: int,
        bytes_max: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """Return the rows of a range; see `Reader.scan`."""
        try:
            return await self._store.scan(
                family, start, end, rows_max=rows_max, bytes_max=bytes_max, reverse=reverse
            )
        except RowsUnreadable as error:
            self._metrics.failed(family, start, error)
            raise

    async def prefixes(
        self, family: str, start: bytes, end: bytes, *, length: int, count_max: int
    ) -> tuple[list[bytes], bytes | None]:
        """Return the distinct beginnings of keys; see `Store.prefixes`."""
        try:
            return await self._store.prefixes(
                family, start, end, length=length, count_max=count_max
            )
        except RowsUnreadable as error:
            self._metrics.failed(family, start, error)
            raise

    async def snapshot(self) -> Snapshot:
        """Freeze a view of all families; see `Store.snapshot`."""
        return await self._store.snapshot()

    async def close(self) -> None:
        """Release the store; see `Store.close`."""
        await self._store.close()
