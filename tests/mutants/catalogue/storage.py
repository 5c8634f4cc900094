"""Mistakes in stores."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, LeaveOut, Put, ReturnEarly, Swap, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "values-ahead-are-garbage",
        "magnetar_storage.rocksdb.value_log:ValueLog._look_at_garbage",
        Without("*(one.file for one in self._ahead.values())"),
        "Values go with their file while the rows that point to them are being written.",
    ),
    Mutant(
        "tables-ahead-of-values",
        "magnetar_storage.rocksdb.engine:_flush_behind",
        LeaveOut("values.sync(...)"),
        "Rows are put into a table before the values are synced that they point to.",
    ),
    Mutant(
        "values-synced-after-their-rows",
        "magnetar_storage.rocksdb.engine:RocksStore._sync",
        Swap("self._values.sync(...)", "self._database.flush_wal(...)"),
        "A loss of power between the two leaves synced rows without their values.",
    ),
    Mutant(
        "name-of-a-file-not-synced",
        "magnetar_storage.data_dir.value_files:ValueFiles.begin_if_full",
        LeaveOut("self._has_new_name = ..."),
        "A loss of power takes a new file, whose values were synced.",
    ),
    Mutant(
        "torn-change-replayed",
        "magnetar_storage.rocksdb.opening:recover_directory",
        LeaveOut("cut(...)"),
        "After a loss of power, a change whose values are missing comes back.",
    ),
    Mutant(
        "late-sync-covers-later-groups",
        "magnetar_storage.late_sync:LateSyncCommit._sync_once",
        Swap("target = ...", "self._store.sync(...)"),
        "Groups count as durable that were written after their sync began.",
    ),
    Mutant(
        "writes-on-after-failed-sync",
        "magnetar_storage.late_sync:LateSyncCommit._sync",
        LeaveOut("self._task.cancel(...)"),
        "After a failed sync, the open group is written all the same (rule b).",
    ),
    Mutant(
        "note-stays-spotless",
        "magnetar_storage.rocksdb.engine:RocksStore._with_values_synced",
        LeaveOut("if self._late_syncs: ..."),
        "After a failed sync, the next start believes that nothing is lost.",
    ),
    Mutant(
        "durable-without-sync",
        "magnetar_storage.group_commit:GroupCommit._write",
        LeaveOut("self._store.sync(...)"),
        "A group counts as durable when it is written, before it is synced.",
    ),
    Mutant(
        "open-group-counts-as-sealed",
        "magnetar_storage.group_commit:GroupCommit.position",
        Without("self._deferred"),
        "A reply does not wait for rows that are written once a group.",
    ),
    Mutant(
        "overtakes-parked",
        "magnetar_storage.ready_callbacks:ReadyCallbacks.call",
        Put("self._running is not None and len(self._running) < 2", "self._running is not None"),
        "A callback that is registered inside another overtakes those parked before it.",
    ),
    Mutant(
        "failure-told-to-nobody",
        "magnetar_storage.group_commit:GroupCommit._run",
        LeaveOut("self._on_failure(...)"),
        "A failed write does not end the process (rule b).",
    ),
    Mutant(
        "scan-includes-end",
        "magnetar_storage.rocksdb.reads:_gather",
        Compare("iterator.key() == end", ">"),
        "A reverse scan on RocksDB stops at a row that lies at the range's end.",
    ),
    Mutant(
        "object-store-sync-of-nothing",
        "magnetar_storage.slatedb.engine:SlateStore.sync",
        Put("asyncio.sleep(0)", "self._database.flush_with_options(...)"),
        "A group counts as durable when SlateDB has it in memory.",
    ),
    Mutant(
        "object-store-two-answer-for-a-second",
        "magnetar_storage.slatedb.opening:until_owner_knows",
        LeaveOut("asyncio.sleep(...)"),
        "A new owner serves while the one before does not know of it yet.",
    ),
    Mutant(
        "abandoned-groups-are-written",
        "magnetar_storage.group_commit:GroupCommit.abandon",
        ReturnEarly(),
        "Who has lost a shard goes on writing to its store.",
    ),
)
