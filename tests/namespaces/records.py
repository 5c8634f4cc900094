"""What clients, readers and the run itself write down: one record a line, as JSON.

    begun      txn, owner                       a transaction has its TxnID
    send       value, producer, topic, partition, txn, input     a message is about to be sent
    sent       value, outcome, offset, asked_at, error
    ack        txn, topic, partition, subscription, offset       an ack is about to be sent
    acked      the same, outcome, asked_at
    end        txn, action, values              COMMIT or ABORT is about to be asked for
    ended      txn, action, outcome, finished, asked_at, error
    attach     session, topic, subscription     a consumer is about to subscribe
    delivered  session, topic, partition, subscription, offset, value, txn
    reading    topic, partition, start          a reader is about to read from a place
    read       the same, began_at, messages     to the end of then
    asking for a cut
    cut        token, since, asked_at, took_s, rows    taken, and read from the cut before it
    cut again  token, rows                      all that an earlier cut has
    trouble    session, error                   a client gives up what it was about to do
    status     txn, status                      as the coordinator says in the end
    log        topic, partition, first, end     offsets in the end
    cursor     topic, partition, subscription, mark_delete, backlog, pending
    drained    topic, subscription, session     the session has received all that is left
    fault      what, targets                    something is done to services, or undone

`at` is when it was written: before something is asked, and after something was heard. All times are
those of the machine's monotonic clock, which its processes share. An outcome is OK, NO_EFFECT or
UNKNOWN.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.simulation.history import Place

Record = dict[str, Any]
OK, NO_EFFECT, UNKNOWN = "ok", "no effect", "unknown"
COMMIT, ABORT = "commit", "abort"


class Recorder:
    """Writes the records of a process to a file."""

    def __init__(self, path: Path) -> None:
        # What is written before something is asked has to be there, however the process ends.
        self._file = path.open("a", buffering=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def note(self, kind: str, **facts: object) -> float:
        """Write a record; returns its time."""
        at = time.monotonic()
        self._file.write(json.dumps({"at": at, "kind": kind, **facts}) + "\n")
        return at


def place_of(record: Record) -> Place:
    """The partition that a record is about."""
    return record["topic"], record["partition"]


def read_records(paths: Iterable[Path]) -> list[Record]:
    """The records of all files, in the order of their times."""
    records = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return sorted(records, key=lambda record: float(record["at"]))
