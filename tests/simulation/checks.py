"""The invariants, checked on the whole history once everything has come to rest."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from tests.simulation.history import ENDED_STATUSES, Cursor, History, Place, Sent
from tests.simulation.identities import Database, Job

from magnetar_core.batch import decode
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2
from magnetar_core.wire import service_pb2 as pb


def check_all(
    history: History,
    outcomes: dict[TxnID, int],
    first_offsets: dict[Place, int],
    end_offsets: dict[Place, int],
) -> None:
    """Check what can be checked without knowing the workload.

    Args:
        outcomes: the status of every transaction, as the coordinator says now.
        first_offsets, end_offsets: of every partition that was read to its end.
    """
    check_decisions(history, outcomes)
    check_density(history, first_offsets, end_offsets)
    check_atomicity(history, outcomes, first_offsets)
    check_plain_messages(history, first_offsets)
    check_order(history)


def check_decisions(history: History, outcomes: dict[TxnID, int]) -> None:
    """Invariant 7: what was told is what is."""
    for txn_id, txn in history.transactions.items():
        status = outcomes[txn_id]
        if status not in ENDED_STATUSES:
            history.violation("7", f"{txn_id} has not come to its end: status {status}")
        if txn.commit_asked is False and status == common_pb2.COMMITTED:
            history.violation("7", f"{txn_id} is COMMITTED, and nobody asked for it")


def check_density(
    history: History, first_offsets: dict[Place, int], end_offsets: dict[Place, int]
) -> None:
    """Offsets are dense, and nothing that was ever read lies beyond the end."""
    for place, end in end_offsets.items():
        log = history.seen.get(place, {})
        for offset in range(first_offsets[place], end):
            if offset not in log:
                history.violation("2", f"{place} has no message at {offset}, its end is {end}")
        beyond = [offset for offset in log if offset >= end]
        if beyond:
            history.violation("2", f"{place} ends at {end}, but {min(beyond)} had been read")


def check_atomicity(
    history: History, outcomes: dict[TxnID, int], first_offsets: dict[Place, int]
) -> None:
    """Invariants 1, 2 and 3: a transaction's messages are all there, or none is."""
    for txn_id, txn in history.transactions.items():
        visible = [message for message in txn.messages if message.value in history.seen_at]
        if outcomes[txn_id] == common_pb2.ABORTED:
            if visible:
                history.violation("3", f"{visible[0]} is visible, its transaction is ABORTED")
            continue
        if txn.expected is None:
            continue
        visible_values = {message.value for message in visible}
        expected_values = {message.value for message in txn.expected}
        for message in txn.expected:
            trimmed = first_offsets.get(message.place, 0) > 0
            if message.value not in visible_values and not trimmed:
                history.violation("1", f"{message} is missing, its transaction is COMMITTED")
        for message in visible:
            if message.value not in expected_values:
                history.violation("1", f"{message} is surplus, yet visible")


def check_plain_messages(history: History, first_offsets: dict[Place, int]) -> None:
    """Invariant 2: what was confirmed is there."""
    for message in history.sent.values():
        lost = message.txn is None and message.confirmed and message.value not in history.seen_at
        if lost and first_offsets.get(message.place) == 0:
            history.violation("2", f"{message} was confirmed and is lost")


def check_denied(history: History, *, arrived_again: set[bytes]) -> None:
    """Invariant 4: of what had no effect nothing is there. Whoever sends it again has it twice.

    Args:
        arrived_again: as for check_wholes.
    """
    for message in history.sent.values():
        is_there = message.value in history.seen_at and message.value not in arrived_again
        if message.denied and is_there:
            text = f"{message} is visible, and its sender was told: {message.denied}"
            history.violation("4", text)


def check_placed(
    history: History,
    placed: dict[tuple[Place, int], bytes],
    first_offsets: dict[Place, int],
) -> None:
    """Invariant 2: what the broker said where it is lies there, whether anybody heard it or not."""
    for (place, first), data in placed.items():
        for offset, value in enumerate(decode(data).values(), first):
            if offset < first_offsets.get(place, inf):
                continue  # Removed since, or of a topic that nobody reads to its end.
            found = history.seen.get(place, {}).get(offset)
            if found != value:
                history.violation("2", f"{place} {offset} was {value!r} in an answer, is {found!r}")


def sent_values(frames: Iterable[pb.Frame]) -> set[bytes]:
    """The plain messages that frames bring to a broker."""
    return {
        value
        for frame in frames
        for one in frame.commands
        if one.WhichOneof("body") == "send" and not one.send.HasField("txn_id")
        for value in decode(one.send.batch).values()
    }


def check_wholes(
    history: History, first_offsets: dict[Place, int], *, arrived_again: set[bytes]
) -> None:
    """Invariant 1, of lazy transactions that never began: one batch, whole or not at all.

    Args:
        arrived_again: messages whose requests came once more after they were answered, as they do
            not over TCP: one that was refused may then have been accepted later.
    """
    for messages, refused in history.wholes:
        visible = [message for message in messages if message.value in history.seen_at]
        if visible and refused and visible[0].value not in arrived_again:
            history.violation("3", f"{visible[0]} is visible, its commit was refused")
        missing = len(messages) - len(visible)
        if visible and missing and first_offsets.get(messages[0].place) == 0:
            history.violation("1", f"{visible[0]} is visible, {missing} of its batch are not")


def check_databases(
    history: History, databases: dict[str, Database], outcomes: dict[TxnID, int]
) -> None:
    """A database and its topics agree: what is in one is in the other."""
    for name, database in databases.items():
        for record in database.committed:
            if outcomes[record.txn_id] != common_pb2.COMMITTED:
                history.violation("o", f"{record.txn_id} of {name} is in the database only")


def check_jobs(history: History, jobs: dict[str, Job], outcomes: dict[TxnID, int]) -> None:
    """Each sequence counts once, and repeats are told which content that was."""
    for name, job in jobs.items():
        for sequence, runs in job.runs.items():
            committed = [one for one in runs if outcomes[one] == common_pb2.COMMITTED]
            if len(committed) > 1:
                history.violation("o", f"{sequence} of {name} is committed by {committed}")
            if sequence < job.sequence and not committed:
                history.violation("o", f"{sequence} of {name} counts as done, nothing of it is")
            told = job.told.get(sequence, "")
            if told != "" and told not in [str(one) for one in committed]:
                history.violation("o", f"{sequence} of {name} is {committed}, and was told {told}")


def check_order(history: History) -> None:
    """Invariant 5: a producer's messages lie in a partition in the order of their positions.

    Those of one key do, where it makes batches by key.
    """
    for place, log in history.seen.items():
        newest: dict[tuple[str, bytes | None], Sent] = {}
        for offset in sorted(log):
            message = history.sent[log[offset]]
            if message.position is None or (message.txn is None and not message.confirmed):
                continue  # A send that failed may still arrive, at any time.
            key = message.key if message.producer in history.by_key else None
            before = newest.get((message.producer, key))
            if before is not None and before.order > message.latest:
                history.violation(
                    "5", f"{place}: {before} lies before {message}, but was sent after it"
                )
            if before is None or before.order < message.order:
                newest[message.producer, key] = message
    check_transactions_lie_together(history)
    check_writers_in_order(history)


def check_transactions_lie_together(history: History) -> None:
    """A transaction's messages in a partition are neighbours, whatever was interleaved."""
    for place, log in history.seen.items():
        ended: set[TxnID] = set()
        current: TxnID | None = None
        for offset in sorted(log):
            txn_id = history.seen_txn[place, offset]
            if txn_id != current:
                if current is not None:
                    ended.add(current)
                if txn_id is not None and txn_id in ended:
                    history.violation("1", f"{place}: messages of {txn_id} lie apart")
                current = txn_id


def check_writers_in_order(history: History) -> None:
    """Producers of a transaction come in the order of their first messages in the partition."""
    for place, log in history.seen.items():
        found: dict[TxnID, list[str]] = {}
        for offset in sorted(log):
            message = history.sent[log[offset]]
            if message.txn is None or message.producer not in message.txn.writers.get(place, ()):
                continue
            writers = found.setdefault(message.txn.txn_id, [])
            if message.producer not in writers:
                writers.append(message.producer)
        for txn_id, writers in found.items():
            wanted = history.transactions[txn_id].writers[place]
            if writers != [one for one in wanted if one in writers]:
                history.violation("5", f"{place}: {txn_id} was written by {wanted}, has {writers}")


def check_processed_once(history: History, cursors: list[Cursor], *, complete: bool = True) -> None:
    """Invariant 6: every input has exactly one visible output.

    Args:
        cursors: of the workers' subscriptions.
        complete: the workers had time to come to the end.
    """
    outputs: dict[tuple[Cursor, int], list[Sent]] = {}
    for value in history.seen_at:
        message = history.sent[value]
        if message.input is not None:
            outputs.setdefault(message.input, []).append(message)
    for cursor in cursors:
        topic, partition, _ = cursor
        for offset in history.seen.get((topic, partition), {}):
            found = outputs.get((cursor, offset), [])
            if len(found) > 1:
                history.violation(
                    "6", f"{cursor} {offset} was processed twice: {found[0]} and {found[1]}"
                )
            if not found and complete:
                history.violation("6", f"{cursor} {offset} was never processed")


def check_processed_in_order(history: History, cursors: list[Cursor]) -> None:
    """A group's outputs lie in the order of their inputs, whoever made them."""
    newest: dict[tuple[Cursor, Place], int] = {}
    for place, log in history.seen.items():
        for offset in sorted(log):
            message = history.sent[log[offset]]
            if message.input is None or message.input[0] not in cursors:
                continue
            cursor, input_offset = message.input
            before = newest.get((cursor, place), -1)
            if before > input_offset:
                history.violation(
                    "group", f"{cursor} {input_offset} was processed after {before}: {message}"
                )
            newest[cursor, place] = input_offset
