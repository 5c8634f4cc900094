"""Mistakes in the Spark source and sink."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SINK = "pipeline/magnetar_spark/sink.py"
_SOURCE = "pipeline/magnetar_spark/source.py"
_PLANNING = "pipeline/magnetar_spark/planning.py"
_OFFSETS = "pipeline/magnetar_spark/offsets.py"
_OUT = "pipeline/magnetar_spark/arrow_out.py"
_IN = "pipeline/magnetar_spark/arrow_in.py"
_CATALOG = "pipeline/magnetar_spark/catalog.py"
_CUT_RANGES = "pipeline/magnetar_spark/cut_ranges.py"
_JOB_CUTS = "pipeline/magnetar_spark/jobs/job_cuts.py"
_AUDIT_SOURCE = "pipeline/magnetar_spark/jobs/audit_source.py"
_GOAL = "pipeline/magnetar_spark/jobs/offload_goal.py"

MUTANTS = (
    Mutant(
        name="share-of-nothing",
        file=_PLANNING,
        old="min(size, max(1, count_max * size // total))",
        new="min(size, count_max * size // total)",
        mistake="A small partition beside large ones is never read under maxOffsetsPerTrigger.",
    ),
    Mutant(
        name="pieces-lose-offsets",
        file=_PLANNING,
        old=(
            "        bounds = [one.start + one.count * number // count for number in "
            "range(count + 1)]"
        ),
        new=(
            "        bounds = [one.start + one.count // count * number for number in "
            "range(count + 1)]"
        ),
        mistake="A range that cannot be cut evenly loses its last offsets.",
    ),
    Mutant(
        name="order-as-texts",
        file=_OFFSETS,
        old=(
            "        topic: {str(partition): places[topic][partition] for partition in "
            "sorted(places[topic])}"
        ),
        new=(
            "        topic: {str(partition): places[topic][partition] for partition in "
            "places[topic]}"
        ),
        mistake="The same offsets are written in another order: Spark takes them for new ones.",
    ),
    Mutant(
        name="start-not-kept",
        file=_OFFSETS,
        old="        if self.start is not None:\n            metadata",
        new="        if self.start:\n            metadata",
        mistake="A first batch that began nowhere is not told from a later one.",
    ),
    Mutant(
        name="topic-ids-forgotten",
        file=_OFFSETS,
        old=(
            "        return cls(places, dict(topic_ids), None if start is None else "
            "to_places(start))"
        ),
        new="        return cls(places, {}, None if start is None else to_places(start))",
        mistake="A topic that was made anew under its old name is taken for the old one.",
    ),
    Mutant(
        name="lost-range-read-twice",
        file=_SOURCE,
        old="                    start = columns.last_offset + 1\n",
        new="                    start = columns.last_offset\n",
        mistake="After an error in the middle, a task reads one message twice.",
        unseen_because=(
            "what is out of range is so because it lies before the first offset or behind the end:"
            " then reading goes on from the first offset, or ends; after any other error it ends,"
            " so that nothing is asked for again from where the last piece ended"
        ),
    ),
    Mutant(
        name="new-partition-from-end",
        file=_SOURCE,
        old="            first = begin.get(topic, {}).get(partition, 0)\n            ranges",
        new="            first = begin.get(topic, {}).get(partition, stop)\n            ranges",
        mistake="A partition that is new to a query is read from where the batch ends.",
    ),
    Mutant(
        name="failed-attempts-count",
        file=_SINK,
        old="    parts = [one.part() for one in tasks]",
        new="    parts = [one.part() for one in tasks if one.producers]",
        mistake="A batch of which no task wrote anything has nothing to commit, and fails.",
    ),
    Mutant(
        name="several-transactions-committed",
        file=_SINK,
        old="    if len({one.txn_id for one in tasks}) > 1:",
        new="    if len({one.txn_id for one in tasks}) > 2:",
        mistake="Tasks that wrote in two transactions are committed as if it were one.",
    ),
    Mutant(
        name="sequence-committed-fails",
        file=_SINK,
        old="    if idle:\n        require_same",
        new="    if len(idle) == len(tasks):\n        require_same",
        mistake="A replay of which some tasks hear that it is committed fails.",
    ),
    Mutant(
        name="task-not-withdrawn",
        file=_SINK,
        old="    except BaseException:\n        txn.withdraw()\n        raise",
        new="    except BaseException:\n        raise",
        mistake="The process of a failed attempt aborts what the other tasks have written.",
    ),
    Mutant(
        name="keys-misplaced",
        file=_IN,
        old='            order = np.argsort(partitions, kind="stable")',
        new="            order = np.argsort(-partitions)[::-1]",
        mistake="Rows of one partition change places on their way.",
    ),
    Mutant(
        name="null-topic-dropped",
        file=_IN,
        old="        if column.null_count:\n",
        new="        if column.null_count == len(column):\n",
        mistake="Rows without a topic are dropped in silence when others have one.",
    ),
    Mutant(
        name="partition-column-unchecked",
        file=_IN,
        old="            wrong = ~absent & ((named < 0) | (named >= count))",
        new="            wrong = ~absent & (named >= count)",
        mistake="A negative partition in a row is not refused.",
    ),
    Mutant(
        name="large-rows-cut-late",
        file=_IN,
        old="            end = min(end, at + BATCH_MESSAGES_MAX, count)",
        new="            end = min(end + 1, at + BATCH_MESSAGES_MAX, count)",
        mistake="Batches are one row larger than their limit, and none is sent as a large message.",
    ),
    Mutant(
        name="sliced-column-from-start",
        file=_OUT,
        old="    return array if len(array) == count else array.slice(columns.start, count)",
        new="    return array if len(array) == count else array.slice(0, count)",
        mistake="Of a batch that begins before the range, the first rows are taken.",
    ),
    Mutant(
        name="headers-of-whole-batch",
        file=_OUT,
        old="            for one in body.properties[columns.start : columns.stop]",
        new="            for one in body.properties[: columns.stop - columns.start]",
        mistake="Headers are those of the batch's first messages.",
    ),
    Mutant(
        name="behind-end-accepted",
        file=_CATALOG,
        old="            if offset > extent.end[topic][partition]:",
        new="            if offset > extent.end[topic][partition] + 1:",
        mistake="An offset that lies behind the end is taken for a place to begin.",
    ),
    Mutant(
        name="fingerprint-not-told",
        file=_SINK,
        old="        status = client.commit_parts(parts, fingerprint=str(content))",
        new="        status = client.commit_parts(parts)",
        mistake="What a batch consisted of is not kept: a replay with other rows is dropped.",
    ),
    Mutant(
        name="content-of-last-topic",
        file=_SINK,
        old="                self.content += rows.content(topic)",
        new="                self.content = rows.content(topic)",
        mistake="Of a batch with several topics, or many rows, the last rows' content counts.",
    ),
    Mutant(
        name="pieces-lose-their-cut",
        file=_PLANNING,
        old="replace(one, start=first, end=last)",
        new="replace(one, start=first, end=last, cut=None)",
        mistake="A batch read goes up to the ends of a cut, with what was committed later, too.",
    ),
    Mutant(
        name="deleted-topic-matches-no-pattern",
        file=_CUT_RANGES,
        old="    chosen = sorted({*extent.topic_ids, *absent})",
        new="    chosen = sorted(extent.topic_ids)",
        mistake="A topic of the cut that was deleted is left out in silence.",
    ),
    Mutant(
        name="life-of-a-topic-unchecked",
        file=_CUT_RANGES,
        old="        if extent.topic_ids.get(topic) != cut.taken.topic(topic).topic_id:",
        new="        if topic not in extent.topic_ids:",
        mistake="A batch at a cut is planned for a topic that was deleted and made anew.",
    ),
    Mutant(
        name="nothing-below-the-ends-is-in-the-cut",
        file=_JOB_CUTS,
        old="_STAMP_MAX, end, cut.taken.stamp)",
        new="_STAMP_MAX, end, 0)",
        mistake="Jobs leave out what was finished while a cut was taken, and was decided before.",
    ),
    Mutant(
        name="later-messages-count",
        file=_AUDIT_SOURCE,
        old="                messages=0 if later is not None and txn_id in later else len(piece),",
        new="                messages=len(piece),",
        mistake="An audit at a cut counts what was committed while the cut was taken.",
    ),
    Mutant(
        name="removed-from-a-cut-in-silence",
        file=_AUDIT_SOURCE,
        old="            _require_none_removed(wanted, piece, later)\n            watching",
        new="            watching",
        mistake="An audit at a cut counts less than the cut had, and does not say so.",
    ),
    Mutant(
        name="offload-goes-back",
        file=_GOAL,
        old="        _check_not_beyond(before, goal, request)\n",
        new="        pass\n",
        mistake="An offload at an older cut says that the topic was restored.",
    ),
)
