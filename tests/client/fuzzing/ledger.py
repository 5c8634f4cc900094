"""What calls have said, and whether what is stored agrees with that.

- Each call ends, with an error that its caller can understand if with one.
- A message is stored at most once, and as it was given.
- A message that was accepted outside of transactions is stored, or its caller or a flush of its
  producer has heard of it (invariant 11); one that was refused is not stored.
- A committed transaction has all that was accepted in it, and no send or ack in it had failed
  before.
- An aborted one has nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.client.fuzzing.script import Step

from magnetar import ClientFailed, OutcomeUnknown, Transaction, TransactionStatus, TxnID
from magnetar_core.errors import MagnetarError

Content = tuple[bytes, bytes | None, dict[str, str], int | None]

# Errors that do not say whether a message is stored.
UNKNOWN = (OutcomeUnknown, ClientFailed, asyncio.CancelledError)
# Calls that end a transaction here, or try to.
ENDS = {
    "commit",
    "abort",
    "leave",
    "withdraw",
    "prepare",
    "complete",
    "block",
    "close",
    "init",
    "init_transactions",
}
COMMITTED = (TransactionStatus.COMMITTED, TransactionStatus.COMMITTING)
# How the names of calls begin that acknowledge.
ACKS = ("ack", "send_offsets")
_NUMBER = re.compile(rb"(\d+):")


class Wrong(Exception):
    """A call did not keep what it says."""


@dataclass
class Record:
    """A call, and what came of it.

    Attributes:
        producer: the object that sent messages, by identity.
        txn: the transaction in which the call was made.
        contents: the messages that it was given; None for one that cannot be stored.
        began, ended: when, by the count of all beginnings and ends.
        ended_txn_id: the transaction that an administrator ends with this call.
    """

    step: Step | None
    method: str
    owner: Any
    began: int
    txn: Transaction | None = None
    contents: list[Content | None] = field(default_factory=list)
    shown: str = ""
    ended: int = 0
    error: BaseException | None = None
    was_cancelled: bool = False
    may_time_out: bool = False
    ended_txn_id: object = None

    @property
    def succeeded(self) -> bool:
        return bool(self.ended) and self.error is None

    def __str__(self) -> str:
        outcome = "never ends" if not self.ended else repr(self.error) if self.error else "ok"
        return f"{self.step or self.method} {self.shown}: {outcome}"


class Ledger:
    """The records of all calls of a play."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        # Threads share it.
        self._clock = itertools.count(1)

    def begin(self, step: Step | None, method: str, owner: Any, **facts: Any) -> Record:
        record = Record(step, method, owner, next(self._clock), **facts)
        self.records.append(record)
        return record

    def end(self, record: Record, error: BaseException | None) -> None:
        record.error = error
        record.ended = next(self._clock)

    def owners(self, kind: str) -> list[Any]:
        """The objects of a class that were used."""
        return list(
            {id(one.owner): one.owner for one in self.records if _is(one.owner, kind)}.values()
        )

    # Afterwards

    def check_ends(self) -> None:
        """Each call has ended in a way that its caller can understand."""
        for one in self.records:
            if not one.ended:
                raise Wrong(f"unanswered: {one}")
            if one.error is None:
                if None in one.contents:
                    raise Wrong(f"bad argument accepted: {one}")
            elif isinstance(one.error, asyncio.CancelledError):
                if not one.was_cancelled:
                    raise Wrong(f"cancelled by nobody: {one}")
            elif isinstance(one.error, TimeoutError) and one.may_time_out:
                pass
            elif isinstance(one.error, ClientFailed) or not isinstance(one.error, MagnetarError):
                raise Wrong(f"no error for applications: {one}") from one.error

    def check_messages(self, stored: Iterable[Content], *, is_closed: bool) -> None:
        """What is stored agrees with what the calls said."""
        found: dict[int, Content] = {}
        for content in stored:
            number = number_of(content[0])
            if number is None:
                continue
            if number in found:
                raise Wrong(f"stored twice: {content[0][:20]!r}")
            found[number] = content
        for one in self.records:
            self._check_record(one, found, is_closed=is_closed)
        by_txn: dict[int, list[Record]] = {}
        for one in self.records:
            if one.txn is not None:
                by_txn.setdefault(id(one.txn), []).append(one)
        for records in by_txn.values():
            self._check_transaction(records, found)

    def _check_record(
        self, record: Record, found: Mapping[int, Content], *, is_closed: bool
    ) -> None:
        for content in record.contents:
            number = None if content is None else number_of(content[0])
            if number is None:
                continue
            is_stored = number in found
            if is_stored and found[number] != content:
                raise Wrong(f"changed: {record}: {found[number]!r:.200} for {content!r:.200}")
            if record.txn is not None or record.method in ("leave", "block"):
                continue
            if record.error is None:
                if not is_stored and not self._is_heard_of(record, is_closed=is_closed):
                    raise Wrong(f"lost silently: {record}")
            elif is_stored and len(record.contents) == 1 and not isinstance(record.error, UNKNOWN):
                raise Wrong(f"refused, and stored: {record}")

    def _is_heard_of(self, record: Record, *, is_closed: bool) -> bool:
        """Whether a flush of the producer has told that a message is lost."""
        if record.method == "send":
            return False
        # What is lost when a whole client closes is in its log.
        return is_closed or any(
            one.owner is record.owner
            and one.method in ("flush", "close")
            and isinstance(one.error, MagnetarError)
            and one.ended > record.ended
            for one in self.records
        )

    def _check_transaction(self, records: list[Record], found: Mapping[int, Content]) -> None:
        txn = records[0].txn
        assert txn is not None
        calls = [record for record in records if record.method not in ENDS]
        accepted = {number for call in calls if call.succeeded for number in numbers_of(call)}
        tried = {number for call in calls for number in numbers_of(call)}
        if any(record.method in ("leave", "withdraw") for record in records):
            return  # Somebody else decides.
        if txn.has_begun and any(self._decides(one, txn) for one in self.records):
            return  # Whatever has failed here.
        told = "\n  ".join(map(str, records))
        if txn.status in COMMITTED:
            lost = accepted - found.keys()
            if lost:
                raise Wrong(f"committed without its messages: {txn}, {sorted(lost)}:\n  {told}")
            first_end = min(
                (record.began for record in records if record.method in ENDS), default=None
            )
            failed = [
                call
                for call in calls
                if call.error is not None
                and (call.contents or call.method.startswith(ACKS))
                and (first_end is None or call.ended < first_end)
            ]
            if failed:
                raise Wrong(f"committed after a failed call: {txn}:\n  {told}")
        elif txn.status in (TransactionStatus.ABORTED, TransactionStatus.ABORTING):
            kept = tried & found.keys()
            if kept:
                raise Wrong(f"aborted, and stored: {txn}, {sorted(kept)}:\n  {told}")
        elif accepted & found.keys() not in (set(), accepted):
            raise Wrong(f"torn: {txn}:\n  {told}")
        has_succeeded = any(
            record.method in ("commit", "block") and record.succeeded for record in records
        )
        if has_succeeded and txn.status not in COMMITTED:
            raise Wrong(f"commit() has succeeded, and it is not committed:\n  {told}")

    @staticmethod
    def _decides(record: Record, txn: Transaction) -> bool:
        """Whether an administrator, or another member of a named transaction, made this call."""
        other = record.txn
        if other is None:
            ended = record.ended_txn_id
            return isinstance(ended, TxnID) and ended == txn.txn_id
        is_shared = other is not txn and other.has_begun and other.txn_id == txn.txn_id
        return is_shared and record.method in ENDS

    def counts(self) -> Counter[str]:
        """How many calls there were, by the method."""
        return Counter(
            f"{one.step.kind}.{one.method}" for one in self.records if one.step is not None
        )


def number_of(value: bytes) -> int | None:
    """Return the number with which each value begins."""
    match = _NUMBER.match(value)
    return None if match is None else int(match[1])


def numbers_of(record: Record) -> set[int]:
    """Return the numbers of a call's messages."""
    numbers = (number_of(one[0]) for one in record.contents if one is not None)
    return {number for number in numbers if number is not None}


def _is(owner: Any, kind: str) -> bool:
    return type(owner).__name__ == kind
