"""Check of a partition at rest: its log, its sidecar, and its transaction index against each other.

The three are written in the same batches, so they agree at every moment, also after a kill. Markers
come in the order of offsets and messages in the order of TxnIDs, so the markers of a partition are
held in memory, at a few hundred bytes each.
Source: docs/design/0001-protocol.md; PIP-31, Broker - Transaction Buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from magnetar_broker import keys
from magnetar_broker.log.entries import MarkerEntry, MarkerWriter, parse_entry, stored_batch_header
from magnetar_broker.log.offset_set import OffsetSet
from magnetar_broker.offline.broker import IndexEntry, OfflineBroker, Place
from magnetar_core.errors import DataLoss
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire import record_pb2 as records
from magnetar_storage.offline.findings import Findings
from magnetar_storage.offline.rows import OfflineRows

# Takes a transaction, the participant, and its status there.
Saw = Callable[[TxnID, str, common.TxnStatus], object]


class Batch(NamedTuple):
    """A batch of the sidecar; without messages, it is damaged."""

    ordinal: int
    first_index: int
    message_count: int


class OfflinePartition:
    """The check of a partition."""

    def __init__(
        self, rows: OfflineRows, broker: OfflineBroker, findings: Findings, place: Place, saw: Saw
    ) -> None:
        self._rows = rows
        self._broker = broker
        self._findings = findings
        self._place = place
        self._row: records.PartitionRow = broker.partitions[place]
        self._name = broker.name(place)
        self._prefix = keys.partition(*place)
        self._index = broker.index(*place)
        self._skipped = OffsetSet((one.first, one.last) for one in self._row.skipped)
        self._markers: dict[TxnID, MarkerEntry] = {}
        self._saw = saw

    async def run(self) -> None:
        """Check everything."""
        await self._check_log()
        is_log_whole = self._rows.is_whole(keys.LOG, self._prefix)
        if self._rows.is_whole(keys.TXNINDEX):
            self._check_index(is_log_whole=is_log_whole)
            await self._check_sidecar(is_log_whole=is_log_whole)

    # The log.

    async def _check_log(self) -> None:
        row, expected = self._row, self._row.first_offset
        async for key, value in self._rows.of_prefix(keys.LOG, self._prefix):
            entry_id = keys.last_u64(key)
            try:
                entry = parse_entry(entry_id, value, verify=True)
            except DataLoss as error:
                if entry_id not in self._skipped:
                    self._damage("batch", f"at {entry_id}", str(error))
                    expected = max(expected, entry_id)
                continue
            if entry_id < row.first_offset < entry.end:
                # Messages before that were deleted, and the batch has more.
                pass
            elif entry_id < row.first_offset:
                self._damage("log-range", f"at {entry_id}", f"the log begins at {row.first_offset}")
            elif entry_id < expected:
                self._damage(
                    "log-dense", f"at {entry_id}", f"the entry before it ends at {expected}"
                )
            else:
                self._check_gap(expected, entry_id)
            expected = max(expected, entry.end)
            if isinstance(entry, MarkerEntry):
                if entry.txn_id in self._markers:
                    self._damage(
                        "marker-twice",
                        f"at {entry_id}",
                        f"{entry.txn_id} has a marker at {self._markers[entry.txn_id].entry_id}",
                    )
                self._markers[entry.txn_id] = entry
                self._saw(entry.txn_id, self._name, common.COMMITTED)
        if not self._rows.is_whole(keys.LOG, self._prefix):
            return
        if expected > row.end_offset:
            self._damage("log-range", f"up to {expected}", f"the log ends at {row.end_offset}")
        self._check_gap(expected, row.end_offset)

    def _check_gap(self, start: int, end: int) -> None:
        """Check that nothing is missing, but for ranges that were given up."""
        if start >= end:
            return
        missing = OffsetSet([(start, end - 1)])
        missing.difference_update(self._skipped)
        for first, last in missing.ranges():
            self._damage(
                "log-dense", f"offsets {first} to {last}", "entries are missing from the log"
            )

    # The index.

    def _check_index(self, *, is_log_whole: bool) -> None:
        for txn_id, entry in self._index.items():
            if entry.row is None:
                self._damage("index", str(txn_id), "its writers are known, and its own row is not")
                continue
            self._saw(txn_id, self._name, entry.status)
            check_writers(self._findings, self._name, txn_id, entry)
            if is_log_whole and entry.marker_entry_id is not None:
                self._check_marker(txn_id, entry.marker_entry_id)
        for txn_id, marker in self._markers.items():
            known = self._index.get(txn_id)
            if known is None:
                if self._broker.must_be_indexed(txn_id):
                    self._damage(
                        "index",
                        str(txn_id),
                        f"its marker is at {marker.entry_id}, and the index has no entry of it",
                    )
            elif known.row is not None and known.marker_entry_id != marker.entry_id:
                self._damage(
                    "index",
                    str(txn_id),
                    f"its marker is at {marker.entry_id}, and the index says"
                    f" {common.TxnStatus.Name(known.status)}, marker at {known.marker_entry_id}",
                )

    def _check_marker(self, txn_id: TxnID, entry_id: int) -> None:
        if txn_id in self._markers or self._is_gone(entry_id):
            return
        self._damage(
            "marker",
            str(txn_id),
            f"the index says that its marker is at {entry_id}, and it is not there: a committed"
            " transaction is invisible here",
        )

    def _is_gone(self, entry_id: int) -> bool:
        """Return whether retention removed an entry, or it was given up."""
        return entry_id < self._row.first_offset or entry_id in self._skipped

    # The sidecar.

    async def _check_sidecar(self, *, is_log_whole: bool) -> None:
        waiting = dict(self._markers)
        open_here = {one for one, entry in self._index.items() if entry.is_open}
        current: TxnID | None = None
        batches: list[Batch] = []

        def judge() -> None:
            if current is not None:
                marker = waiting.pop(current, None)
                open_here.discard(current)
                self._judge(current, marker, batches, is_log_whole=is_log_whole)

        async for key, value in self._rows.of_prefix(keys.TXNLOG, self._prefix):
            txn_id, ordinal, index = keys.txnlog_place(key)
            if txn_id != current:
                judge()
                current, batches = txn_id, []
            try:
                count = stored_batch_header(value, verify=True).count
            except DataLoss as error:
                self._damage("batch", f"{txn_id}, writer {ordinal} at {index}", str(error))
                count = 0
            batches.append(Batch(ordinal, index, count))
        judge()
        if not self._rows.is_whole(keys.TXNLOG, self._prefix):
            return
        for txn_id, marker in waiting.items():
            self._damage(
                "sidecar",
                str(txn_id),
                f"its marker at {marker.entry_id} counts {marker.count} messages, and the sidecar"
                " has none",
            )
        for txn_id in open_here:
            if any(next_index for _, next_index in self._index[txn_id].writers.values()):
                self._damage("sidecar", str(txn_id), "it is open, and its messages are missing")

    def _judge(
        self,
        txn_id: TxnID,
        marker: MarkerEntry | None,
        batches: Sequence[Batch],
        *,
        is_log_whole: bool,
    ) -> None:
        entry = self._index.get(txn_id)
        if marker is not None:
            for writer in marker.writers:
                self._check_messages(txn_id, writer, batches, cut=True)
            self._check_others(txn_id, {one.ordinal for one in marker.writers}, batches)
        elif not is_log_whole:
            return
        elif entry is not None and entry.is_open:
            for ordinal, (writer_id, next_index) in entry.writers.items():
                writer = MarkerWriter(ordinal, writer_id, next_index)
                self._check_messages(txn_id, writer, batches, cut=False)
            self._check_others(txn_id, set(entry.writers), batches)
        elif entry is not None and entry.row is not None:
            if entry.marker_entry_id is not None:
                if self._is_gone(entry.marker_entry_id):
                    self._note_left(txn_id)
            else:
                self._damage(
                    "sidecar",
                    str(txn_id),
                    f"it is {common.TxnStatus.Name(entry.status)} here with nothing to keep, and"
                    " messages of it are stored",
                )
        elif self._broker.must_be_indexed(txn_id):
            self._damage("index", str(txn_id), "messages of it are stored, and the index lacks it")
        else:
            self._note_left(txn_id)

    def _check_messages(
        self, txn_id: TxnID, writer: MarkerWriter, batches: Sequence[Batch], *, cut: bool
    ) -> None:
        """Check that a writer's batches have its messages, without gaps.

        Args:
            cut: whether the last batch may have messages that the commit discarded.
        """
        expected = 0
        for _, index, count in (batch for batch in batches if batch.ordinal == writer.ordinal):
            if expected >= writer.count or index != expected:
                break
            if not count:
                return  # The damaged batch is a finding of its own.
            expected += count
        else:
            if expected == writer.count or (cut and expected > writer.count):
                return
        self._damage(
            "sidecar",
            f"{txn_id}, producer {writer.producer_id}",
            f"{writer.count} messages belong to the transaction, and the stored batches have"
            f" {expected} without a gap, or more than that",
        )

    def _check_others(self, txn_id: TxnID, known: set[int], batches: Sequence[Batch]) -> None:
        others = sorted({batch.ordinal for batch in batches} - known)
        if others:
            self._damage(
                "sidecar", str(txn_id), f"messages of writers {others} are stored, who are unknown"
            )

    def _note_left(self, txn_id: TxnID) -> None:
        self._findings.note(
            "left-over",
            f"{self._name}: {txn_id}",
            "messages are stored whose marker was removed with a range that was given up: they "
            "take space, and are never read",
        )

    def _damage(self, check: str, where: str, text: str) -> None:
        self._findings.damage(check, f"{self._name}: {where}", text)


def check_writers(findings: Findings, name: str, txn_id: TxnID, entry: IndexEntry) -> None:
    """Check the rows of a transaction's writers."""
    if not entry.is_open and entry.writers:
        findings.damage(
            "index", f"{name}: {txn_id}", "it has ended, and the rows of its writers are there"
        )
    if sorted(entry.writers) != list(range(len(entry.writers))):
        findings.damage(
            "index",
            f"{name}: {txn_id}",
            f"rows of writers are missing: there are those of {sorted(entry.writers)}",
        )
