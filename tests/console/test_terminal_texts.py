"""Texts of `magnetar top`, without a terminal."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("textual", reason="Textual is not installed")

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_console.seen import Picture
from magnetar_console.terminal.cluster_tabs import SHARDS_TAB
from magnetar_console.terminal.columns import Tab, matches
from magnetar_console.terminal.consequences import losses
from magnetar_console.terminal.details import details_of
from magnetar_console.terminal.lines import Lines
from magnetar_console.terminal.paint import fitted, line
from magnetar_console.terminal.status import freshness, problems, servers_away
from magnetar_console.terminal.tabs import TABS
from magnetar_console.terminal.transaction_details import written
from magnetar_console.terminal.transaction_tabs import ENDED_TAB, TRANSACTIONS_TAB
from magnetar_console.terminal.words import Part, Parts, duration, meter, plain, who

NOW_MS = 1_764_350_000_000


def text(parts: Parts) -> str:
    return "".join(one.text for one in parts)


def transaction(**changes: Any) -> dict[str, Any]:
    """A row as magnetar_console.looks.transactions makes it."""
    return {
        "id": "0:1:7",
        "status": "OPEN",
        "two_phase": False,
        "may_be_prepared": False,
        "since_ms": NOW_MS - 30_000,
        "opened_at_ms": NOW_MS - 30_000,
        "ended_at_ms": 0,
        "timeout_ms": 60_000,
        "client": "shop-api",
        "host": "10.0.0.7",
        "connected": True,
        "principal": "",
        "transactional_id": "",
        "topics": [{"topic": "orders", "subscription": "", "partitions": [0, 2], "count": 2}],
        "subscriptions": [],
        "participants": 2,
        "unfinished": 0,
        "as_of_ms": 0,
        "prepared_state": "",
        **changes,
    }


def participant(partition: int, **changes: Any) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": partition,
        "subscription": "",
        "first_ms": NOW_MS - 20_000,
        "last_ms": NOW_MS - 10_000,
        "written": 3,
        "state": "open",
        "error": "",
        **changes,
    }


def details(row: dict[str, Any], *participants: dict[str, Any]) -> Lines:
    tables = {
        "transaction": {"it": row},
        "participants": {str(place): one for place, one in enumerate(participants)},
    }
    return details_of(TRANSACTIONS_TAB, "0:1:7", row).lines(tables, NOW_MS, 80)


def cells(tab: Tab, row: dict[str, Any]) -> dict[str, str]:
    return {one.title: text(one.cell(row, NOW_MS)) for one in tab.columns}


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (-5, "0.0 s"),
        (9_999, "9.9 s"),
        (10_000, "10 s"),
        (200_000, "3 min 20 s"),
        (5 * 3_600_000 + 1_200_000, "5 h 20 min"),
        (76 * 3_600_000, "3 d 4 h"),
    ],
)
def test_durations(ms: int, shown: str) -> None:
    assert duration(ms) == shown


def test_a_terminal_gets_no_characters_that_it_obeys() -> None:
    typed = "a\x1b[31mb\x07\r\n\u202ec\x9b"
    assert plain(typed) == r"a\x1b[31mb\x07\r\n\u202ec\x9b"
    assert line([Part(typed)]).plain.isprintable()
    assert plain("größer, 大きい [bold]") == "größer, 大きい [bold]"


def test_a_cell_has_exactly_its_width() -> None:
    assert fitted([Part("abcdef")], 4).plain == "abc…"
    assert fitted([Part("ab")], 4, right=True).plain == "  ab"
    # These are two columns wide.
    assert fitted([Part("大きい")], 4).cell_len == 4


def test_a_transaction_in_its_row() -> None:
    found = cells(TRANSACTIONS_TAB, transaction())
    assert found["WHO"] == "shop-api at 10.0.0.7"
    assert (found["AGE"], found["EXPIRES IN"], found["STATE"]) == ("30 s", "30 s", "open")
    assert found["OF ITS TIME"] == "█████░░░░░"
    assert found["WHERE"] == "orders / 0, 2"


@pytest.mark.parametrize(
    ("changes", "column", "shown"),
    [
        ({"may_be_prepared": True, "two_phase": True}, "STATE", "may be prepared"),
        ({"status": "COMMITTING", "two_phase": True}, "STATE", "committing, two-phase"),
        ({"as_of_ms": NOW_MS - 9_000}, "STATE", "was open"),
        ({"timeout_ms": 0}, "EXPIRES IN", "never"),
        ({"timeout_ms": 20_000}, "EXPIRES IN", "passed"),
        ({"topics": []}, "WHERE", "nothing yet"),
        ({"connected": False}, "WHO", "shop-api at 10.0.0.7 its connection is gone"),
        (
            {"transactional_id": "app-1", "principal": "shop"},
            "WHO",
            "app-1 shop-api, as shop, at 10.0.0.7",
        ),
    ],
)
def test_what_is_special_about_a_transaction(
    changes: dict[str, Any], column: str, shown: str
) -> None:
    assert cells(TRANSACTIONS_TAB, transaction(**changes))[column] == shown


def test_an_ended_transaction_says_how_long_it_took() -> None:
    ended = transaction(
        status="COMMITTED", since_ms=NOW_MS - 2_000, ended_at_ms=NOW_MS - 2_000, timeout_ms=0
    )
    found = cells(ENDED_TAB, ended)
    assert (found["OUTCOME"], found["ENDED AGO"], found["TOOK"]) == ("committed", "2.0 s", "28 s")


def test_participants_that_are_missing_come_first_and_are_marked() -> None:
    row = transaction(status="COMMITTING", unfinished=2)
    found = details(
        row,
        participant(0, state="ended"),
        participant(1, state="waits"),
        participant(2, state="refuses", error="the topic is gone"),
    )
    texts = [text(one) for one in found]
    assert "2 of 2 participants have not ended yet." in texts[5]
    assert "Participants: 3   2 missing" in texts
    order = [one for one in texts if one.startswith("orders / ")]
    assert [one.split()[2] for one in order] == ["2", "1", "0"]
    assert order[0].endswith("refuses the end")
    assert order[1].endswith("has not ended yet")
    assert order[2].endswith("committed")
    assert "  the topic is gone" in texts
    marks = [one.kind for parts in found for one in parts if "end" in one.text and one.kind]
    assert "bad" in marks


def test_a_participant_without_a_write_stands_out() -> None:
    found = details(transaction(), participant(0), participant(1, first_ms=0, last_ms=0))
    texts = [text(one) for one in found]
    order = [one for one in texts if one.startswith("orders / ")]
    assert order[0].startswith("orders / 1")
    assert order[0].endswith("no write seen")


def test_a_command_quotes_what_people_typed() -> None:
    row = transaction(
        may_be_prepared=True, transactional_id="a; rm -rf $HOME", prepared_state="1/0"
    )
    texts = [text(one) for one in details(row)]
    assert "  magnetar transactions complete 'a; rm -rf $HOME' --state 1/0" in texts


def test_bars_reach_from_the_first_write_to_the_last() -> None:
    one = participant(0, first_ms=200, last_ms=499)
    assert written(one, 0, 1_000, 10) == "··━━━·····"
    assert written(participant(0, first_ms=0), 0, 1_000, 4) == "····"
    # A broker's clock may be wrong.
    assert written(participant(0, first_ms=1, last_ms=9_000), 500, 1_000, 4) == "━━━━"


def test_an_abort_names_what_will_be_lost() -> None:
    told = {
        "transactional_id": "",
        "client": "shop-api",
        "host": "10.0.0.7",
        "topics": transaction()["topics"],
        "subscriptions": [
            {"topic": "orders", "subscription": "bill", "partitions": [1], "count": 1}
        ],
    }
    texts = [text(one) for one in losses(told)]
    assert "  orders / 0, 2" in texts
    assert "  acks of bill: orders / 1" in texts
    assert "Its program (shop-api at 10.0.0.7) gets an error" in texts[-1]


def test_how_present_rows_are() -> None:
    seen = Picture({"t": {}}, NOW_MS - 2_000)

    def told(picture: Picture | None, now_ms: int = NOW_MS, *, paused: bool = False) -> str:
        return text(freshness(picture, now_ms, 1.0, paused=paused))

    assert told(None) == "asking"
    assert told(seen).startswith("live ")
    assert told(seen, NOW_MS + 10_000) == "late as of 12 s ago"
    assert told(seen, paused=True).startswith("paused at ")
    assert told(Picture({}, NOW_MS - 7_000, error="gone")) == "away as of 7.0 s ago"
    assert told(Picture({}, 0, error="gone")) == "away nothing seen yet"


def test_problems_take_few_lines() -> None:
    picture = Picture({}, NOW_MS, tuple(f"part {number}" for number in range(9)), "gone")
    texts = [text(one) for one in problems(picture)]
    assert texts == ["No answer: gone", "Note: part 0", "Note: part 1", "and 7 more"]
    assert problems(None) == []


def test_servers_that_are_away_are_counted() -> None:
    servers: dict[str, dict[str, Any]] = {
        "a": {"answers": True},
        "b": {"answers": False},
        "c": {"answers": None},
    }
    assert text(servers_away(Picture({"servers": servers}))) == "1 of 3 servers away"
    assert servers_away(Picture({"servers": {"a": {"answers": True}}})) == ()
    assert servers_away(None) == ()


def test_a_filter_looks_into_all_texts() -> None:
    row = transaction(may_be_prepared=True)
    for wanted in ("", "SHOP", "0:1:7", "orders", "10.0.0", "be prepared"):
        assert matches(row, wanted), wanted
    assert not matches(row, "invoices")


def test_shards_are_sorted_by_their_number() -> None:
    rows = [{"kind": "broker", "name": f"broker-{number}"} for number in (10, 9, 2)]
    order = SHARDS_TAB.columns[0].order
    assert [one["name"] for one in sorted(rows, key=order)] == ["broker-2", "broker-9", "broker-10"]


def test_each_tab_needs_at_most_80_columns() -> None:
    for tab in TABS:
        shown = [one for one in tab.columns if one.from_width <= 80]
        own = sum(one.width for one in shown) + len(shown) - 1
        sharing = sum(not one.width for one in shown)
        # The TxnID and the state are rarely as wide as they may be.
        own -= sum(one.width - len(one.title) - 1 for one in shown if one.fits)
        assert 80 - own >= 8 * sharing, tab.name


def test_whose_is_said_although_nothing_is_known() -> None:
    assert text(who(transaction(client="", host="", connected=None))) == "not known"


def test_meters() -> None:
    assert [meter(done, 4) for done in (-1, 0, 0.5, 1, 7)] == [
        *("░░░░", "░░░░", "██░░"),
        *("████", "████"),
    ]


def test_details_of_a_transaction_come_from_its_own_view() -> None:
    found = details_of(TRANSACTIONS_TAB, "0:1:7", transaction())
    assert found.view == View(views.TRANSACTION, "0:1:7")
