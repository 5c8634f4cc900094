"""Mistakes in the job that brings tables to a cut."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JOB = "pipeline/magnetar_spark/jobs/tables.py"
_PASSES = "pipeline/magnetar_spark/jobs/iceberg/passes.py"
_TABLE = "pipeline/magnetar_spark/jobs/iceberg/table.py"
_LINEAGE = "pipeline/magnetar_spark/jobs/iceberg/lineage.py"
_TASKS = "pipeline/magnetar_spark/jobs/iceberg/tasks.py"
_COMPACTION = "pipeline/magnetar_spark/jobs/iceberg/compaction.py"
_FILES = "pipeline/magnetar_spark/jobs/iceberg/data_files.py"

MUTANTS = (
    Mutant(
        name="tables-commit-again-on-top",
        file=_TABLE,
        old='        table.metadata.properties[_RETRIES] = "0"\n',
        new="",
        mistake="The library tries a commit again on top of what another run has added.",
    ),
    Mutant(
        name="tables-records-before-bad",
        file=_PASSES,
        old="        return [self.records] if self.bad is None else [self.bad, self.records]",
        new="        return [self.records] if self.bad is None else [self.records, self.bad]",
        mistake="A run that is killed between the commits of a first run loses the bad values.",
    ),
    Mutant(
        name="tables-only-the-present-snapshot",
        file=_LINEAGE,
        old="        current_id = found.parent_id\n",
        new="        return None\n",
        mistake="A table that somebody else has changed is taken for one without a cut.",
    ),
    Mutant(
        name="tables-killed-runs-are-not-finished",
        file=_LINEAGE,
        old="    return [newest, goal] if is_unfinished else [goal]",
        new="    return [goal]",
        mistake="After a kill, one table has a cut that the other one never gets.",
    ),
    Mutant(
        name="tables-idle-ones-stay-behind",
        file=_JOB,
        old="        if is_last and not any(one.written.read or one.must_move for one in due):\n",
        new=(
            "        due = [one for one in due if one.written.read or one.must_move]\n"
            "        if is_last and not due:\n"
        ),
        mistake="A table without new rows does not get the cut that the others get.",
    ),
    Mutant(
        name="tables-failed-answers-are-failed-commits",
        file=_TABLE,
        old="            if snapshot_id is None or not self._has(snapshot_id):\n",
        new="            if snapshot_id is None or self._table is not None:\n",
        mistake="A commit whose answer is lost is said to have failed.",
    ),
    Mutant(
        name="tables-lost-answers-are-commits",
        file=_TABLE,
        old="            if snapshot_id is None or not self._has(snapshot_id):\n",
        new="            if snapshot_id is None:\n",
        mistake="A commit without an answer is taken for made.",
    ),
    Mutant(
        name="tables-bad-rows-vanish",
        file=_TASKS,
        old="                    if BAD in writers:\n",
        new="                    if BAD in writers and RECORDS not in writers:\n",
        mistake="What cannot be decoded is counted, and goes nowhere.",
    ),
    Mutant(
        name="tables-later-bad-begins-at-the-start",
        file=_PASSES,
        old="        since = table.cut or topic.records.cut\n",
        new="        since = table.cut\n",
        mistake="A table of bad values that is made later reads the whole topic again.",
    ),
    Mutant(
        name="tables-all-bad-is-fine",
        file=_JOB,
        old="        if one.is_first and written.bad == written.read and",
        new="        if one.is_first and written.bad > written.read and",
        mistake="The wrong format fills a table of bad values.",
    ),
    Mutant(
        name="tables-older-cuts-are-done",
        file=_PASSES,
        old="        elif is_last and since.taken.stamp > goal.taken.stamp:\n",
        new="        elif is_last and since.taken.stamp > goal.taken.stamp + (1 << 62):\n",
        mistake="Who asks for an earlier moment is told that the table is there.",
    ),
    Mutant(
        name="tables-joined-at-the-cut-of-this-run",
        file=_TABLE,
        old="        return self._commit(change)\n\n    def files_without_deletes",
        new=(
            "        snapshot_id = self._commit(change)\n"
            "        self._cut = cut\n"
            "        return snapshot_id\n\n"
            "    def files_without_deletes"
        ),
        mistake="Files of a run that went on meanwhile are said to be at the cut of this one.",
    ),
    Mutant(
        name="tables-joined-files-stay-beside-the-old",
        file=_TABLE,
        old="                    overwrite.delete_data_file(one)\n",
        new="                    _ = one\n",
        mistake="Files that were written together count beside those that they replace.",
    ),
    Mutant(
        name="tables-join-across-days",
        file=_COMPACTION,
        old="            tiers[one.partition, _tier(one.byte_count)].append(one)\n",
        new="            tiers[None, _tier(one.byte_count)].append(one)\n",
        mistake="Files of several days are joined, for as long as they are small.",
    ),
    Mutant(
        name="tables-join-for-ever",
        file=_COMPACTION,
        old="        if one.byte_count * TOGETHER <= target_bytes:\n",
        new="        if one.byte_count <= target_bytes:\n",
        mistake="Files that are large enough are written again.",
    ),
    Mutant(
        name="tables-files-of-several-days",
        file=_FILES,
        old="            yield day, rows.filter(pc.equal(days, day))\n",
        new="            yield day, rows\n            return\n",
        mistake="The rows of a batch go to the day of the first one.",
    ),
    Mutant(
        name="tables-discard-nothing",
        file=_JOB,
        old="            for one in due:\n                one.discard()\n            raise\n",
        new="            raise\n",
        mistake="A run that fails leaves its files.",
    ),
)
