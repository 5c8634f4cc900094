"""`magnetar transactions history`: what became of one transaction, moment by moment.

What is missing comes last, and stands out: a decision, an end, a broker that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from magnetar_cli.output import duration

if TYPE_CHECKING:
    from magnetar import (
        ParticipantHistory,
        TransactionClient,
        TransactionDescription,
        TransactionHistory,
    )

# Participants that a line names; a transaction may have thousands.
NAMED_MAX = 4
MISSING = "MISSING"

CAUSES = {
    "BY_CLIENT": "by its client",
    "BY_HAND": "by hand",
    "TIMED_OUT": "its timeout was over",
    "TAKEN_OVER": "another instance took over",
    "MEMBER_EXPELLED": "a member of a group that took part is gone",
    "RESTORED_FROM_BACKUP": "it was open in a backup that was restored",
    "DECIDED_BEFORE_LOSS": "it was decided before the coordinator's store was lost",
}
NO_DETAILS = {
    "ENDED_BEFORE_START": "it ended before its coordinator was started, so details are not kept",
    "MANY_ENDED_SINCE": "details are no longer kept: thousands of transactions have ended since",
}


class Moment(NamedTuple):
    """An event of a transaction; a time of 0: it has not happened, or its time is not known."""

    time_ms: int
    text: str


def moments(history: TransactionHistory) -> list[Moment]:
    """Return the known events of a transaction, in order."""
    one = history.transaction
    whose = f" by {whose_of(one.client)}" if one.client is not None else ""
    found = [Moment(one.opened_at_ms, f"begun{whose}")]
    writes: dict[int, list[str]] = {}
    acks: dict[int, list[str]] = {}
    ends: dict[int, list[str]] = {}
    for part in history.participants:
        first = writes if part.subscription is None else acks
        first.setdefault(part.first_write_at_ms, []).append(name_of(part))
        ends.setdefault(part.ended_at_ms, []).append(name_of(part))
    found += _merged("first write at", writes)
    found += _merged("first ack at", acks)
    action = "COMMIT" if one.status.name.startswith("COMMIT") else "ABORT"
    found.append(Moment(one.decided_at_ms, f"decided: {action}{_cause_of(one)}"))
    found += _merged("ended at", ends)
    found.append(Moment(one.ended_at_ms, f"{one.status.name} everywhere"))
    return sorted((each for each in found if each.time_ms), key=lambda each: each.time_ms)


def missing(history: TransactionHistory) -> Iterator[str]:
    """Yield events that have not happened, and answers that have not come."""
    one = history.transaction
    status = one.status.name
    if status == "OPEN":
        if one.may_be_prepared:
            yield "a decision: it may be prepared, and its database knows the outcome"
        else:
            yield f"a decision: it expires {deadline_of(one)}"
    if one.details_missing:
        yield NO_DETAILS[one.details_missing.name]
    waits = [part for part in history.participants if not part.ended_at_ms]
    if status in ("COMMITTING", "ABORTING"):
        for text, some in _by_text(waits, lambda part: part.last_error or "no answer yet"):
            yield f"the end at {_named(some)}: {text}"
    unheard = [part for part in history.participants if part.unanswered]
    for text, some in _by_text(unheard, lambda part: part.unanswered):
        yield f"what {_named(some)} has: {text}"
    for part in history.participants:
        known = part.status is not None and part.status.name != "ABORTED"
        if (
            known
            and part.subscription is None
            and not part.counted_partly
            and part.confirmed is not None
            and part.count < part.confirmed
        ):
            lost = part.confirmed - part.count
            yield f"{lost:,} of {part.confirmed:,} confirmed messages at {name_of(part)}"


def whose_of(client: TransactionClient) -> str:
    """Return a client as text, such as "flights at 10.0.0.7, gone"."""
    gone = "" if client.is_connected else ", gone"
    return f"{client.name or 'a client'} at {client.host}{gone}"


def deadline_of(one: TransactionDescription) -> str:
    """Return when an open transaction expires, such as "in 12.5s"."""
    if one.expires_in_ms is None:
        return "never" if one.two_phase_commit and not one.ended_at_ms else "-"
    return f"in {duration(one.expires_in_ms)}" if one.expires_in_ms > 0 else "now"


def name_of(part: ParticipantHistory) -> str:
    """Return a participant's name, such as "orders-partition-0/billing"."""
    return str(part.partition) + (f"/{part.subscription}" if part.subscription else "")


def clock_of(time_ms: int) -> str:
    """Return the time of day, to the millisecond, in the local zone."""
    moment = datetime.fromtimestamp(time_ms / 1_000, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds").split(" ")[1][:12]


def _cause_of(one: TransactionDescription) -> str:
    text = CAUSES.get(one.cause.name, "")
    if text and one.caused_by:
        text += f": {one.caused_by}"
    return f", {text}" if text else ""


def _merged(event: str, times: dict[int, list[str]]) -> Iterator[Moment]:
    """Yield a moment for all names of each time."""
    for time_ms, names in times.items():
        yield Moment(time_ms, f"{event} {_listed(names)}")


def _by_text(
    parts: Iterable[ParticipantHistory], text_of: Callable[[ParticipantHistory], str]
) -> Iterator[tuple[str, list[ParticipantHistory]]]:
    found: dict[str, list[ParticipantHistory]] = {}
    for part in parts:
        found.setdefault(text_of(part), []).append(part)
    yield from found.items()


def _named(parts: Iterable[ParticipantHistory]) -> str:
    return _listed([name_of(part) for part in parts])


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:NAMED_MAX])
    if len(names) > NAMED_MAX:
        shown.append(f"{len(names) - NAMED_MAX:,} more")
    return ", ".join(shown)
