"""Mistakes in Spark, tables and transforms."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, LeaveOut, Put, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "pieces-lose-offsets",
        "magnetar_spark.planning:split",
        Put("one.count // count * number", "one.count * number // count"),
        "A range that cannot be cut evenly loses its last offsets.",
    ),
    Mutant(
        "several-transactions-committed",
        "magnetar_spark.sink:commit_tasks",
        Put("len({one.txn_id for one in tasks}) > 2", "len({one.txn_id for one in tasks}) > 1"),
        "Tasks that wrote in two transactions are committed as if it were one.",
    ),
    Mutant(
        "task-not-withdrawn",
        "magnetar_spark.sink:write_task",
        LeaveOut("txn.withdraw(...)"),
        "The process of a failed attempt aborts what the other tasks have written.",
    ),
    Mutant(
        "behind-end-accepted",
        "magnetar_spark.catalog:Catalog.resolve",
        Put("offset > extent.end[topic][partition] + 1", "offset > extent.end[topic][partition]"),
        "An offset that lies behind the end is taken for a place to begin.",
    ),
    Mutant(
        "tables-lost-answers-are-commits",
        "magnetar_spark.jobs.iceberg.table:TopicTable._commit",
        Without("not self._has(snapshot_id)"),
        "A commit without an answer is taken for made.",
    ),
    Mutant(
        "tables-bad-rows-vanish",
        "magnetar_spark.jobs.iceberg.tasks:_writing.write",
        Put("BAD in writers and RECORDS not in writers", "BAD in writers"),
        "What cannot be decoded is counted, and goes nowhere.",
    ),
    Mutant(
        "second-object-of-a-value",
        "magnetar_spark.payloads.json_text:parsed_object",
        Put("_next(text, end) == end", "_after_blanks(text, end) < len(text)"),
        "What follows a JSON object is dropped if a comma or a blank is before it.",
    ),
    Mutant(
        "bytes-behind-a-datum",
        "magnetar_spark.payloads.avro_payload:AvroPayload.decode",
        Compare("end != len(value)", ">"),
        "Bytes that are left after a datum are of no interest.",
    ),
)
