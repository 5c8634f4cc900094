"""Mistakes in the store and its group commit."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMMIT = "storage/magnetar_storage/group_commit.py"
_MEMORY = "storage/magnetar_storage/memory/engine.py"
_TABLE = "storage/magnetar_storage/memory/table.py"
_ROCKS = "storage/magnetar_storage/rocksdb/engine.py"
_OPENING = "storage/magnetar_storage/rocksdb/opening.py"
_BACKGROUND = "storage/magnetar_storage/rocksdb/background.py"
_READS = "storage/magnetar_storage/rocksdb/reads.py"
_LATE = "storage/magnetar_storage/late_sync.py"
_LOST = "storage/magnetar_storage/rocksdb/lost_changes.py"
_CHECK = "storage/magnetar_storage/data_dir/directory_check.py"
_IDENTITY = "storage/magnetar_storage/store_identity.py"

_VALUES = "storage/magnetar_storage/rocksdb/value_log.py"
_VALUE_FILES = "storage/magnetar_storage/data_dir/value_files.py"
_FLUSHES = "storage/magnetar_storage/rocksdb/flushes.py"
_ROUNDS = "storage/magnetar_storage/rocksdb/value_rounds.py"

MUTANTS = (
    Mutant(
        name="values-ahead-are-garbage",
        file=_VALUES,
        old=", *(one.file for one in self._ahead.values())}",
        new="}",
        mistake="Values go with their file while the rows that point to them are being written.",
    ),
    Mutant(
        name="whole-files-listed-behind-the-look",
        file=_VALUES,
        old="        self._put_file_rows(raw)\n        self._look_at_garbage(raw, now_seconds)\n",
        new="        self._look_at_garbage(raw, now_seconds)\n",
        mistake="A file is removed and stays on the list: the store never opens again.",
    ),
    Mutant(
        name="marks-name-unlisted-files",
        file=_VALUES,
        old="        return self._end",
        new="        return self._files.end",
        mistake="The next process does not sync what was left unsynced, and relies on it.",
    ),
    Mutant(
        name="values-ahead-again",
        file=_VALUES,
        old="        self._ahead_count = len(operations)",
        new="        pass",
        mistake="Large values are stored several times.",
    ),
    Mutant(
        name="values-ahead-of-another-batch",
        file=_VALUES,
        old="        if self._ahead_of is not operations:",
        new="        if self._ahead_of is None:",
        mistake="Rows of a batch point to values of another one.",
    ),
    Mutant(
        name="deleted-rows-come-back-when-moved",
        file=_VALUES,
        old="            if self._families[place.family].get(place.key) == row:\n",
        new="            if row:\n",
        mistake="A row that was deleted since its file was looked at gets a pointer again.",
    ),
    Mutant(
        name="tables-ahead-of-values",
        file=_ROCKS,
        old="    values.sync(unsynced)\n    for rows in families:",
        new="    for rows in families:",
        mistake="Rows are put into a table before the values are synced that they point to.",
    ),
    Mutant(
        name="memtables-left-to-rocksdb",
        file=_ROCKS,
        old="        if self._flushes is not None and (families := self._flushes.due()):",
        new="        if self._flushes is not None and not (families := self._flushes.due()) and 0:",
        mistake="RocksDB flushes a full memtable whose values are not synced.",
    ),
    Mutant(
        name="full-memtable-seen-late",
        file=_FLUSHES,
        old="size * SHARE >= self._memtable_bytes[name]",
        new="size >= self._memtable_bytes[name]",
        mistake="A memtable is flushed when it is full, which RocksDB has noticed by then.",
    ),
    Mutant(
        name="logs-kept-by-the-default-family",
        file=_ROCKS,
        old='                {**self._families, "default": database},',
        new="                dict(self._families),",
        mistake="A row of RocksDB's default family keeps every log that was written since.",
    ),
    Mutant(
        name="damaged-length-taken-for-a-torn-end",
        file=_CHECK,
        old="whole_from=unsynced_from, trusts_lengths=mark is not None",
        new="whole_from=unsynced_from",
        mistake="A damaged length hides what follows it in a log that no mark says is synced.",
    ),
    Mutant(
        name="values-behind-a-lost-page",
        file=_CHECK,
        old="        without = _without_values(directory, walked, unsynced_from)",
        new=(
            "        without = None if walked.goes_on else"
            " _without_values(directory, walked, unsynced_from)"
        ),
        mistake="A log that lost a page keeps the changes before it whose values are lost.",
    ),
    Mutant(
        name="torn-end-of-values-written-behind",
        file=_VALUE_FILES,
        old="            self.end_active()\n            self.sizes[self.active] = end",
        new="            pass",
        mistake="Values come behind what a killed process began to append; nobody can look there.",
    ),
    Mutant(
        name="torn-end-of-values-written-over",
        file=_VALUE_FILES,
        old="            self.end_active()\n",
        new="",
        mistake="Values are written over what a killed process left, which may be damaged only.",
    ),
    Mutant(
        name="damaged-values-taken-for-a-torn-end",
        file=_VALUE_FILES,
        old="        end = max(synced_bytes, len(_MAGIC))",
        new="        end = len(_MAGIC)",
        mistake="A damaged head of a synced value makes all values behind it garbage.",
    ),
    Mutant(
        name="values-alive-if-their-key-is",
        file=_VALUES,
        old="(pointer.file, pointer.position) != (file, place.position)",
        new="pointer.file != file",
        mistake="A value counts as alive when its row points to another one in the same file.",
    ),
    Mutant(
        name="files-removed-under-a-view",
        file=_VALUES,
        old="        if takes_garbage:\n",
        new="        if takes_garbage or self._garbage:\n",
        mistake="A backup reads rows that point to files that are gone.",
    ),
    Mutant(
        name="files-off-the-list-and-not-removed",
        file=_VALUES,
        old="        self._garbage.append(file)\n",
        new="",
        mistake="Garbage is found and kept until the next start.",
    ),
    Mutant(
        name="unreadable-values-given-up",
        file=_VALUES,
        old='            self._complain(f"values cannot be looked at for garbage: {error}")\n',
        new="            self._give_up(raw, self._rounds.file or 0)\n",
        mistake="A file goes because one of its values is damaged.",
    ),
    Mutant(
        name="values-of-families-that-are-not-open",
        file=_VALUES,
        old="        if self._not_open:\n",
        new="        if not self._families:\n",
        mistake="A file with a damaged head goes, and rows of another family point to it.",
    ),
    Mutant(
        name="values-synced-after-their-rows",
        file=_ROCKS,
        old="        self._values.sync(unsynced)\n        self._database.flush_wal(True)\n",
        new="        self._database.flush_wal(True)\n        self._values.sync(unsynced)\n",
        mistake="A loss of power between the two leaves synced rows without their values.",
    ),
    Mutant(
        name="name-of-a-file-not-synced",
        file=_VALUE_FILES,
        old="        self._has_new_name = True\n        self._append",
        new="        self._append",
        mistake="A loss of power takes a new file, whose values were synced.",
    ),
    Mutant(
        name="short-write-taken-for-whole",
        file=_VALUE_FILES,
        old="            while part:\n",
        new="            if part:\n",
        mistake="The system takes a part of the values, and the rest is not written.",
    ),
    Mutant(
        name="inline-value-taken-for-a-pointer",
        file=_VALUES,
        old="            elif value.startswith(MARKED):\n",
        new="            elif value.startswith(MARKED * 8):\n",
        mistake="A small value that begins like a pointer is stored as it is.",
    ),
    Mutant(
        name="torn-change-replayed",
        file=_OPENING,
        old="        cut(directory, checked.torn)\n",
        new="",
        mistake="After a loss of power, a change whose values are missing comes back.",
    ),
    Mutant(
        name="values-short-of-their-mark",
        file=_CHECK,
        old="            wanted = max(size, mark.values_bytes)\n",
        new="            wanted = size\n",
        mistake="Synced values are cut off, and the store opens.",
    ),
    Mutant(
        name="rounds-without-end",
        file=_ROUNDS,
        old="        self._has_deleted = False\n        self._began_at",
        new="        self._began_at",
        mistake="Files are looked at again and again, though nothing was deleted.",
    ),
    Mutant(
        name="logs-let-go-of-by-payloads-alone",
        file=_BACKGROUND,
        old="        for rows in self._families:\n            # A family with two",
        new="        for rows in self._payload_families:\n            # A family with two",
        mistake="Only the families that fill are flushed: one at rest holds the logs.",
    ),
    Mutant(
        name="logs-let-go-of-at-every-look",
        file=_BACKGROUND,
        old="        self._next_release = now_seconds + RELEASE_INTERVAL_SECONDS\n",
        new="",
        mistake="While the flushes last, the logs are as large as before: all is flushed again.",
    ),
    Mutant(
        name="end-of-log-after-sync",
        file=_ROCKS,
        old="        self._mark.write(now_seconds, end_of_log, end_of_values, durably=has_garbage)",
        new=(
            "        end_of_log = self._mark.end_of_log()\n"
            "        self._mark.write(now_seconds, end_of_log, end_of_values, durably=has_garbage)"
        ),
        mistake="The mark covers what was written while it was synced.",
    ),
    Mutant(
        name="values-removed-ahead-of-their-mark",
        file=_ROCKS,
        old=", durably=has_garbage)",
        new=", durably=False)",
        mistake="A loss of power leaves a mark that asks for values which were removed as garbage.",
    ),
    Mutant(
        name="values-removed-behind-an-older-log",
        file=_ROCKS,
        old="self._mark.end_of_log(is_newest=bool(unsynced.garbage))",
        new="self._mark.end_of_log()",
        mistake="The mark names a log before that of changes whose values are removed as garbage.",
    ),
    Mutant(
        name="late-sync-covers-later-groups",
        file=_LATE,
        old=("        target = self.written_position\n        await self._store.sync()"),
        new=("        await self._store.sync()\n        target = self.written_position"),
        mistake="Groups count as durable that were written after their sync began.",
    ),
    Mutant(
        name="durable-when-written",
        file=_LATE,
        old="        if position <= self._durable_position:\n",
        new="        if position <= self.written_position:\n",
        mistake="What must be durable leaves at once if it is written.",
    ),
    Mutant(
        name="writes-on-after-failed-sync",
        file=_LATE,
        old="                    self._task.cancel()\n",
        new="                    pass\n",
        mistake="After a failed sync, the open group is written all the same (rule b).",
    ),
    Mutant(
        name="unseen-tail-not-counted",
        file=_LOST,
        old="    if damage is not None:\n        cut(directory, damage)\n    count(",
        new="    if damage is None:\n        return\n    cut(directory, damage)\n    count(",
        mistake="A machine went down, and its logs look whole: the ledger id stays.",
    ),
    Mutant(
        name="synced-damage-taken-for-tail",
        file=_CHECK,
        old="        return self.missing_from < (mark.log, mark.log_bytes)",
        new="        return False",
        mistake="After a loss of power, damage of synced data is cut off without a word.",
    ),
    Mutant(
        name="note-stays-spotless",
        file=_ROCKS,
        old=(
            "                if self._late_syncs:\n"
            "                    unsynced_note.spoil(self._path)\n"
        ),
        new="",
        mistake="After a failed sync, the next start believes that nothing is lost.",
    ),
    Mutant(
        name="note-after-first-writes",
        file=_ROCKS,
        old="        if late_syncs:\n            unsynced_note.leave(directory)\n",
        new="",
        mistake="A store that answers before it syncs does not say so on its disk.",
    ),
    Mutant(
        name="durable-without-sync",
        file=_COMMIT,
        old="        await self._store.write(batch)\n        await self._store.sync()",
        new="        await self._store.write(batch)",
        mistake="A group counts as durable when it is written, before it is synced.",
    ),
    Mutant(
        name="open-group-counts-as-sealed",
        file=_COMMIT,
        old=(
            "        if self.batch.operations or self._deferred:\n"
            "            return self._sealed_position + 1"
        ),
        new="        if self.batch.operations:\n            return self._sealed_position + 1",
        mistake="A reply does not wait for rows that are written once a group.",
    ),
    Mutant(
        name="sealed-callbacks-run-early",
        file=_COMMIT,
        old=(
            "        if position <= self._sealed_position:\n"
            "            self._parked_sealed.append(callback)"
        ),
        new=(
            "        if position <= self._sealed_position + 1:\n"
            "            self._parked_sealed.append(callback)"
        ),
        mistake="Who waits for the open group is told with the one before it.",
    ),
    Mutant(
        name="overtakes-parked",
        file="storage/magnetar_storage/ready_callbacks.py",
        old="        if self._running is not None:\n",
        new="        if self._running is not None and len(self._running) < 2:\n",
        mistake="A callback that is registered inside another overtakes those parked before it.",
    ),
    Mutant(
        name="deferred-rows-wait",
        file=_COMMIT,
        old="        if self._deferred:\n            self._wake.set()\n        return sealed",
        new="        return sealed",
        mistake="Rows that are deferred while a group is sealed wait for the next command.",
    ),
    Mutant(
        name="failure-told-to-nobody",
        file=_COMMIT,
        old="            self._fail(error)\n            self._on_failure(error)",
        new="            self._fail(error)",
        mistake="A failed write does not end the process (rule b).",
    ),
    Mutant(
        name="parked-called-after-failure",
        file=_COMMIT,
        old="        self._parked_open.clear()\n        self._parked_sealed.clear()",
        new="        self._parked_open.clear()",
        mistake="After a failed sync, those who wait for its group stay parked.",
    ),
    Mutant(
        name="close-forgets-callbacks",
        file=_COMMIT,
        old=(
            "                    if self.position() > self.written_position:\n"
            "                        self._wake.set()\n"
            "                    elif self._finish():\n"
            "                        return"
        ),
        new="                    return",
        mistake="What callbacks append while the last group closes is not written.",
    ),
    Mutant(
        name="unhurried-callback-never-hurried",
        file=_COMMIT,
        old=(
            "            self._parked_open.append(callback)\n"
            "            if self._hurries:\n"
            "                self._wake.set()"
        ),
        new="            self._parked_open.append(callback)",
        mistake="Whoever waits for unhurried rows waits until their time is up.",
    ),
    Mutant(
        name="unhurried-for-ever",
        file=_COMMIT,
        old="loop.call_later(UNHURRIED_SECONDS, self._wake.set)",
        new="loop.call_later(UNHURRIED_SECONDS, self._wake.is_set)",
        mistake="Rows that nobody waits for are never written while nothing else happens.",
    ),
    Mutant(
        name="sync-covers-later-writes",
        file=_MEMORY,
        old="        target = disk.write_count  # Rows written during a stall are not covered.\n",
        new="        target = disk.write_count + 1\n",
        mistake="The simulated disk keeps more than what was synced.",
    ),
    Mutant(
        name="undo-forward",
        file=_MEMORY,
        old="            for family, key, value in reversed(self._undo.pop()):",
        new="            for family, key, value in self._undo.pop():",
        mistake="The simulated disk takes a lost batch back in the wrong order.",
    ),
    Mutant(
        name="reverse-scan-from-start",
        file=_TABLE,
        old="            keys = self.keys[max(first, last - rows_max) : last]",
        new="            keys = self.keys[first : min(last, first + rows_max)]",
        mistake="A reverse scan returns the first rows of the range, and not the last.",
    ),
    Mutant(
        name="scan-includes-end",
        file=_READS,
        old="        if iterator.valid() and iterator.key() == end:\n            iterator.prev()",
        new="        if iterator.valid() and iterator.key() > end:\n            iterator.prev()",
        mistake="A reverse scan on RocksDB stops at a row that lies at the range's end.",
    ),
    Mutant(
        name="rows-go-missing",
        file=_READS,
        old="            if byte_count >= bytes_max:\n                return\n",
        new=(
            "            if byte_count >= bytes_max and len(rows) > 1:\n"
            "                rows.pop()\n"
            "                return\n"
        ),
        mistake=(
            "A page that is full leaves its last row out; whoever goes on behind it misses "
            "that one."
        ),
    ),
    Mutant(
        name="range-delete-one-key",
        file=_ROCKS,
        old="                raw.delete_range(key, value, handles[family])",
        new="                raw.delete(key, handles[family])",
        mistake="A range is deleted as if it were its first key.",
    ),
    Mutant(
        name="brokers-not-compared",
        file=_IDENTITY,
        old="        _check_brokers(known, brokers)\n",
        new="",
        mistake="A broker that was moved in the list serves the shard of another one.",
    ),
    Mutant(
        name="brokers-forgotten",
        file=_IDENTITY,
        old="        brokers = brokers or known\n",
        new="",
        mistake="A start without the list of members forgets the list that the store has seen.",
    ),
    Mutant(
        name="sync-without-waiting",
        file=_ROCKS,
        old="await loop.run_in_executor(\n                self._executor, self._sync,",
        new="loop.run_in_executor(\n                self._executor, self._sync,",
        mistake="A sync is begun, and nobody waits for it: a failure of it is not heard of.",
    ),
)
