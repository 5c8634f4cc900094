"""Lines of histories: events become text and come back, and a changed line is no line."""

from __future__ import annotations

import json
from random import Random

import pytest
from tests.core.recording.events import an_event, some_events

from magnetar_core.history.event_text import EventUnknown, from_json, to_text
from magnetar_core.history.events import EVENTS, Life, Server
from magnetar_core.recording.lines import (
    LineDamaged,
    LineWriter,
    file_name,
    life_of_file,
    parse_line,
)

LIFE = Life(Server("coordinator", 3), 1_764_266_793_123)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_comes_back_from_its_text(kind: type) -> None:
    random = Random(kind.__name__)
    for _ in range(50):
        event = an_event(kind, random)
        back = from_json(json.loads(f"{{{to_text(event)}}}"))
        assert back == event
        assert type(back) is type(event)
        # Not as tuples that happen to be equal.
        assert repr(back) == repr(event)


def test_a_line_comes_back_with_its_number_and_life() -> None:
    writer = LineWriter(LIFE)
    for number, event in enumerate(some_events(Random(1), 200)):
        line = parse_line(writer.line(1_000 + number, to_text(event)))
        assert (line.number, line.life, line.time) == (number, LIFE, 1_000 + number)
        assert line.event == type(event).__name__
        assert from_json(line.members) == event


def test_a_line_with_any_byte_changed_is_damaged() -> None:
    text = LineWriter(LIFE).line(5, to_text(next(some_events(Random(2), 1))))
    for place in range(len(text)):
        for bit in (1, 0x80):
            changed = bytes([*text[:place], text[place] ^ bit, *text[place + 1 :]])
            with pytest.raises(LineDamaged):
                parse_line(changed)
    for end in range(len(text)):
        with pytest.raises(LineDamaged):
            parse_line(text[:end])


@pytest.mark.parametrize(
    "members",
    [
        '"event":"Nonsense"',
        '"event":"Finished"',
        '"event":"Finished","txn_id":"0:1","is_commit":true',
        '"event":"Finished","txn_id":"0:1:2","is_commit":1',
        '"event":"Sealed","position":"4"',
        '"event":"Sealed","position":true',
        '"event":"EndsForgotten","participant":["t",0],"txn_ids":[]',
        '"event":"EndsForgotten","participant":["t",0,1],"txn_ids":"0:1:2"',
    ],
)
def test_what_is_no_event_says_so(members: str) -> None:
    with pytest.raises(EventUnknown):
        from_json(json.loads(f"{{{members}}}"))


def test_a_valid_check_does_not_make_a_line_of_anything() -> None:
    writer = LineWriter(LIFE)
    with pytest.raises(LineDamaged):
        parse_line(writer.line(0, '"no":"event"'))
    foreign = LineWriter(Life(Server("client", 1), 1))
    with pytest.raises(LineDamaged):
        parse_line(foreign.line(0, '"event":"Closed"'))


def test_the_name_of_a_file_says_whose_life_it_has() -> None:
    assert life_of_file(file_name(LIFE)) == LIFE
    for name in ("broker-0.jsonl", "client-1.5.history.jsonl", "broker-x.5.history.jsonl", ""):
        assert life_of_file(name) is None
