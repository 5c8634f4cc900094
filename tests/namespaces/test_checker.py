"""The checker of recorded histories takes sound ones, and finds each way to damage them."""

from __future__ import annotations

from random import Random

import pytest
from tests.namespaces.checker import Violation, check
from tests.namespaces.cut_damages import (
    CUT_DAMAGES,
    changed_cut,
    late_commit,
    late_input,
    torn_cut,
    twice_in_cuts,
)
from tests.namespaces.damages import (
    DAMAGES,
    Damage,
    changed_decision,
    doubled_message,
    lost_commit,
    message_gone,
    order_again,
    order_forgotten,
    seen_too_early,
    swapped_messages,
    torn_transfer,
    visible_abort,
)
from tests.namespaces.records import ABORT, COMMIT, NO_EFFECT, OK, UNKNOWN, Record

from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2

SEEDS = range(12)
# What each is found as.
FOUND_AS: dict[Damage, str] = {
    lost_commit: "invariant [12]",
    doubled_message: "invariant 4",
    torn_transfer: "invariant [12]",
    visible_abort: "invariant 3",
    # Whoever has read in between saw one of them before it was sent.
    swapped_messages: "invariant [345]",
    order_again: "invariant 6",
    order_forgotten: "invariant 6",
    message_gone: "invariant 2",
    seen_too_early: "invariant 3",
    changed_decision: "invariant 7",
    torn_cut: "invariant cut: .* is (torn|missing)",
    late_commit: "invariant cut: .* (was committed before it|is a cause of)",
    late_input: "invariant cut: .* (was made from|was confirmed before it)",
    twice_in_cuts: "invariant cut: .* comes again",
    changed_cut: "invariant cut: another reader",
}


class Story:
    """A sound history: tellers who transfer, one step after the other, and a reader."""

    def __init__(self, seed: int, transfers: int = 30) -> None:
        self.random = Random(seed)
        self.survey_random = Random(seed)
        self.records: list[Record] = []
        self.logs: dict[tuple[str, int], list[tuple[str, str | None]]] = {
            **{("accounts", partition): [] for partition in range(4)},
            **{("orders", partition): [] for partition in range(2)},
        }
        # How far each partition was at each cut; the first has nothing.
        self.cuts = [dict.fromkeys(self.logs, 0)]
        self.left: list[tuple[int, int]] = []
        self.statuses: dict[str, int] = {}
        self.number = 0
        for teller in range(3):
            self.note("attach", session=f"t{teller}", topic="orders", subscription="tellers")
        for at in range(transfers):
            self.transfer(f"t{self.random.randrange(3)}", at)
            self.read(self.random.randrange(4))
            if at % 5 == 4:
                self.cut()
                self.cut_again()
        self.end()

    def note(self, kind: str, **facts: object) -> float:
        at = float(len(self.records))
        self.records.append({"at": at, "kind": kind, **facts})
        return at

    def send(
        self,
        producer: str,
        place: tuple[str, int],
        text: str,
        txn: str | None = None,
        source: tuple[str, int, int] | None = None,
    ) -> str:
        self.number += 1
        value = f"m{self.number}.{text}"
        topic, partition = place
        at = self.note(
            "send",
            value=value,
            producer=f"{producer}/{topic}",
            topic=topic,
            partition=partition,
            txn=txn,
            input=source,
        )
        offset = None
        if txn is None:
            offset = len(self.logs[place])
            self.logs[place].append((value, None))
        self.note("sent", value=value, outcome=OK, offset=offset, asked_at=at, error="")
        return value

    def transfer(self, teller: str, at: int) -> None:
        order = ("orders", self.random.randrange(2))
        self.send(teller, order, "order")
        self.left.append((order[1], len(self.logs[order]) - 1))
        partition, offset = self.left.pop(self.random.randrange(len(self.left)))
        self.deliver(teller, partition, offset)
        if self.random.random() < 0.2:
            self.send(teller, ("accounts", self.random.randrange(4)), f"{teller}.note.0")
        txn = str(TxnID.of(at % 2, 1, at))
        self.note("begun", txn=txn, owner=teller)
        amount = self.random.randint(1, 9)
        places = [("accounts", one) for one in self.random.sample(range(4), 2)]
        changes = zip(places, (-amount, amount), (("orders", partition, offset), None), strict=True)
        values = [
            self.send(teller, place, f"{teller}.{at}.{change}", txn, source)
            for place, change, source in changes
        ]
        ack = {
            "txn": txn,
            "topic": "orders",
            "partition": partition,
            "subscription": "tellers",
            "offset": offset,
        }
        asked_at = self.note("ack", **ack)
        self.note("acked", **ack, outcome=OK, asked_at=asked_at)
        # Of some commits nobody hears, whatever became of them.
        action, outcome, counts = self.random.choice(
            [(COMMIT, OK, True)] * 6
            + [
                (ABORT, OK, False),
                (COMMIT, UNKNOWN, True),
                (COMMIT, UNKNOWN, False),
                (COMMIT, NO_EFFECT, False),
            ]
        )
        kept = values if action == COMMIT else []
        asked_at = self.note("end", txn=txn, action=action, values=kept)
        self.note(
            "ended",
            txn=txn,
            action=action,
            outcome=outcome,
            finished=outcome == OK,
            asked_at=asked_at,
        )
        self.statuses[txn] = common_pb2.COMMITTED if counts else common_pb2.ABORTED
        if counts:
            for place, value in zip(places, values, strict=True):
                self.logs[place].append((value, txn))
        else:
            self.left.append((partition, offset))

    def deliver(self, session: str, partition: int, offset: int) -> None:
        value, txn = self.logs["orders", partition][offset]
        self.note(
            "delivered",
            session=session,
            topic="orders",
            partition=partition,
            subscription="tellers",
            offset=offset,
            value=value,
            txn=txn,
        )

    def read(self, partition: int, topic: str = "accounts", start: int | None = None) -> None:
        log = self.logs[topic, partition]
        start = self.random.randint(0, len(log)) if start is None else start
        messages = [[offset, *log[offset]] for offset in range(start, len(log))]
        self.note(
            "read",
            topic=topic,
            partition=partition,
            start=start,
            began_at=len(self.records) - 0.5,
            messages=messages,
        )

    def cut(self) -> None:
        """Also of what was committed only after it was asked for, by chance."""
        since = self.cuts[-1]
        asked_at = self.note("asking for a cut") - self.survey_random.randrange(10)
        self.cuts.append({place: len(log) for place, log in self.logs.items()})
        number = len(self.cuts) - 1
        self.note(
            "cut",
            token=f"cut {number}",
            since=f"cut {number - 1}" if number > 1 else None,
            asked_at=asked_at,
            took_s=0.1,
            rows=self._rows(since, self.cuts[-1]),
        )

    def cut_again(self) -> None:
        number = self.survey_random.randrange(1, len(self.cuts))
        rows = self._rows(self.cuts[0], self.cuts[number])
        self.note("cut again", token=f"cut {number}", rows=rows)

    def _rows(
        self, since: dict[tuple[str, int], int], at: dict[tuple[str, int], int]
    ) -> list[list[object]]:
        return [
            [*place, offset, *log[offset]]
            for place, log in self.logs.items()
            for offset in range(since[place], at[place])
        ]

    def end(self) -> None:
        for txn, status in self.statuses.items():
            self.note("status", txn=txn, status=status)
        for (topic, partition), log in self.logs.items():
            self.read(partition, topic, 0)
            self.note("log", topic=topic, partition=partition, first=0, end=len(log))
        self.cut_again()
        self.note("attach", session="auditor", topic="orders", subscription="tellers")
        for partition, offset in self.left:
            self.deliver("auditor", partition, offset)
        self.note("drained", session="auditor", topic="orders", subscription="tellers")
        for partition in range(2):
            unacked = [offset for one, offset in self.left if one == partition]
            floor = min(unacked, default=len(self.logs["orders", partition]))
            self.note(
                "cursor",
                topic="orders",
                partition=partition,
                subscription="tellers",
                mark_delete=floor,
                pending=0,
            )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_history_has_no_violation(seed: int) -> None:
    summary = check(Story(seed).records)
    assert summary.counts["commit: ok"] > 5
    assert summary.counts["transactions"] == 30
    assert summary.counts["cuts"] == 6
    assert summary.counts["cuts read again"] == 7


@pytest.mark.parametrize("damage", [*DAMAGES, *CUT_DAMAGES], ids=lambda damage: damage.__name__)
def test_each_damaged_history_is_found(damage: Damage) -> None:
    found = 0
    for seed in SEEDS:
        damaged = damage(Story(seed).records, Random(seed))
        if damaged is None:
            continue
        with pytest.raises(Violation, match=FOUND_AS[damage]):
            check(damaged)
        found += 1
    assert found > len(SEEDS) // 2


def test_a_history_without_its_end_is_not_judged() -> None:
    records = Story(1).records
    with pytest.raises(ValueError, match="no end"):
        check(records[: len(records) // 2])


def test_a_refused_message_that_is_there_is_found() -> None:
    records = Story(3).records
    at = next(
        at for at, one in enumerate(records) if one["kind"] == "sent" and one["offset"] is not None
    )
    refused = {"outcome": NO_EFFECT, "offset": None, "error": "DiskFull: No effect"}
    with pytest.raises(Violation, match="was told"):
        check([*records[:at], {**records[at], **refused}, *records[at + 1 :]])
