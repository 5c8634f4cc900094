"""Histories that are damaged on purpose, as faults of servers would: the checker finds them. Pure.

Each function returns the records of a history in which something went wrong, or None if the history
has nothing that this could happen to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tests.namespaces.records import ABORT, COMMIT, OK, Record, place_of
from tests.simulation.history import Place

Damage = Callable[[Sequence[Record], Random], list[Record] | None]


class _Entry(NamedTuple):
    value: str
    txn: str | None
    # Readers who got as far as here in the sound history have seen it.
    slot: int


def _logs(records: Sequence[Record]) -> dict[Place, list[_Entry]]:
    """What the last reader saw in each partition."""
    return {
        place_of(record): [_Entry(value, txn, offset) for offset, value, txn in record["messages"]]
        for record in records
        if record["kind"] == "read" and record["start"] == 0
    }


def _relaid(records: Sequence[Record], place: Place, log: Sequence[_Entry]) -> list[Record]:
    """The history in which a partition has other contents, for all its readers and producers."""
    offsets = {one.value: offset for offset, one in reversed(list(enumerate(log)))}

    def moved(boundary: int) -> int:
        return sum(one.slot < boundary for one in log)

    def changed(record: Record) -> Record:
        if record["kind"] == "read" and place_of(record) == place:
            start = moved(record["start"])
            end = moved(record["start"] + len(record["messages"]))
            messages = [[at, log[at].value, log[at].txn] for at in range(start, end)]
            return {**record, "start": start, "messages": messages}
        if record["kind"] in ("cut", "cut again"):
            rows = [
                # Values are used once, so those of other partitions stay where they are.
                [topic, partition, offsets.get(value, offset), value, txn]
                for topic, partition, offset, value, txn in record["rows"]
                if (topic, partition) != place or value in offsets
            ]
            return {**record, "rows": rows}
        if record["kind"] == "log" and place_of(record) == place:
            return {**record, "end": len(log)}
        if record["kind"] == "sent" and record["offset"] is not None:
            return {**record, "offset": offsets.get(record["value"], record["offset"])}
        return record

    return [changed(record) for record in records]


def _ended(records: Sequence[Record], action: str) -> set[str]:
    """The transactions of which somebody was told that they have ended so."""
    return {
        record["txn"]
        for record in records
        if record["kind"] == "ended" and (record["action"], record["outcome"]) == (action, OK)
    }


def _transfers(records: Sequence[Record], action: str) -> list[dict[Place, str]]:
    """Messages of the transactions that were ended so, by their partition."""
    ended = _ended(records, action)
    sent: dict[str, dict[Place, str]] = {}
    for record in records:
        if record["kind"] == "send" and record["txn"] in ended:
            sent.setdefault(record["txn"], {})[place_of(record)] = record["value"]
    return [messages for messages in sent.values() if len(messages) > 1]


def _without(records: Sequence[Record], place: Place, value: str) -> list[Record]:
    return _relaid(records, place, [one for one in _logs(records)[place] if one.value != value])


def lost_commit(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A transfer was committed, and is nowhere."""
    found = _transfers(records, COMMIT)
    if not found:
        return None
    damaged = list(records)
    for place, value in random.choice(found).items():
        damaged = _without(damaged, place, value)
    return damaged


def torn_transfer(records: Sequence[Record], random: Random) -> list[Record] | None:
    """Of a transfer, one account was told, and the other was not."""
    found = _transfers(records, COMMIT)
    if not found:
        return None
    place, value = random.choice(sorted(random.choice(found).items()))
    return _without(records, place, value)


def doubled_message(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A message of a transfer was stored once more, at the end of its partition."""
    logs = _logs(records)
    found = [(place, one) for place, log in logs.items() for one in log if one.txn is not None]
    if not found:
        return None
    place, doubled = random.choice(found)
    log = logs[place]
    return _relaid(records, place, [*log, doubled._replace(slot=len(log) - 1)])


def visible_abort(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A transfer was aborted, and its messages are there."""
    found = _transfers(records, ABORT)
    if not found:
        return None
    txns = {record["value"]: record["txn"] for record in records if record["kind"] == "send"}
    damaged = list(records)
    for place, value in random.choice(found).items():
        log = _logs(damaged)[place]
        damaged = _relaid(damaged, place, [*log, _Entry(value, txns[value], max(0, len(log) - 1))])
    return damaged


def swapped_messages(records: Sequence[Record], random: Random) -> list[Record] | None:
    """Two transfers of a teller lie in an account in the other order."""
    producers = {
        record["value"]: record["producer"]
        for record in records
        if record["kind"] == "send" and record["txn"] is not None
    }
    certain = {value for transfer in _transfers(records, COMMIT) for value in transfer.values()}
    pairs = []
    for place, log in _logs(records).items():
        latest: dict[str, int] = {}
        for at, one in enumerate(log):
            if one.value not in certain:
                continue
            before = latest.get(producers[one.value])
            if before is not None:
                pairs.append((place, before, at))
            latest[producers[one.value]] = at
    if not pairs:
        return None
    place, first, second = random.choice(pairs)
    log = list(_logs(records)[place])
    log[first], log[second] = (
        log[second]._replace(slot=log[first].slot),
        log[first]._replace(slot=log[second].slot),
    )
    return _relaid(records, place, log)


def order_again(records: Sequence[Record], random: Random) -> list[Record] | None:
    """An order was carried out, and is delivered to somebody who attached later."""
    committed = _ended(records, COMMIT)
    acked = [record for record in records if record["kind"] == "ack" and record["txn"] in committed]
    if not acked:
        return None
    ack = random.choice(acked)
    delivered = next(
        record
        for record in records
        if record["kind"] == "delivered"
        and (*place_of(record), record["offset"]) == (*place_of(ack), ack["offset"])
    )
    at = _index(records, "drained")
    again = {**delivered, "session": records[at]["session"], "at": records[at]["at"]}
    return [*records[:at], again, *records[at:]]


def order_forgotten(records: Sequence[Record], random: Random) -> list[Record] | None:
    """An order was not carried out, and does not come again."""
    session = records[_index(records, "drained")]["session"]
    left = [
        at
        for at, one in enumerate(records)
        if one["kind"] == "delivered" and one["session"] == session
    ]
    if not left:
        return None
    at = random.choice(left)
    return [*records[:at], *records[at + 1 :]]


def message_gone(records: Sequence[Record], random: Random) -> list[Record] | None:
    """What a reader has seen at the end of a partition is not there for the next one."""
    sound = [
        at
        for at, one in enumerate(records)
        if one["kind"] == "read" and one["start"] == 0 and one["messages"]
    ]
    if not sound:
        return None
    at = random.choice(sound)
    read = records[at]
    after = read["at"] + 1e-6
    later = {**read, "messages": read["messages"][:-1], "at": after, "began_at": after}
    return [*records[: at + 1], later, *records[at + 1 :]]


def seen_too_early(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A reader saw a message before anybody had asked for its commit."""
    log = [entry for entries in _logs(records).values() for entry in entries if entry.txn]
    if not log:
        return None
    entry = random.choice(log)
    read = next(
        record
        for record in records
        if record["kind"] == "read"
        and any(value == entry.value for _, value, _ in record["messages"])
    )
    at = next(
        at
        for at, one in enumerate(records)
        if (one["kind"], one.get("txn"), one.get("action")) == ("end", entry.txn, COMMIT)
    )
    offset = next(offset for offset, value, _ in read["messages"] if value == entry.value)
    now = records[at]["at"]
    early = {**read, "at": now, "began_at": now, "start": offset}
    early["messages"] = [[offset, entry.value, entry.txn]]
    return [*records[:at], early, *records[at:]]


def changed_decision(records: Sequence[Record], random: Random) -> list[Record] | None:
    """A commit was answered, and in the end the coordinator says that it was aborted."""
    told = _ended(records, COMMIT)
    statuses = [
        at for at, one in enumerate(records) if one["kind"] == "status" and one["txn"] in told
    ]
    if not statuses:
        return None
    at = random.choice(statuses)
    all_told = (record["status"] for record in records if record["kind"] == "status")
    other = next((one for one in all_told if one != records[at]["status"]), None)
    if other is None:
        return None
    return [*records[:at], {**records[at], "status": other}, *records[at + 1 :]]


def _index(records: Sequence[Record], kind: str) -> int:
    return next(at for at, one in enumerate(records) if one["kind"] == kind)


DAMAGES: tuple[Damage, ...] = (
    lost_commit,
    doubled_message,
    torn_transfer,
    visible_abort,
    swapped_messages,
    order_again,
    order_forgotten,
    message_gone,
    seen_too_early,
    changed_decision,
)
