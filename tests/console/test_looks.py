"""Names of views, texts of contents, beginnings of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from magnetar import (
    Client,
    LogUnavailable,
    MagnetarError,
    TransactionChanges,
    TransactionDescription,
    TransactionStatus,
    TxnID,
    UncommittedMessage,
)
from magnetar_console.looks.contents import content
from magnetar_console.looks.messages import MessagesLook
from magnetar_console.looks.transactions import Beginnings, TransactionsLook, counted
from magnetar_console.looks.view import View
from magnetar_console.pauses import CHANGES_PAUSE, SCAN_PAUSE, pause_s


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        return self.now_ms


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b"hello", "text", "hello"),
        (b'{"a":[1,2]}', "JSON", '{"a": [1, 2]}'),
        (b'["%s",1]' % (b"x" * 80), "JSON", f'[\n "{"x" * 80}",\n 1\n]'),
        (b'{"a": ', "text", '{"a": '),
        (b"\xff\x00", "bytes", "ff00"),
        (b"\x00\x01", "bytes", "0001"),
        (b"", "text", ""),
        ("größer".encode(), "text", "größer"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
    ],
)
def test_contents_as_text(data: bytes, form: str, text: str) -> None:
    assert content(data) == {"text": text, "form": form, "bytes": len(data), "cut": False}


@pytest.mark.usefixtures("full_stack")
def test_long_contents_are_cut() -> None:
    found = content(b"x" * 10_000)
    assert (len(found["text"]), found["bytes"], found["cut"]) == (2_000, 10_000, True)
    assert content(b"\xff" * 10_000)["cut"]
    # Deep nesting is not worth a fault.
    assert content(b"[" * 60_000)["form"] == "text"


def test_a_beginning_stays_although_answers_take_their_time() -> None:
    clock = FakeClock()
    beginnings = Beginnings(clock)
    assert beginnings.began_ms("a", 400) == 999_600
    clock.now_ms += 1_000
    assert beginnings.began_ms("a", 1_350) == 999_600
    # The age of an ended transaction is the time since its end.
    assert beginnings.began_ms("a", 10_000) == 991_000
    beginnings.keep(())
    assert beginnings.began_ms("a", 0) == 1_001_000


def test_places_are_counted_by_name() -> None:
    found = counted([("t", 3, ""), ("t", 1, ""), ("u", 0, "s")])
    assert found == [
        {"topic": "t", "subscription": "", "partitions": [1, 3], "count": 2},
        {"topic": "u", "subscription": "s", "partitions": [0], "count": 1},
    ]
    assert counted((f"t{number}", 0, "") for number in range(10))[-1] == {"more": 4}


def test_looks_that_scan_wait_longer_and_pages_stay_live() -> None:
    assert pause_s(0.001, 1.0, SCAN_PAUSE) == 0.999
    assert pause_s(0.05, 1.0, SCAN_PAUSE) == pytest.approx(2.45)
    assert pause_s(0.05, 1.0, CHANGES_PAUSE) == 0.95
    assert pause_s(0.5, 1.0, SCAN_PAUSE) == 5.0
    # It has waited for a server that is away.
    assert pause_s(3.0, 1.0, SCAN_PAUSE) == 12.0


def test_views_are_read_from_addresses() -> None:
    assert View.parse("transactions", {}) == View("transactions")
    assert View.parse("transaction", {"id": " 1:2:3 "}) == View("transaction", "1:2:3")
    assert View.parse("messages", {"name": "t", "partition": "7"}) == View("messages", "t", 7)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("secrets", {}),
        ("topic", {}),
        ("topic", {"name": "x" * 1_001}),
        ("transaction", {"id": "1:2"}),
        ("messages", {"name": "t"}),
        ("messages", {"name": "t", "partition": "-1"}),
        ("messages", {"name": "t", "partition": "²"}),
    ],
)
def test_other_addresses_are_refused(kind: str, parameters: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        View.parse(kind, parameters)


class FakeCoordinators:
    """Two coordinators with a transaction each."""

    def __init__(self) -> None:
        self.away: set[int] = set()

    async def list(self, *_: object, **__: object) -> list[TransactionDescription]:
        return []

    async def changes(
        self,
        since: TransactionChanges | None,
        *,
        on_unanswered: Callable[[int, MagnetarError], None],
    ) -> TransactionChanges:
        for tcid in sorted(self.away):
            on_unanswered(tcid, LogUnavailable("it does not answer"))
        told = [
            TransactionDescription(
                TxnID.of(tcid, 1, 7), TransactionStatus.OPEN, 60_000, 5_000, 995_000, (), (), ()
            )
            for tcid in (0, 1)
            if tcid not in self.away and since is None
        ]
        return TransactionChanges(tuple(told), (), frozenset(), {})


def test_transactions_of_a_coordinator_that_is_away_stay_with_their_time() -> None:
    async def work() -> None:
        clock, coordinators = FakeClock(), FakeCoordinators()
        admin = SimpleNamespace(transactions=coordinators)
        client = cast(Client, SimpleNamespace(admin=admin))
        look = TransactionsLook(clock)
        seen = await look.look(client)
        assert [one["as_of_ms"] for one in seen.tables["transactions"].values()] == [0, 0]
        coordinators.away = {1}
        for _ in range(2):
            clock.now_ms += 1_000
            seen = await look.look(client)
            rows = seen.tables["transactions"]
            assert {key: row["as_of_ms"] for key, row in rows.items()} == {
                "0:1:7": 0,
                "1:1:7": 1_000_000,
            }
            assert seen.problems[0].startswith("Coordinator 1 does not answer")
        coordinators.away = set()
        rows = (await look.look(client)).tables["transactions"]
        assert [one["as_of_ms"] for one in rows.values()] == [0, 0]

    asyncio.run(work())


class FakePartition:
    """A partition with an open transaction, which counts looks at its messages."""

    def __init__(self) -> None:
        self.last_sequence = 0
        self.peeks = 0

    async def list_offsets(self, *_: object, **__: object) -> SimpleNamespace:
        place = SimpleNamespace(ledger_id=1, first_offset=0, end_offset=0)
        return SimpleNamespace(partitions=[place])

    async def describe_producers(self, *_: object, **__: object) -> list[SimpleNamespace]:
        plain = SimpleNamespace(txn_id=None, subscription="")
        txn = SimpleNamespace(
            txn_id=TxnID.of(0, 1, 7),
            subscription="",
            producer_id=1,
            producer_epoch=-1,
            last_sequence=self.last_sequence,
        )
        return [plain, txn] if self.last_sequence >= 0 else [plain]

    async def peek_uncommitted(self, *_: object, **__: object) -> list[UncommittedMessage]:
        self.peeks += 1
        return [UncommittedMessage(TxnID.of(0, 1, 7), b"%d" % self.last_sequence, None, {}, None)]


def test_the_sidecar_is_looked_into_when_transactions_have_written_and_not_else() -> None:
    """Servers audit each look."""

    async def work() -> None:
        partition = FakePartition()
        admin = SimpleNamespace(topics=partition, transactions=partition)
        client = cast(Client, SimpleNamespace(admin=admin))
        look = MessagesLook("orders", 0)

        async def values() -> list[str]:
            rows = (await look.look(client)).tables["sidecar"].values()
            return [one["value"]["text"] for one in rows]

        assert [await values() for _ in range(3)] == [["0"]] * 3
        assert partition.peeks == 1
        partition.last_sequence = 1
        assert [await values() for _ in range(2)] == [["1"]] * 2
        assert partition.peeks == 2
        # It has ended.
        partition.last_sequence = -1
        assert await values() == []
        assert partition.peeks == 2
        partition.last_sequence = 1
        assert await values() == ["1"]
        await look.close()
        assert await values() == ["1"]
        assert partition.peeks == 4

    asyncio.run(work())
